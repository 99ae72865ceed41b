//! A variational autoencoder: random numbers are drawn in the middle of the forward pass.
//!
//! Source: Kingma and Welling, "Auto-Encoding Variational Bayes" (ICLR 2014), with convolutions.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor, activation};

use super::{Batch, Net};

const WIDTHS: [usize; 3] = [32, 64, 128];
const CODE: usize = 32;

/// The network.
#[derive(Module, Debug)]
pub(crate) struct Vae<B: Backend> {
    down: Vec<Conv2d<B>>,
    mean: Linear<B>,
    spread: Linear<B>,
    widen: Linear<B>,
    up: Vec<ConvTranspose2d<B>>,
    side: usize,
}

impl<B: Backend> Vae<B> {
    /// For images of `size` with three channels; 8 divides it.
    pub(crate) fn new(size: usize, device: &B::Device) -> Vae<B> {
        let [a, b, c] = WIDTHS;
        let side = size / 8;
        let inner = c * side * side;
        let pad = PaddingConfig2d::Explicit(1, 1, 1, 1);
        let down = |[from, to]: [usize; 2]| {
            Conv2dConfig::new([from, to], [4, 4]).with_stride([2, 2]).with_padding(pad.clone()).init(device)
        };
        let up = |channels: [usize; 2]| {
            ConvTranspose2dConfig::new(channels, [4, 4]).with_stride([2, 2]).with_padding([1, 1]).init(device)
        };
        Vae {
            down: [[3, a], [a, b], [b, c]].map(down).into(),
            mean: LinearConfig::new(inner, CODE).init(device),
            spread: LinearConfig::new(inner, CODE).init(device),
            widen: LinearConfig::new(CODE, inner).init(device),
            up: [[c, b], [b, a], [a, 3]].map(up).into(),
            side,
        }
    }
}

impl<B: Backend> Net<B> for Vae<B> {
    /// What is lost in between, and how far the code is from a normal distribution.
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let images = batch.images?;
        let [count, ..] = images.dims();
        let x = self.down.iter().fold(images.clone(), |x, layer| activation::relu(layer.forward(x)));
        let x: Tensor<B, 2> = x.flatten(1, 3);
        let (mean, spread) = (self.mean.forward(x.clone()), self.spread.forward(x));
        let noise = mean.random_like(Distribution::Normal(0.0, 1.0));
        let code = mean.clone() + (spread.clone() * 0.5).exp() * noise;
        let wide = self.widen.forward(code).reshape([count, WIDTHS[2], self.side, self.side]);
        let made = self.up.iter().fold(wide, |x, layer| layer.forward(activation::relu(x)));
        let lost = (made - images).powi_scalar(2).mean();
        let apart = (mean.powi_scalar(2) + spread.clone().exp() - spread - 1.0).mean();
        Some(lost + apart * 0.05)
    }
}
