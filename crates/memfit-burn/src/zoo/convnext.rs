//! A small ConvNeXt: depthwise convolutions of 7 × 7, layer norms over channels, wide pointwise layers, scaled residuals.
//!
//! Source: Liu et al., "A ConvNet for the 2020s" (CVPR 2022), with a third of the width of its smallest network, three stages of two
//! blocks, and patches of 2 × 2.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};

use super::blocks::{cross_entropy, pool};
use super::{Batch, Net};

const WIDTHS: [usize; 3] = [32, 64, 128];
const BLOCKS: usize = 2;

#[derive(Module, Debug)]
struct Block<B: Backend> {
    depthwise: Conv2d<B>,
    norm: LayerNorm<B>,
    widen: Linear<B>,
    narrow: Linear<B>,
    scale: Param<Tensor<B, 1>>,
}

impl<B: Backend> Block<B> {
    fn new(width: usize, device: &B::Device) -> Block<B> {
        Block {
            depthwise: Conv2dConfig::new([width, width], [7, 7])
                .with_padding(PaddingConfig2d::Same)
                .with_groups(width)
                .init(device),
            norm: LayerNormConfig::new(width).init(device),
            widen: LinearConfig::new(width, 4 * width).init(device),
            narrow: LinearConfig::new(4 * width, width).init(device),
            scale: Param::from_tensor(Tensor::full([width], 0.1, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let deep = self.norm.forward(self.depthwise.forward(x.clone()).permute([0, 2, 3, 1]));
        let deep = self.narrow.forward(activation::gelu(self.widen.forward(deep)));
        x + (deep * self.scale.val().unsqueeze()).permute([0, 3, 1, 2])
    }
}

/// Halves the image, and what it does there.
#[derive(Module, Debug)]
struct Stage<B: Backend> {
    shrink: Conv2d<B>,
    norm: LayerNorm<B>,
    blocks: Vec<Block<B>>,
}

impl<B: Backend> Stage<B> {
    fn new(from: usize, to: usize, device: &B::Device) -> Stage<B> {
        Stage {
            shrink: Conv2dConfig::new([from, to], [2, 2]).with_stride([2, 2]).init(device),
            norm: LayerNormConfig::new(to).init(device),
            blocks: (0..BLOCKS).map(|_| Block::new(to, device)).collect(),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = self.shrink.forward(x).permute([0, 2, 3, 1]);
        let x = self.norm.forward(x).permute([0, 3, 1, 2]);
        self.blocks.iter().fold(x, |x, block| block.forward(x))
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct ConvNext<B: Backend> {
    stages: Vec<Stage<B>>,
    head: Linear<B>,
}

impl<B: Backend> ConvNext<B> {
    /// For images with three channels.
    pub(crate) fn new(classes: usize, device: &B::Device) -> ConvNext<B> {
        let from = [3, WIDTHS[0], WIDTHS[1]];
        ConvNext {
            stages: from.into_iter().zip(WIDTHS).map(|(from, to)| Stage::new(from, to, device)).collect(),
            head: LinearConfig::new(WIDTHS[2], classes).init(device),
        }
    }
}

impl<B: Backend> Net<B> for ConvNext<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let x = self.stages.iter().fold(batch.images?, |x, stage| stage.forward(x));
        Some(cross_entropy(self.head.forward(pool(x)), batch.targets))
    }
}
