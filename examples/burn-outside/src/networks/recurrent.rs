//! Recurrent networks that continue sequences; Adam.

use burn::module::Module;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::AdamConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};

use super::cross_entropy;
use crate::Log;

const WORDS: usize = 20;
const WIDTH: usize = 32;
const LENGTH: usize = 12;

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one in a network")]
enum Cell<B: Backend> {
    Gru(Gru<B>),
    Lstm(Lstm<B>),
}

#[derive(Module, Debug)]
pub struct Recurrent<B: Backend> {
    embedding: Embedding<B>,
    cell: Cell<B>,
    head: Linear<B>,
}

impl<B: Backend> Recurrent<B> {
    fn new(cell: Cell<B>, device: &B::Device) -> Self {
        Recurrent {
            embedding: EmbeddingConfig::new(WORDS, WIDTH).init(device),
            cell,
            head: LinearConfig::new(WIDTH, WORDS).init(device),
        }
    }

    fn forward(&self, words: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let [batch, length] = words.dims();
        let x = self.embedding.forward(words);
        let seen = match &self.cell {
            Cell::Gru(gru) => gru.forward(x, None),
            Cell::Lstm(lstm) => lstm.forward(x, None).0,
        };
        self.head.forward(seen.reshape([batch * length, WIDTH]))
    }
}

/// Sequences that count, each from another word in other strides.
fn counting<B: Backend>(step: usize, batch: usize, device: &B::Device) -> [Tensor<B, 2, Int>; 2] {
    let word = |at: usize| ((at / LENGTH) * 3 + step + (at % LENGTH) * (1 + at / LENGTH % 4)) % WORDS;
    let take = |from: usize| {
        let words: Vec<i64> = (0..batch * LENGTH).map(|at| word(at + from) as i64).collect();
        Tensor::from_data(TensorData::new(words, [batch, LENGTH]), device)
    };
    [take(0), take(1)]
}

fn train<B: AutodiffBackend>(cell: Cell<B>, device: &B::Device, log: &mut Log<'_>) {
    log.fit(Recurrent::new(cell, device), AdamConfig::new().init(), 1e-2, super::STEPS, |net, step| {
        let [words, next] = counting::<B>(step, 64, device);
        cross_entropy(net.forward(words), next.flatten(0, 1))
    });
}

pub fn gru<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 5);
    train::<B>(Cell::Gru(GruConfig::new(WIDTH, WIDTH, true).init(device)), device, log);
}

pub fn lstm<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 6);
    train::<B>(Cell::Lstm(LstmConfig::new(WIDTH, WIDTH, true).init(device)), device, log);
}
