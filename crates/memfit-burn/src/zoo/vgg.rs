//! VGG-16 for small images.
//!
//! Source: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (ICLR 2015),
//! configuration D, with a quarter of the width, one layer behind the convolutions, and Kaiming's initial parameters, without which
//! so deep a net without normalisation learns nothing.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::module::max_pool2d;
use burn::tensor::{Tensor, activation};

use super::blocks::cross_entropy;
use super::{Batch, Net};

/// Width and depth of the stages, each of which a pool ends.
const STAGES: [(usize, usize); 5] = [(16, 2), (32, 2), (64, 3), (128, 3), (128, 3)];

/// The network.
#[derive(Module, Debug)]
pub(crate) struct Vgg<B: Backend> {
    stages: Vec<Vec<Conv2d<B>>>,
    head: Linear<B>,
}

impl<B: Backend> Vgg<B> {
    pub(crate) fn new(classes: usize, device: &B::Device) -> Vgg<B> {
        let mut from = 3;
        let mut conv = |to| {
            let channels = [std::mem::replace(&mut from, to), to];
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_initializer(Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: false })
                .init(device)
        };
        let stages = STAGES.iter().map(|&(width, depth)| (0..depth).map(|_| conv(width)).collect()).collect();
        Vgg { stages, head: LinearConfig::new(from, classes).init(device) }
    }
}

impl<B: Backend> Net<B> for Vgg<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let mut x = batch.images?;
        for stage in &self.stages {
            for conv in stage {
                x = activation::relu(conv.forward(x));
            }
            x = max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], false);
        }
        Some(cross_entropy(self.head.forward(x.flatten(1, 3)), batch.targets))
    }
}
