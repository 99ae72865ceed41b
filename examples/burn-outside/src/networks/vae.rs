//! A variational autoencoder: draws random numbers in the middle of the forward pass; Adam.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, activation};

use super::images;
use crate::Log;

const HIDDEN: usize = 8;

#[derive(Module, Debug)]
pub struct Vae<B: Backend> {
    down: Vec<Conv2d<B>>,
    mean: Linear<B>,
    spread: Linear<B>,
    widen: Linear<B>,
    up: Vec<ConvTranspose2d<B>>,
}

impl<B: Backend> Vae<B> {
    /// For images of 24 × 24.
    pub fn new(device: &B::Device) -> Self {
        let down = |from, to| Conv2dConfig::new([from, to], [4, 4]).with_stride([4, 4]).init(device);
        let up = |from, to| ConvTranspose2dConfig::new([from, to], [4, 4]).with_stride([4, 4]).init(device);
        let narrow = |_| Conv2dConfig::new([16, 16], [1, 1]).init(device);
        Vae {
            down: [down(1, 16)].into_iter().chain((0..2).map(narrow)).collect(),
            mean: LinearConfig::new(16 * 36, HIDDEN).init(device),
            spread: LinearConfig::new(16 * 36, HIDDEN).init(device),
            widen: LinearConfig::new(HIDDEN, 16 * 36).init(device),
            up: vec![up(16, 1)],
        }
    }

    /// What is lost in between, and how far the code is from a normal distribution.
    pub fn loss(&self, images: Tensor<B, 4>) -> Tensor<B, 1> {
        let batch = images.dims()[0];
        let x = self.down.iter().fold(images.clone(), |x, layer| activation::relu(layer.forward(x)));
        let x = x.reshape([batch, 16 * 36]);
        let (mean, spread) = (self.mean.forward(x.clone()), self.spread.forward(x));
        let noise = mean.random_like(Distribution::Normal(0.0, 1.0));
        let code = mean.clone() + (spread.clone() * 0.5).exp() * noise;
        let x = activation::silu(self.widen.forward(code)).reshape([batch, 16, 6, 6]);
        let made = self.up.iter().fold(x, |x, layer| activation::sigmoid(layer.forward(x)));
        let lost = (made - images).powi_scalar(2).sum() / batch as f64;
        let apart = (mean.powi_scalar(2) + spread.clone().exp() - spread - 1.0).sum() * (0.5 / batch as f64);
        lost + apart
    }
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 3);
    log.fit(Vae::<B>::new(device), AdamConfig::new().init(), 1e-3, super::STEPS, |vae, step| {
        vae.loss(images::<B>(step as u64, [16, 1, 24], 3, device).0)
    });
}
