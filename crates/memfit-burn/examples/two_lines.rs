//! A training loop of your own within a budget: two lines of it are memfit's.
//!
//! `cargo run --release -p memfit-burn --example two_lines`

#![allow(clippy::print_stdout, reason = "an example talks")]

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Gelu, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, ElementConversion, Tensor};
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, enable, report};

type B = Autodiff<Memfit<Flex>>; // 1: was `Autodiff<Flex>`

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
    activation: Gelu,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Mlp<B> {
        let layer = |_| LinearConfig::new(256, 256).init(device);
        Mlp { layers: (0..12).map(layer).collect(), activation: Gelu::new() }
    }

    fn forward(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        for layer in &self.layers {
            x = x.clone() + self.activation.forward(layer.forward(x));
        }
        x
    }
}

/// Nothing in here knows memfit.
fn train<B: AutodiffBackend>(device: &B::Device) {
    B::seed(device, 1);
    let mut mlp = Mlp::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    for step in 1..=5 {
        let x = Tensor::<B, 2>::random([2048, 256], Distribution::Default, device);
        let error = mlp.forward(x.clone()) - x.sin();
        let loss = error.powi_scalar(2).mean();
        println!("step {step}: loss {:.5}", loss.clone().into_scalar().elem::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &mlp);
        mlp = optimizer.step(1e-3, mlp, gradients);
    }
}

fn main() -> Result<(), memfit_burn::Fault> {
    let device = FlexDevice;
    enable(&device, Budget::mib(64))?; // 2
    train::<B>(&device);
    let report = report(&device);
    println!(
        "at most {} in use; {} ops ran again, which took {:.0} % of the time of the others",
        report.engine.peak,
        report.engine.recomputes,
        report.engine.recompute_ns as f64 / report.engine.first_ns as f64 * 100.0
    );
    Ok(())
}

#[test]
fn it_stays_within_its_budget() -> Result<(), memfit_burn::Fault> {
    main()?;
    let report = report(&FlexDevice).engine;
    assert!(report.peak.0 <= 64 << 20 && report.recomputes > 0);
    Ok(())
}
