//! Networks and their trainings.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Distribution, Int, Tensor, TensorData, activation};

use crate::Log;

pub mod adversarial;
pub mod convnext;
pub mod diffusion;
pub mod policy;
pub mod precision;
pub mod recurrent;
pub mod routine;
pub mod vae;
pub mod vit;

/// Steps of each training: planned mode records the second, plans it, and follows from the third.
pub const STEPS: usize = 5;

/// A training, by name.
pub type Training<B> = (&'static str, fn(&<B as burn::tensor::backend::BackendTypes>::Device, &mut Log<'_>));

/// All of them; those of a type of numbers that the backend has.
pub fn all<B: AutodiffBackend>(device: &B::Device) -> Vec<Training<B>> {
    let mut all: Vec<Training<B>> = vec![
        ("vit", vit::train::<B>),
        ("convnext", convnext::train::<B>),
        ("vae", vae::train::<B>),
        ("diffusion", diffusion::train::<B>),
        ("gru", recurrent::gru::<B>),
        ("lstm", recurrent::lstm::<B>),
        ("gan", adversarial::train::<B>),
        ("dqn", policy::train::<B>),
        ("routine", routine::train::<B>),
        ("batches", routine::batches::<B>),
        ("f64", precision::f64::<B>),
    ];
    if B::supports_dtype(device, DType::BF16) {
        all.push(("bf16", precision::bf16::<B>));
        all.push(("f16", precision::f16::<B>));
    }
    all
}

/// Numbers between 0 and 1 that are the same everywhere.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// Images, and a class of each that shows in them.
pub fn images<B: Backend>(
    seed: u64,
    [batch, channels, size]: [usize; 3],
    classes: usize,
    device: &B::Device,
) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
    let shape = [batch, channels, size, size];
    let class = |image: usize| (seed as usize + image) % classes;
    let pixels = channels * size * size;
    let mut values = numbers(seed + 1, batch * pixels);
    for (at, value) in values.iter_mut().enumerate() {
        *value = *value * 0.5 + if at % classes == class(at / pixels) { 0.5 } else { -0.5 };
    }
    let targets: Vec<i64> = (0..batch).map(|image| class(image) as i64).collect();
    (
        Tensor::from_data(TensorData::new(values, shape), device),
        Tensor::from_data(TensorData::new(targets, [batch]), device),
    )
}

pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    activation::log_softmax(logits, 1).gather(1, targets.unsqueeze_dim(1)).mean().neg()
}

pub fn normal<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}
