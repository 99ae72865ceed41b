//! Deep Q-learning: a second network that is a copy of the first as it was, choices that are read on the host, a memory of what was seen.

use burn::module::{AutodiffModule, Module};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData, activation};

use super::numbers;
use crate::Log;

const STATE: usize = 12;
const ACTIONS: usize = 4;
const BATCH: usize = 32;

#[derive(Module, Debug)]
struct Values<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Values<B> {
    fn new(device: &B::Device) -> Self {
        let widths = [(STATE, 96), (96, 96), (96, ACTIONS)];
        Values { layers: widths.iter().map(|&(from, to)| LinearConfig::new(from, to).init(device)).collect() }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = activation::relu(self.layers[0].forward(x));
        let x = activation::mish(self.layers[1].forward(x));
        self.layers[2].forward(x)
    }
}

/// What was seen: a state, what was done in it, what that gave, and the state after it.
type Memory = Vec<(Vec<f32>, i64, f32, Vec<f32>)>;

fn rows<B: Backend>(rows: impl Iterator<Item = Vec<f32>>, device: &B::Device) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new(rows.flatten().collect::<Vec<f32>>(), [BATCH, STATE]), device)
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 8);
    let mut values = Values::<B>::new(device);
    let mut before = values.valid();
    let mut optimizer = AdamWConfig::new().init();
    let mut memory = Memory::new();
    let mut state = numbers(1, STATE);
    for step in 0..super::STEPS {
        for moment in 0..BATCH {
            let seen =
                Tensor::<B::InnerBackend, 2>::from_data(TensorData::new(state.clone(), [1, STATE]), device);
            let best =
                values.valid().forward(seen).argmax(1).into_data().iter::<i64>().next().unwrap_or_default();
            let action = if moment % 4 == 0 { (moment / 4) as i64 % ACTIONS as i64 } else { best };
            let next = numbers(1 + (step * BATCH + moment) as u64, STATE);
            let gain = next[action as usize] - 0.5;
            memory.push((std::mem::replace(&mut state, next.clone()), action, gain, next));
        }
        let batch = || (0..BATCH).map(|at| &memory[(at * 7 + step) % memory.len()]);
        let next = rows::<B::InnerBackend>(batch().map(|seen| seen.3.clone()), device);
        let gains: Vec<f32> = batch().map(|seen| seen.2).collect();
        let gains = Tensor::<B::InnerBackend, 2>::from_data(TensorData::new(gains, [BATCH, 1]), device);
        let target = Tensor::<B, 2>::from_inner(before.forward(next).max_dim(1) * 0.9 + gains);
        let actions: Vec<i64> = batch().map(|seen| seen.1).collect();
        let actions = Tensor::<B, 2, Int>::from_data(TensorData::new(actions, [BATCH, 1]), device);
        let seen = rows::<B>(batch().map(|seen| seen.0.clone()), device);
        let error = values.forward(seen).gather(1, actions) - target;
        let small = error.clone().abs().lower_elem(0.5);
        let loss = (error.clone().abs() - 0.25).mask_where(small, error.powi_scalar(2)).mean();
        log.note("loss", &loss);
        let gradients = GradientsParams::from_grads(loss.backward(), &values);
        log.gradients(&values, &gradients);
        values = optimizer.step(1e-3, values, gradients);
        if step % 2 == 1 {
            before = values.valid();
        }
        log.end_step();
    }
    log.parameters(&values);
    log.parameters(&before);
}
