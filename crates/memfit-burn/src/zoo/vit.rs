//! A vision transformer of Burn's own layers, with dropout.
//!
//! Source: Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale" (ICLR 2021), with
//! patches of 4 × 4.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};

use super::blocks::cross_entropy;
use super::{Batch, Net};

const WIDTH: usize = 128;
const HEADS: usize = 4;
const LAYERS: usize = 6;
const PATCH: usize = 4;

/// The network.
#[derive(Module, Debug)]
pub(crate) struct Vit<B: Backend> {
    patches: Conv2d<B>,
    class: Param<Tensor<B, 3>>,
    places: Param<Tensor<B, 3>>,
    encoder: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Vit<B> {
    /// For images of `size`, which the size of a patch divides.
    pub(crate) fn new(size: usize, classes: usize, device: &B::Device) -> Vit<B> {
        let small = Distribution::Normal(0.0, 0.02);
        let tokens = (size / PATCH).pow(2) + 1;
        Vit {
            patches: Conv2dConfig::new([3, WIDTH], [PATCH, PATCH]).with_stride([PATCH, PATCH]).init(device),
            class: Param::from_tensor(Tensor::random([1, 1, WIDTH], small, device)),
            places: Param::from_tensor(Tensor::random([1, tokens, WIDTH], small, device)),
            encoder: TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, HEADS, LAYERS)
                .with_norm_first(true)
                .init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, classes).init(device),
        }
    }
}

impl<B: Backend> Net<B> for Vit<B> {
    fn loss(&self, batch: Batch<B>, _step: usize) -> Option<Tensor<B, 1>> {
        let patches = self.patches.forward(batch.images?).flatten::<3>(2, 3).swap_dims(1, 2);
        let [images, ..] = patches.dims();
        let class = self.class.val().expand([images, 1, WIDTH]);
        let tokens = Tensor::cat(vec![class, patches], 1) + self.places.val();
        let seen = self.encoder.forward(TransformerEncoderInput::new(tokens));
        let class = self.norm.forward(seen.narrow(1, 0, 1)).reshape([images, WIDTH]);
        Some(cross_entropy(self.head.forward(class), batch.targets))
    }
}
