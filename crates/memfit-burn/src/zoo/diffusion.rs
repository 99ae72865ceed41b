//! A step of diffusion: a U-Net that is told the time finds the noise in an image.
//!
//! Source: Ho, Jain and Abbeel, "Denoising Diffusion Probabilistic Models" (NeurIPS 2020), with two levels and a cosine schedule.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig, InterpolateMode};
use burn::nn::{GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor, activation};

use super::{Batch, Net};

const WIDTH: usize = 32;
const TIME: usize = 64;
const GROUPS: usize = 8;

fn same<B: Backend>(from: usize, to: usize, device: &B::Device) -> Conv2d<B> {
    Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: Conv2d<B>,
    norms: Vec<GroupNorm<B>>,
    time: Linear<B>,
    second: Conv2d<B>,
    skip: Conv2d<B>,
}

impl<B: Backend> Block<B> {
    fn new(from: usize, to: usize, device: &B::Device) -> Block<B> {
        Block {
            first: same(from, to, device),
            norms: (0..2).map(|_| GroupNormConfig::new(GROUPS, to).init(device)).collect(),
            time: LinearConfig::new(TIME, to).init(device),
            second: same(to, to, device),
            skip: Conv2dConfig::new([from, to], [1, 1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>, time: Tensor<B, 2>) -> Tensor<B, 4> {
        let time = self.time.forward(time).unsqueeze_dims(&[2, 3]);
        let y = activation::silu(self.norms[0].forward(self.first.forward(x.clone()))) + time;
        activation::silu(self.norms[1].forward(self.second.forward(y))) + self.skip.forward(x)
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct Denoiser<B: Backend> {
    enter: Conv2d<B>,
    down: Block<B>,
    shrink: Conv2d<B>,
    bottom: Block<B>,
    grow: Interpolate2d,
    up: Block<B>,
    leave: Conv2d<B>,
}

impl<B: Backend> Denoiser<B> {
    /// For images with three channels, of an even size.
    pub(crate) fn new(device: &B::Device) -> Denoiser<B> {
        let nearest = Interpolate2dConfig::new().with_mode(InterpolateMode::Nearest);
        Denoiser {
            enter: same(3, WIDTH, device),
            down: Block::new(WIDTH, WIDTH, device),
            shrink: Conv2dConfig::new([WIDTH, 2 * WIDTH], [2, 2]).with_stride([2, 2]).init(device),
            bottom: Block::new(2 * WIDTH, 2 * WIDTH, device),
            grow: nearest.with_scale_factor(Some([2.0, 2.0])).init(),
            up: Block::new(3 * WIDTH, WIDTH, device),
            leave: same(WIDTH, 3, device),
        }
    }

    /// The noise in `x` at times between 0 and 1.
    fn noise(&self, x: Tensor<B, 4>, time: Tensor<B, 1>) -> Tensor<B, 4> {
        let rates: Vec<f32> = (0..TIME / 2).map(|at| 100f32.powf(at as f32 * 2.0 / TIME as f32)).collect();
        let rates = Tensor::<B, 1>::from_data(rates.as_slice(), &x.device());
        let waves = time.unsqueeze_dim::<2>(1).matmul(rates.unsqueeze_dim(0));
        let time = Tensor::cat(vec![waves.clone().sin(), waves.cos()], 1);
        let wide = self.down.forward(self.enter.forward(x), time.clone());
        let deep = self.bottom.forward(self.shrink.forward(wide.clone()), time.clone());
        let both = Tensor::cat(vec![self.grow.forward(deep), wide], 1);
        self.leave.forward(self.up.forward(both, time))
    }
}

impl<B: Backend> Net<B> for Denoiser<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let images = batch.images?;
        let ([count, ..], device) = (images.dims(), images.device());
        let time = Tensor::<B, 1>::random([count], Distribution::Uniform(0.0, 1.0), &device);
        let noise = images.random_like(Distribution::Normal(0.0, 1.0));
        let angle = (time.clone() * std::f64::consts::FRAC_PI_2).reshape([count, 1, 1, 1]);
        let noisy = images * angle.clone().cos() + noise.clone() * angle.sin();
        Some((noise - self.noise(noisy, time)).powi_scalar(2).mean())
    }
}
