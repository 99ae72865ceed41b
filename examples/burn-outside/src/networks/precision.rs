//! Parameters of other types than f32.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Tensor, activation};

use super::normal;
use crate::Log;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

struct Cast(FloatDType);

impl<B: AutodiffBackend> ModuleMapper<B> for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| Tensor::from_inner(tensor.inner().cast(self.0)).require_grad())
    }
}

impl<B: AutodiffBackend> Mlp<B> {
    fn new(dtype: FloatDType, device: &B::Device) -> Self {
        Mlp { layers: (0..6).map(|_| LinearConfig::new(48, 48).init(device)).collect() }.map(&mut Cast(dtype))
    }
}

impl<B: Backend> Mlp<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.layers.iter().fold(x, |x, layer| {
            let y = layer.forward(x.clone());
            x + activation::gelu(y.clone()) * activation::softmax(y, 1)
        })
    }
}

fn loss<B: Backend>(mlp: &Mlp<B>, dtype: FloatDType, device: &B::Device) -> Tensor<B, 1> {
    let x = normal::<B, 2>([512, 48], device).cast(dtype);
    (mlp.forward(x.clone()) - x.cos()).powi_scalar(2).mean()
}

pub fn f64<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 9);
    let mlp = Mlp::<B>::new(FloatDType::F64, device);
    log.fit(mlp, AdamConfig::new().init(), 1e-3, super::STEPS, |mlp, _| loss(mlp, FloatDType::F64, device));
}

pub fn bf16<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 10);
    let mlp = Mlp::<B>::new(FloatDType::BF16, device);
    log.fit(mlp, SgdConfig::new().init(), 1e-2, super::STEPS, |mlp, _| loss(mlp, FloatDType::BF16, device));
}

pub fn f16<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 11);
    let mlp = Mlp::<B>::new(FloatDType::F16, device);
    log.fit(mlp, SgdConfig::new().init(), 1e-2, super::STEPS, |mlp, _| loss(mlp, FloatDType::F16, device));
}
