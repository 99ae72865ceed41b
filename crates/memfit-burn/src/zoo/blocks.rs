//! What several networks are built of.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, activation};

/// A convolution without bias, and its normalisation.
#[derive(Module, Debug)]
pub(crate) struct ConvNorm<B: Backend> {
    convolution: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> ConvNorm<B> {
    /// A square kernel of an odd size, padded so that the image keeps its size at stride 1.
    pub(crate) fn new(
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        groups: usize,
        device: &B::Device,
    ) -> ConvNorm<B> {
        let pad = kernel / 2;
        ConvNorm {
            convolution: Conv2dConfig::new(channels, [kernel, kernel])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
                .with_groups(groups)
                .with_bias(false)
                .init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
        }
    }

    /// Convolved and normalised.
    pub(crate) fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.convolution.forward(x))
    }

    /// The same, and what is negative cut off.
    pub(crate) fn relu(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        activation::relu(self.forward(x))
    }
}

/// The mean of each channel.
pub(crate) fn pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    x.mean_dim(3).mean_dim(2).flatten(1, 3)
}

/// The mean of −log of the probability of the targets.
pub(crate) fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let of_targets = activation::log_softmax(logits, 1).gather(1, targets.unsqueeze_dim(1));
    of_targets.mean().neg()
}
