//! How far gradients are from exact ones, where codecs that lose something hold what they are computed from.
//!
//! What a step had as parameters is put into a network on the backend alone, which is given the same batch and draws the same
//! numbers. Beside that error stands what another batch makes of the gradient, as every training with minibatches bears it.

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

use super::{Net, Noise, Training, Work, values};

/// Of the tensors of a network, in its order.
type Numbers = Vec<Vec<f32>>;

/// What a step was made from, and what it made.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) step: usize,
    pub(crate) parameters: Numbers,
    pub(crate) gradients: Numbers,
}

/// The gradients of a step, all parameters together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apart {
    /// Number of the step, from 0.
    pub step: usize,
    /// Norm of what they differ by from the exact ones, as a share of the norm of those.
    pub error: f64,
    /// The same of the exact ones of another batch, for the same parameters.
    pub noise: f64,
}

struct Collected(Numbers);

impl<B: Backend> ModuleVisitor<B> for Collected {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(values(param.val()));
    }
}

struct Gradients<'a>(Numbers, &'a GradientsParams);

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(self.1.get::<B::InnerBackend, D>(param.id).map(values).unwrap_or_default());
    }
}

/// Puts numbers into a network.
struct Put<'a>(std::slice::Iter<'a, Vec<f32>>);

impl<B: Backend> ModuleMapper<B> for Put<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(numbers) = self.0.next() else { return param };
        param.map(|tensor| {
            let data = TensorData::new(numbers.clone(), tensor.shape());
            let (device, needed) = (tensor.device(), tensor.is_require_grad());
            Tensor::from_data(data, &device).set_require_grad(needed)
        })
    }
}

/// All parameters and running statistics of `net`.
pub(crate) fn parameters<B: Backend>(net: &impl Net<B>) -> Numbers {
    let mut collected = Collected(Vec::new());
    net.visit(&mut collected);
    collected.0
}

/// The gradients of the same; nothing for what has none.
pub(crate) fn gradients<B: AutodiffBackend>(net: &impl Net<B>, of: &GradientsParams) -> Numbers {
    let mut collected = Gradients(Vec::new(), of);
    net.visit(&mut collected);
    collected.0
}

/// What the numbers of step `step` are drawn from where it's sampled.
pub(crate) fn seed(training: &Training, step: usize) -> u64 {
    training.seed ^ (step as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Computes the gradients of a step, from a batch of a seed.
struct Exactly<'a, B: Backend> {
    training: &'a Training,
    sample: &'a Sample,
    batch: u64,
    device: &'a B::Device,
}

impl<B: AutodiffBackend> Work<B> for Exactly<'_, B> {
    type Out = Option<Numbers>;

    fn on<N: Net<B> + AutodiffModule<B>>(self, net: N, _: impl Optimizer<N, B>, _: f64) -> Option<Numbers> {
        let Exactly { training, sample, batch, device } = self;
        let net = net.map(&mut Put(sample.parameters.iter()));
        let data = training.data(&mut Noise::new(batch), device);
        B::seed(device, seed(training, sample.step));
        let loss = net.loss(data, sample.step)?;
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        Some(self::gradients(&net, &gradients))
    }
}

impl Sample {
    /// How far its gradients are from those on `B`.
    pub(crate) fn apart<B: AutodiffBackend>(&self, training: &Training, device: &B::Device) -> Option<Apart> {
        let of = |batch| training.with(device, Exactly::<B> { training, sample: self, batch, device });
        let (exact, other) = (of(training.seed)?, of(training.seed.wrapping_add(1))?);
        Some(Apart { step: self.step, error: apart(&exact, &self.gradients), noise: apart(&exact, &other) })
    }
}

/// Norm of what `other` differs by from `exact`, as a share of the norm of that.
fn apart(exact: &Numbers, other: &Numbers) -> f64 {
    let (mut off, mut norm) = (0.0, 0.0);
    for (&one, &two) in exact.iter().flatten().zip(other.iter().flatten()) {
        let (one, two) = (f64::from(one), f64::from(two));
        off += (one - two).powi(2);
        norm += one.powi(2);
    }
    if off == 0.0 { 0.0 } else { (off / norm).sqrt() }
}
