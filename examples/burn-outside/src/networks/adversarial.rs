//! Two networks that train against each other, each with an optimizer of its own.

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, activation};

use super::{images, normal};
use crate::Log;

const PIXELS: usize = 144;
const NOISE: usize = 16;

#[derive(Module, Debug)]
struct Generator<B: Backend> {
    layers: Vec<Linear<B>>,
    norms: Vec<BatchNorm<B>>,
}

impl<B: Backend> Generator<B> {
    fn new(device: &B::Device) -> Self {
        let widths = [(NOISE, 64), (64, 128), (128, PIXELS)];
        Generator {
            layers: widths.iter().map(|&(from, to)| LinearConfig::new(from, to).init(device)).collect(),
            norms: [64, 128].map(|width| BatchNormConfig::new(width).init(device)).into(),
        }
    }

    fn forward(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        for (layer, norm) in self.layers.iter().zip(&self.norms) {
            let y = layer.forward(x);
            let [batch, width] = y.dims();
            x = activation::relu(norm.forward(y.reshape([batch, width, 1])).reshape([batch, width]));
        }
        self.layers[2].forward(x).tanh()
    }
}

#[derive(Module, Debug)]
struct Critic<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Critic<B> {
    fn new(device: &B::Device) -> Self {
        let widths = [(PIXELS, 128), (128, 64), (64, 1)];
        Critic { layers: widths.iter().map(|&(from, to)| LinearConfig::new(from, to).init(device)).collect() }
    }

    /// Log of the odds that it is real.
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = activation::leaky_relu(self.layers[0].forward(x), 0.2);
        let x = activation::leaky_relu(self.layers[1].forward(x), 0.2);
        self.layers[2].forward(x)
    }
}

fn loss<B: Backend>(odds: Tensor<B, 2>, real: bool) -> Tensor<B, 1> {
    activation::log_sigmoid(if real { odds } else { odds.neg() }).mean().neg()
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 7);
    let (mut generator, mut critic) = (Generator::<B>::new(device), Critic::<B>::new(device));
    let (mut of_generator, mut of_critic) = (AdamConfig::new().init(), AdamConfig::new().init());
    for step in 0..super::STEPS {
        let real = images::<B>(step as u64, [32, 1, 12], 3, device).0.reshape([32, PIXELS]);
        let made = generator.forward(normal([32, NOISE], device));
        let of_both = loss(critic.forward(real), true) + loss(critic.forward(made.clone().detach()), false);
        log.note("critic", &of_both);
        let gradients = GradientsParams::from_grads(of_both.backward(), &critic);
        log.gradients(&critic, &gradients);
        critic = of_critic.step(1e-3, critic, gradients);
        let fooled = loss(critic.forward(made), true);
        log.note("generator", &fooled);
        let gradients = GradientsParams::from_grads(fooled.backward(), &generator);
        log.gradients(&generator, &gradients);
        generator = of_generator.step(1e-3, generator, gradients);
        log.end_step();
    }
    log.parameters(&generator);
    log.parameters(&critic);
}
