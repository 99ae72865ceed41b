//! A step of diffusion: a small U-Net that is told the time and finds the noise; Adam.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig, InterpolateMode};
use burn::nn::{GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::AdamConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, activation};

use super::{images, normal};
use crate::Log;

const TIME: usize = 32;

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
    fn new(from: usize, to: usize, device: &B::Device) -> Self {
        Block {
            first: same(from, to, device),
            norms: (0..2).map(|_| GroupNormConfig::new(4, to).init(device)).collect(),
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

#[derive(Module, Debug)]
pub struct Denoiser<B: Backend> {
    enter: Conv2d<B>,
    down: Block<B>,
    shrink: Conv2d<B>,
    bottom: Block<B>,
    grow: Interpolate2d,
    up: Block<B>,
    leave: Conv2d<B>,
}

impl<B: Backend> Denoiser<B> {
    pub fn new(device: &B::Device) -> Self {
        Denoiser {
            enter: same(3, 16, device),
            down: Block::new(16, 16, device),
            shrink: Conv2dConfig::new([16, 32], [2, 2]).with_stride([2, 2]).init(device),
            bottom: Block::new(32, 32, device),
            grow: Interpolate2dConfig::new()
                .with_scale_factor(Some([2.0, 2.0]))
                .with_mode(InterpolateMode::Nearest)
                .init(),
            up: Block::new(48, 16, device),
            leave: same(16, 3, device),
        }
    }

    /// The noise in `x` at times between 0 and 1.
    pub fn forward(&self, x: Tensor<B, 4>, time: Tensor<B, 1>) -> Tensor<B, 4> {
        let rates = Tensor::<B, 1>::from_data(
            (0..TIME / 2).map(|at| 100f32.powf(at as f32 * 2.0 / TIME as f32)).collect::<Vec<_>>().as_slice(),
            &x.device(),
        );
        let waves = time.unsqueeze_dim::<2>(1).matmul(rates.unsqueeze_dim(0));
        let time = Tensor::cat(vec![waves.clone().sin(), waves.cos()], 1);
        let wide = self.down.forward(self.enter.forward(x), time.clone());
        let deep = self.bottom.forward(self.shrink.forward(wide.clone()), time.clone());
        let both = Tensor::cat(vec![self.grow.forward(deep), wide], 1);
        self.leave.forward(self.up.forward(both, time))
    }

    pub fn loss(&self, images: Tensor<B, 4>) -> Tensor<B, 1> {
        let [batch, ..] = images.dims();
        let device = images.device();
        let time = Tensor::<B, 1>::random([batch], Distribution::Uniform(0.0, 1.0), &device);
        let noise = normal::<B, 4>(images.dims(), &device);
        let angle = (time.clone() * std::f64::consts::FRAC_PI_2).reshape([batch, 1, 1, 1]);
        let noisy = images * angle.clone().cos() + noise.clone() * angle.sin();
        (noise - self.forward(noisy, time)).powi_scalar(2).mean()
    }
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 4);
    log.fit(Denoiser::<B>::new(device), AdamConfig::new().init(), 1e-3, super::STEPS, |net, step| {
        net.loss(images::<B>(step as u64, [4, 3, 16], 4, device).0)
    });
}
