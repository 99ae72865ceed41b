//! A dense network of any widths, for tests of trainings.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};

#[derive(Module, Debug)]
pub(crate) struct Net<B: Backend> {
    pub(crate) layers: Vec<Linear<B>>,
}

impl<B: Backend> Net<B> {
    pub(crate) fn new(widths: &[usize], device: &B::Device) -> Net<B> {
        let layers = widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device));
        Net { layers: layers.collect() }
    }

    pub(crate) fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        through(&self.layers, x)
    }
}

/// What `layers`, a part of a network's, make of `x`.
pub(crate) fn through<B: Backend>(layers: &[Linear<B>], x: Tensor<B, 2>) -> Tensor<B, 2> {
    layers.iter().fold(x, |x, layer| activation::gelu(layer.forward(x)))
}
