//! A vision transformer: patches, a class token, attention, dropout; AdamW.

use burn::module::{Module, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Dropout, DropoutConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor};

use super::{cross_entropy, images};
use crate::Log;

const WIDTH: usize = 48;

#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: LayerNorm<B>,
    attention: MultiHeadAttention<B>,
    second: LayerNorm<B>,
    up: Linear<B>,
    down: Linear<B>,
    gelu: Gelu,
    dropout: Dropout,
}

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        Block {
            first: LayerNormConfig::new(WIDTH).init(device),
            attention: MultiHeadAttentionConfig::new(WIDTH, 4).with_dropout(0.1).init(device),
            second: LayerNormConfig::new(WIDTH).init(device),
            up: LinearConfig::new(WIDTH, 4 * WIDTH).init(device),
            down: LinearConfig::new(4 * WIDTH, WIDTH).init(device),
            gelu: Gelu::new(),
            dropout: DropoutConfig::new(0.1).init(),
        }
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let attended = self.attention.forward(MhaInput::self_attn(self.first.forward(x.clone()))).context;
        let x = x + self.dropout.forward(attended);
        let wide = self.gelu.forward(self.up.forward(self.second.forward(x.clone())));
        x + self.dropout.forward(self.down.forward(wide))
    }
}

#[derive(Module, Debug)]
pub struct Vit<B: Backend> {
    patches: Conv2d<B>,
    class: Param<Tensor<B, 3>>,
    places: Param<Tensor<B, 3>>,
    blocks: Vec<Block<B>>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Vit<B> {
    /// For images of `size`, which 4 divides.
    pub fn new(size: usize, depth: usize, classes: usize, device: &B::Device) -> Self {
        let small = Distribution::Normal(0.0, 0.02);
        let tokens = (size / 4) * (size / 4) + 1;
        Vit {
            patches: Conv2dConfig::new([3, WIDTH], [4, 4]).with_stride([4, 4]).init(device),
            class: Param::from_tensor(Tensor::random([1, 1, WIDTH], small, device)),
            places: Param::from_tensor(Tensor::random([1, tokens, WIDTH], small, device)),
            blocks: (0..depth).map(|_| Block::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, classes).init(device),
        }
    }

    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let batch = images.dims()[0];
        let patches = self.patches.forward(images).flatten::<3>(2, 3).swap_dims(1, 2);
        let class = self.class.val().expand([batch, 1, WIDTH]);
        let tokens = Tensor::cat(vec![class, patches], 1) + self.places.val();
        let seen = self.blocks.iter().fold(tokens, |tokens, block| block.forward(tokens));
        let class = self.norm.forward(seen.slice([0..batch, 0..1, 0..WIDTH])).reshape([batch, WIDTH]);
        self.head.forward(class)
    }
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 1);
    let optimizer = AdamWConfig::new().with_weight_decay(0.05).init();
    log.fit(Vit::<B>::new(24, 3, 5, device), optimizer, 1e-3, super::STEPS, |vit, step| {
        let (x, targets) = images::<B>(step as u64, [6, 3, 24], 5, device);
        cross_entropy(vit.forward(x), targets)
    });
}
