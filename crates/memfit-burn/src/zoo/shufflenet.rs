//! ShuffleNet v2 for small images, and a network that takes another path in each step.
//!
//! Sources: Ma et al., "ShuffleNet V2" (ECCV 2018); Guo et al., "Single Path One-Shot Neural Architecture Search" (ECCV
//! 2020): every block is one of four, with kernels of 3, 5 and 7 or three separable convolutions, drawn for each step.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::blocks::{ConvNorm, cross_entropy, pool};
use super::data::Noise;
use super::{Batch, Net};

const STEM: usize = 24;
const STAGES: [(usize, usize); 3] = [(116, 4), (232, 8), (464, 4)];
const LAST: usize = 512;

/// Half of the channels pass, the other half is convolved; at stride 2 both are.
#[derive(Module, Debug)]
pub(crate) struct Unit<B: Backend> {
    path: Vec<ConvNorm<B>>,
    /// After which of them what is negative is cut off.
    cuts: Vec<bool>,
    down: Vec<ConvNorm<B>>,
}

impl<B: Backend> Unit<B> {
    /// `depthwise`: the sizes of the depthwise kernels.
    fn new(from: usize, to: usize, stride: usize, depthwise: &[usize], device: &B::Device) -> Unit<B> {
        let half = to / 2;
        let input = if stride == 1 { from / 2 } else { from };
        let (mut path, mut cuts) = (Vec::new(), Vec::new());
        let mut width = input;
        if let [_] = depthwise {
            path.push(ConvNorm::new([width, half], 1, 1, 1, device));
            cuts.push(true);
            width = half;
        }
        for (at, &kernel) in depthwise.iter().enumerate() {
            let stride = if at == 0 { stride } else { 1 };
            path.push(ConvNorm::new([width, width], kernel, stride, width, device));
            cuts.push(false);
            path.push(ConvNorm::new([width, half], 1, 1, 1, device));
            cuts.push(true);
            width = half;
        }
        let mut down = Vec::new();
        if stride != 1 {
            down.push(ConvNorm::new([from, from], 3, stride, from, device));
            down.push(ConvNorm::new([from, half], 1, 1, 1, device));
        }
        Unit { path, cuts, down }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let (passing, mut y) = match self.down.as_slice() {
            [depthwise, pointwise] => (pointwise.relu(depthwise.forward(x.clone())), x),
            _ => {
                let half = x.dims()[1] / 2;
                (x.clone().narrow(1, 0, half), x.narrow(1, half, half))
            }
        };
        for (conv, &cut) in self.path.iter().zip(&self.cuts) {
            y = if cut { conv.relu(y) } else { conv.forward(y) };
        }
        let [batch, half, height, width] = y.dims();
        // The two halves, channel by channel in turn.
        let both = Tensor::cat(vec![passing, y], 1).reshape([batch, 2, half, height, width]);
        both.swap_dims(1, 2).reshape([batch, 2 * half, height, width])
    }
}

/// ShuffleNet v2, or with more than one choice for each unit a single-path one-shot network.
#[derive(Module, Debug)]
pub(crate) struct ShuffleNet<B: Backend> {
    stem: ConvNorm<B>,
    units: Vec<Vec<Unit<B>>>,
    last: ConvNorm<B>,
    head: Linear<B>,
    seed: u64,
}

impl<B: Backend> ShuffleNet<B> {
    /// `choices`: the depthwise kernels of each choice.
    pub(crate) fn new(choices: &[&[usize]], classes: usize, seed: u64, device: &B::Device) -> ShuffleNet<B> {
        let mut units = Vec::new();
        let mut from = STEM;
        for (to, depth) in STAGES {
            for at in 0..depth {
                let stride = if at == 0 { 2 } else { 1 };
                let unit = |kernels: &&[usize]| Unit::new(from, to, stride, kernels, device);
                units.push(choices.iter().map(unit).collect());
                from = to;
            }
        }
        ShuffleNet {
            stem: ConvNorm::new([3, STEM], 3, 1, 1, device),
            units,
            last: ConvNorm::new([from, LAST], 1, 1, 1, device),
            head: LinearConfig::new(LAST, classes).init(device),
            seed,
        }
    }
}

impl<B: Backend> Net<B> for ShuffleNet<B> {
    fn loss(&self, batch: Batch<B>, step: usize) -> Option<Tensor<B, 1>> {
        let mut draws = Noise::new(self.seed ^ (step as u64) << 20);
        let mut x = self.stem.relu(batch.images?);
        for choices in &self.units {
            x = choices[draws.below(choices.len())].forward(x);
        }
        Some(cross_entropy(self.head.forward(pool(self.last.relu(x))), batch.targets))
    }
}
