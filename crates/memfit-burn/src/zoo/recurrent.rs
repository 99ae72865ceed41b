//! Recurrent networks: an LSTM written out, and Burn's own GRU.
//!
//! Sources: Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997); Cho et al., "Learning Phrase Representations using RNN
//! Encoder–Decoder for Statistical Machine Translation" (EMNLP 2014).

use burn::module::Module;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};

use super::blocks::cross_entropy;
use super::{Batch, Net};

const WIDTH: usize = 128;

/// What an LSTM does to a word.
#[derive(Module, Debug)]
struct Cell<B: Backend> {
    gates: Linear<B>,
}

impl<B: Backend> Cell<B> {
    fn new(device: &B::Device) -> Cell<B> {
        Cell { gates: LinearConfig::new(2 * WIDTH, 4 * WIDTH).init(device) }
    }

    /// Over words of `[batch, length, WIDTH]`.
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, length, width] = x.dims();
        let device = x.device();
        let mut hidden = Tensor::<B, 2>::zeros([batch, width], &device);
        let mut memory = hidden.clone();
        let mut seen = Vec::with_capacity(length);
        for at in 0..length {
            let word = x.clone().narrow(1, at, 1).reshape([batch, width]);
            let gates = self.gates.forward(Tensor::cat(vec![word, hidden], 1));
            let gate = |at: usize| gates.clone().narrow(1, at * width, width);
            memory = memory * activation::sigmoid(gate(0)) + gate(1).tanh() * activation::sigmoid(gate(2));
            hidden = memory.clone().tanh() * activation::sigmoid(gate(3));
            seen.push(hidden.clone().unsqueeze_dim::<3>(1));
        }
        Tensor::cat(seen, 1)
    }
}

/// Two layers of LSTM.
#[derive(Module, Debug)]
pub(crate) struct Lstm<B: Backend> {
    words: Embedding<B>,
    layers: Vec<Cell<B>>,
    head: Linear<B>,
}

impl<B: Backend> Lstm<B> {
    /// Over `words` words.
    pub(crate) fn new(words: usize, device: &B::Device) -> Lstm<B> {
        Lstm {
            words: EmbeddingConfig::new(words, WIDTH).init(device),
            layers: (0..2).map(|_| Cell::new(device)).collect(),
            head: LinearConfig::new(WIDTH, words).init(device),
        }
    }
}

impl<B: Backend> Net<B> for Lstm<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let mut x = self.words.forward(batch.tokens?);
        for layer in &self.layers {
            x = layer.forward(x);
        }
        Some(cross_entropy(self.head.forward(x).flatten(0, 1), batch.targets))
    }
}

/// Two layers of Burn's GRU.
#[derive(Module, Debug)]
pub(crate) struct Gated<B: Backend> {
    words: Embedding<B>,
    layers: Vec<Gru<B>>,
    head: Linear<B>,
}

impl<B: Backend> Gated<B> {
    /// Over `words` words.
    pub(crate) fn new(words: usize, device: &B::Device) -> Gated<B> {
        Gated {
            words: EmbeddingConfig::new(words, WIDTH).init(device),
            layers: (0..2).map(|_| GruConfig::new(WIDTH, WIDTH, true).init(device)).collect(),
            head: LinearConfig::new(WIDTH, words).init(device),
        }
    }
}

impl<B: Backend> Net<B> for Gated<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let x = self.words.forward(batch.tokens?);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, None));
        Some(cross_entropy(self.head.forward(x).flatten(0, 1), batch.targets))
    }
}
