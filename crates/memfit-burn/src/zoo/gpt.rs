//! A GPT with dropout.
//!
//! Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, activation};

use super::blocks::cross_entropy;
use super::{Batch, Net};

const WIDTH: usize = 128;
const HEADS: usize = 4;
const LAYERS: usize = 4;

#[derive(Module, Debug)]
struct Layer<B: Backend> {
    before_attention: LayerNorm<B>,
    query_key_value: Linear<B>,
    out: Linear<B>,
    before_wide: LayerNorm<B>,
    widen: Linear<B>,
    narrow: Linear<B>,
    dropout: Dropout,
}

impl<B: Backend> Layer<B> {
    fn new(device: &B::Device) -> Layer<B> {
        Layer {
            before_attention: LayerNormConfig::new(WIDTH).init(device),
            query_key_value: LinearConfig::new(WIDTH, 3 * WIDTH).init(device),
            out: LinearConfig::new(WIDTH, WIDTH).init(device),
            before_wide: LayerNormConfig::new(WIDTH).init(device),
            widen: LinearConfig::new(WIDTH, 4 * WIDTH).init(device),
            narrow: LinearConfig::new(4 * WIDTH, WIDTH).init(device),
            dropout: DropoutConfig::new(0.1).init(),
        }
    }

    /// `future`: −∞ where a word may not look.
    fn forward(&self, x: Tensor<B, 3>, future: Tensor<B, 4>) -> Tensor<B, 3> {
        let [batch, length, _] = x.dims();
        let all = self.query_key_value.forward(self.before_attention.forward(x.clone()));
        let part = |at: usize| {
            let part = all.clone().narrow(2, at * WIDTH, WIDTH);
            part.reshape([batch, length, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
        };
        let scale = ((WIDTH / HEADS) as f64).sqrt();
        let scores = part(0).matmul(part(1).transpose()).div_scalar(scale) + future;
        let weights = self.dropout.forward(activation::softmax(scores, 3));
        let seen = weights.matmul(part(2)).swap_dims(1, 2).reshape([batch, length, WIDTH]);
        let x = x + self.dropout.forward(self.out.forward(seen));
        let wide = activation::gelu(self.widen.forward(self.before_wide.forward(x.clone())));
        x + self.dropout.forward(self.narrow.forward(wide))
    }
}

/// A decoder.
#[derive(Module, Debug)]
pub(crate) struct Gpt<B: Backend> {
    words: Embedding<B>,
    places: Embedding<B>,
    layers: Vec<Layer<B>>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    /// Over `words` words, for sequences of `length`.
    pub(crate) fn new(words: usize, length: usize, device: &B::Device) -> Gpt<B> {
        Gpt {
            words: EmbeddingConfig::new(words, WIDTH).init(device),
            places: EmbeddingConfig::new(length, WIDTH).init(device),
            layers: (0..LAYERS).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, words).init(device),
        }
    }
}

impl<B: Backend> Net<B> for Gpt<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let tokens = batch.tokens?;
        let ([_, length], device) = (tokens.dims(), tokens.device());
        let last = i64::try_from(length).unwrap_or(0);
        let places = Tensor::<B, 1, Int>::arange(0..last, &device).unsqueeze();
        let allowed = Tensor::<B, 2>::ones([length, length], &device).tril(0);
        let future = (allowed - 1.0).mul_scalar(1e9).unsqueeze::<4>();
        let mut x = self.words.forward(tokens) + self.places.forward(places);
        for layer in &self.layers {
            x = layer.forward(x, future.clone());
        }
        let logits = self.head.forward(self.norm.forward(x));
        Some(cross_entropy(logits.flatten(0, 1), batch.targets))
    }
}
