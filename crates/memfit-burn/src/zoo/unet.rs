//! A U-Net that finds discs.
//!
//! Source: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation" (MICCAI 2015), with padding
//! and normalisation, a quarter of the width, and three levels.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::max_pool2d;

use super::blocks::{ConvNorm, cross_entropy};
use super::{Batch, Net};

const WIDTH: usize = 16;
const LEVELS: usize = 3;

#[derive(Module, Debug)]
struct Pair<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
}

impl<B: Backend> Pair<B> {
    fn new(from: usize, to: usize, device: &B::Device) -> Pair<B> {
        Pair {
            first: ConvNorm::new([from, to], 3, 1, 1, device),
            second: ConvNorm::new([to, to], 3, 1, 1, device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.second.relu(self.first.relu(x))
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct UNet<B: Backend> {
    down: Vec<Pair<B>>,
    bottom: Pair<B>,
    widen: Vec<ConvTranspose2d<B>>,
    up: Vec<Pair<B>>,
    head: Conv2d<B>,
}

impl<B: Backend> UNet<B> {
    /// With two classes.
    pub(crate) fn new(device: &B::Device) -> UNet<B> {
        let width = |level: usize| WIDTH << level;
        let widen = |level: usize| {
            ConvTranspose2dConfig::new([width(level + 1), width(level)], [2, 2])
                .with_stride([2, 2])
                .init(device)
        };
        let levels: Vec<usize> = (0..LEVELS).collect();
        let from = |level: usize| if level == 0 { 3 } else { width(level - 1) };
        UNet {
            down: levels.iter().map(|&level| Pair::new(from(level), width(level), device)).collect(),
            bottom: Pair::new(width(LEVELS - 1), width(LEVELS), device),
            widen: levels.iter().map(|&level| widen(level)).collect(),
            up: levels.iter().map(|&level| Pair::new(2 * width(level), width(level), device)).collect(),
            head: Conv2dConfig::new([WIDTH, 2], [1, 1]).init(device),
        }
    }
}

impl<B: Backend> Net<B> for UNet<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let mut x = batch.images?;
        let mut across = Vec::new();
        for pair in &self.down {
            x = pair.forward(x);
            across.push(x.clone());
            x = max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], false);
        }
        x = self.bottom.forward(x);
        for (level, beside) in across.into_iter().enumerate().rev() {
            let wide = self.widen[level].forward(x);
            x = self.up[level].forward(Tensor::cat(vec![beside, wide], 1));
        }
        let logits = self.head.forward(x).permute([0, 2, 3, 1]);
        let [batches, height, width, classes] = logits.dims();
        Some(cross_entropy(logits.reshape([batches * height * width, classes]), batch.targets))
    }
}
