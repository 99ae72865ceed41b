//! As ConvNeXt: depthwise convolutions of 7×7, layer norms over channels, wide pointwise layers, scaled residuals; SGD with momentum.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, activation};

use super::{cross_entropy, images};
use crate::Log;

fn over_channels<B: Backend>(norm: &LayerNorm<B>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    norm.forward(x.permute([0, 2, 3, 1])).permute([0, 3, 1, 2])
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    depthwise: Conv2d<B>,
    norm: LayerNorm<B>,
    up: Linear<B>,
    down: Linear<B>,
    scale: Param<Tensor<B, 1>>,
}

impl<B: Backend> Block<B> {
    fn new(width: usize, device: &B::Device) -> Self {
        Block {
            depthwise: Conv2dConfig::new([width, width], [7, 7])
                .with_padding(PaddingConfig2d::Same)
                .with_groups(width)
                .init(device),
            norm: LayerNormConfig::new(width).init(device),
            up: LinearConfig::new(width, 4 * width).init(device),
            down: LinearConfig::new(4 * width, width).init(device),
            scale: Param::from_tensor(Tensor::full([width], 0.1, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let deep = self.norm.forward(self.depthwise.forward(x.clone()).permute([0, 2, 3, 1]));
        let deep = self.down.forward(activation::gelu(self.up.forward(deep)));
        x + (deep * self.scale.val().unsqueeze()).permute([0, 3, 1, 2])
    }
}

#[derive(Module, Debug)]
pub struct ConvNext<B: Backend> {
    stem: Conv2d<B>,
    norms: Vec<LayerNorm<B>>,
    first: Vec<Block<B>>,
    shrink: Conv2d<B>,
    second: Vec<Block<B>>,
    head: Linear<B>,
}

impl<B: Backend> ConvNext<B> {
    pub fn new(classes: usize, device: &B::Device) -> Self {
        ConvNext {
            stem: Conv2dConfig::new([3, 16], [2, 2]).with_stride([2, 2]).init(device),
            norms: [16, 16, 32].map(|width| LayerNormConfig::new(width).init(device)).into(),
            first: (0..2).map(|_| Block::new(16, device)).collect(),
            shrink: Conv2dConfig::new([16, 32], [2, 2]).with_stride([2, 2]).init(device),
            second: (0..2).map(|_| Block::new(32, device)).collect(),
            head: LinearConfig::new(32, classes).init(device),
        }
    }

    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = over_channels(&self.norms[0], self.stem.forward(images));
        let x = self.first.iter().fold(x, |x, block| block.forward(x));
        let x = self.shrink.forward(over_channels(&self.norms[1], x));
        let x = self.second.iter().fold(x, |x, block| block.forward(x));
        let x = over_channels(&self.norms[2], x).mean_dim(3).mean_dim(2).flatten(1, 3);
        self.head.forward(x)
    }
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 2);
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: true };
    let optimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
    log.fit(ConvNext::<B>::new(4, device), optimizer, 0.02, super::STEPS, |net, step| {
        let (x, targets) = images::<B>(step as u64, [6, 3, 20], 4, device);
        cross_entropy(net.forward(x), targets)
    });
}
