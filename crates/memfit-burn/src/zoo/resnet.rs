//! ResNets for small images.
//!
//! Source: He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), with the stem that is usual for images of
//! 32 pixels, and half or a quarter of the width.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};

use super::blocks::{ConvNorm, cross_entropy, pool};
use super::{Batch, Net};

/// Two convolutions, or three that narrow and widen, beside a shortcut.
#[derive(Module, Debug)]
pub(crate) struct Block<B: Backend> {
    path: Vec<ConvNorm<B>>,
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> Block<B> {
    fn new(from: usize, width: usize, stride: usize, bottleneck: bool, device: &B::Device) -> Block<B> {
        let to = if bottleneck { 4 * width } else { width };
        let conv = |channels, kernel, stride| ConvNorm::new(channels, kernel, stride, 1, device);
        let path = if bottleneck {
            vec![conv([from, width], 1, 1), conv([width, width], 3, stride), conv([width, to], 1, 1)]
        } else {
            vec![conv([from, width], 3, stride), conv([width, to], 3, 1)]
        };
        let shortcut = (stride != 1 || from != to).then(|| conv([from, to], 1, stride));
        Block { path, shortcut }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let short = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone()),
            None => x.clone(),
        };
        let mut y = x;
        for (at, conv) in self.path.iter().enumerate() {
            y = if at + 1 < self.path.len() { conv.relu(y) } else { conv.forward(y) };
        }
        activation::relu(y + short)
    }
}

/// ResNet-18 or ResNet-50.
#[derive(Module, Debug)]
pub(crate) struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

impl<B: Backend> ResNet<B> {
    /// With `depths` blocks in the four stages.
    pub(crate) fn new(depths: [usize; 4], bottleneck: bool, classes: usize, device: &B::Device) -> ResNet<B> {
        let mut blocks = Vec::new();
        let stem = if bottleneck { 16 } else { 32 };
        let mut from = stem;
        for (stage, depth) in depths.into_iter().enumerate() {
            let width = stem << stage;
            for at in 0..depth {
                let stride = if stage > 0 && at == 0 { 2 } else { 1 };
                blocks.push(Block::new(from, width, stride, bottleneck, device));
                from = if bottleneck { 4 * width } else { width };
            }
        }
        ResNet {
            stem: ConvNorm::new([3, stem], 3, 1, 1, device),
            blocks,
            head: LinearConfig::new(from, classes).init(device),
        }
    }
}

impl<B: Backend> Net<B> for ResNet<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let mut x = self.stem.relu(batch.images?);
        for block in &self.blocks {
            x = block.forward(x);
        }
        Some(cross_entropy(self.head.forward(pool(x)), batch.targets))
    }
}
