//! Small real networks on data that is made up: what `memfit run` trains, and what the tests hold against each other.

mod blocks;
mod convnext;
mod data;
mod diffusion;
mod exact;
mod gpt;
mod recurrent;
mod resnet;
mod runs;
mod shufflenet;
mod unet;
mod vae;
mod vgg;
mod vit;

use std::time::{Duration, Instant};

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion as _, Tensor};

use convnext::ConvNext;
pub use data::{Batch, Noise};
use diffusion::Denoiser;
pub use exact::Apart;
use exact::Sample;
use gpt::Gpt;
use recurrent::{Gated, Lstm};
use resnet::ResNet;
pub use runs::{
    Where, balanced, balanced_peak, clear, draws_as_alone, gradients, lossy, plain, saved, take_lost, within,
};
use shufflenet::ShuffleNet;
use unet::UNet;
use vae::Vae;
use vgg::Vgg;
use vit::Vit;

const CLASSES: usize = 10;
const IMAGE: usize = 32;
const WORDS: usize = 64;
const LENGTH: usize = 64;

/// A network that can be trained.
pub trait Net<B: Backend>: Module<B> {
    /// The loss on `batch` in step `step`; `None` if the batch is of another kind.
    fn loss(&self, batch: Batch<B>, step: usize) -> Option<Tensor<B, 1>>;
}

/// The networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// ResNet-18.
    ResNet18,
    /// ResNet-50.
    ResNet50,
    /// ShuffleNet v2.
    ShuffleNet,
    /// VGG-16 without normalisation.
    Vgg16,
    /// A U-Net.
    UNet,
    /// A GPT with dropout.
    Gpt,
    /// Two layers of LSTM.
    Lstm,
    /// A single-path one-shot network, which takes another path in each step.
    Spos,
    /// A vision transformer with dropout, of Burn's own layers.
    Vit,
    /// A small ConvNeXt.
    ConvNext,
    /// A variational autoencoder, which draws random numbers in its forward pass.
    Vae,
    /// A step of diffusion.
    Diffusion,
    /// Two layers of Burn's GRU.
    Gru,
}

impl Model {
    /// All, with their names and default batches.
    pub const ALL: [(Model, &str, usize); 13] = [
        (Model::ResNet18, "resnet18", 16),
        (Model::ResNet50, "resnet50", 16),
        (Model::ShuffleNet, "shufflenet", 16),
        (Model::Vgg16, "vgg16", 16),
        (Model::UNet, "unet", 8),
        (Model::Gpt, "gpt", 8),
        (Model::Lstm, "lstm", 16),
        (Model::Spos, "spos", 16),
        (Model::Vit, "vit", 16),
        (Model::ConvNext, "convnext", 16),
        (Model::Vae, "vae", 16),
        (Model::Diffusion, "diffusion", 8),
        (Model::Gru, "gru", 16),
    ];

    /// The network called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Model> {
        Model::ALL.iter().find(|(_, known, _)| *known == name).map(|&(model, _, _)| model)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Model::ALL.iter().find(|(model, _, _)| *model == self).map_or("", |&(_, name, _)| name)
    }

    /// Examples to a step, unless somebody says otherwise.
    #[must_use]
    pub fn batch(self) -> usize {
        Model::ALL.iter().find(|(model, _, _)| *model == self).map_or(8, |&(_, _, batch)| batch)
    }
}

/// A training to be done.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// The network.
    pub model: Model,
    /// Examples to a step.
    pub batch: usize,
    /// How many steps.
    pub steps: usize,
    /// Of parameters, data, masks and paths.
    pub seed: u64,
    /// Whether all gradients are compared as well, and not only what becomes of them.
    pub gradients: bool,
}

/// One step, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Number of the step, from 0.
    pub step: usize,
    /// Its loss.
    pub loss: f32,
    /// How long it took.
    pub time: Duration,
}

/// What training has come to, bit by bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trained {
    /// The bits of the losses.
    pub losses: Vec<u32>,
    /// A digest of all gradients of each step, if they were asked for.
    pub gradients: Vec<u64>,
    /// A digest of all parameters and running statistics at the end.
    pub parameters: u64,
}

/// Folds the bits of `values` into `digest` (FNV-1a over words).
fn fold(digest: &mut u64, values: &[f32]) {
    for value in values {
        *digest = (*digest ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01B3);
    }
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().to_vec().unwrap_or_default()
}

struct Parameters(u64);

impl<B: Backend> ModuleVisitor<B> for Parameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        fold(&mut self.0, &values(param.val()));
    }
}

struct Gradients<'a>(u64, &'a GradientsParams);

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.1.get::<B::InnerBackend, D>(param.id) {
            fold(&mut self.0, &values(gradient));
        }
    }
}

impl Training {
    /// As `memfit run` has it by default.
    #[must_use]
    pub fn new(model: Model) -> Training {
        Training { model, batch: model.batch(), steps: 5, seed: 0, gradients: false }
    }

    fn data<B: Backend>(&self, noise: &mut Noise, device: &B::Device) -> Batch<B> {
        match self.model {
            Model::UNet => data::discs(noise, self.batch, IMAGE, device),
            Model::Gpt | Model::Lstm | Model::Gru => data::counting(noise, self.batch, LENGTH, WORDS, device),
            _ => data::waves(noise, self.batch, IMAGE, CLASSES, device),
        }
    }

    /// Trains on `device`; `seen` is told after each step.
    pub fn run<B: AutodiffBackend>(&self, device: &B::Device, seen: &mut dyn FnMut(Seen)) -> Trained {
        self.with(device, Train::<B> { training: *self, device, seen, sampled: None })
    }

    /// Has `work` done on the network, with its optimizer and rate of learning, on `device`.
    fn with<B: AutodiffBackend, W: Work<B>>(&self, device: &B::Device, work: W) -> W::Out {
        B::seed(device, self.seed);
        let slow = || {
            let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
            SgdConfig::new().with_momentum(Some(momentum))
        };
        match self.model {
            Model::ResNet18 => {
                work.on(ResNet::<B>::new([2, 2, 2, 2], false, CLASSES, device), slow().init(), 0.02)
            }
            Model::ResNet50 => {
                work.on(ResNet::<B>::new([3, 4, 6, 3], true, CLASSES, device), slow().init(), 0.005)
            }
            Model::ShuffleNet => {
                work.on(ShuffleNet::<B>::new(&[&[3]], CLASSES, self.seed, device), slow().init(), 0.02)
            }
            Model::Spos => {
                let choices: [&[usize]; 4] = [&[3], &[5], &[7], &[3, 3, 3]];
                work.on(ShuffleNet::<B>::new(&choices, CLASSES, self.seed, device), slow().init(), 0.02)
            }
            Model::Vgg16 => work.on(Vgg::<B>::new(CLASSES, device), slow().init(), 0.02),
            Model::UNet => work.on(UNet::<B>::new(device), slow().init(), 0.05),
            Model::Gpt => work.on(Gpt::<B>::new(WORDS, LENGTH, device), AdamConfig::new().init(), 3e-3),
            Model::Lstm => work.on(Lstm::<B>::new(WORDS, device), AdamConfig::new().init(), 1e-2),
            Model::Gru => work.on(Gated::<B>::new(WORDS, device), AdamConfig::new().init(), 1e-2),
            Model::Vit => work.on(Vit::<B>::new(IMAGE, CLASSES, device), AdamWConfig::new().init(), 1e-3),
            Model::ConvNext => work.on(ConvNext::<B>::new(CLASSES, device), AdamWConfig::new().init(), 1e-3),
            Model::Vae => work.on(Vae::<B>::new(IMAGE, device), AdamConfig::new().init(), 1e-3),
            Model::Diffusion => work.on(Denoiser::<B>::new(device), AdamConfig::new().init(), 1e-3),
        }
    }
}

/// What is done on a network, whichever it is.
trait Work<B: AutodiffBackend> {
    /// What comes of it.
    type Out;
    /// Does it.
    fn on<N: Net<B> + AutodiffModule<B>>(
        self,
        net: N,
        optimizer: impl Optimizer<N, B>,
        rate: f64,
    ) -> Self::Out;
}

/// Trains it.
struct Train<'a, B: AutodiffBackend> {
    training: Training,
    device: &'a B::Device,
    seen: &'a mut dyn FnMut(Seen),
    /// Is given parameters and gradients of each step; then the numbers of a step are drawn from a seed of its own.
    sampled: Option<&'a mut dyn FnMut(Sample)>,
}

impl<B: AutodiffBackend> Work<B> for Train<'_, B> {
    type Out = Trained;

    fn on<N: Net<B> + AutodiffModule<B>>(
        mut self,
        mut net: N,
        mut optimizer: impl Optimizer<N, B>,
        rate: f64,
    ) -> Trained {
        let (training, device) = (self.training, self.device);
        let mut trained = Trained::default();
        for step in 0..training.steps {
            let started = Instant::now();
            // The same batch in every step: so few steps can't learn more than that by heart.
            let mut noise = Noise::new(training.seed);
            let parameters = self.sampled.is_some().then(|| {
                // Those that are made when they are first read draw numbers, too.
                let parameters = exact::parameters(&net);
                B::seed(device, exact::seed(&training, step));
                parameters
            });
            let Some(loss) = net.loss(training.data(&mut noise, device), step) else { break };
            let value: f32 = loss.clone().into_scalar().elem();
            let gradients = GradientsParams::from_grads(loss.backward(), &net);
            if let (Some(parameters), Some(sampled)) = (parameters, &mut self.sampled) {
                sampled(Sample { step, parameters, gradients: exact::gradients(&net, &gradients) });
            }
            if training.gradients {
                let mut digest = Gradients(0xCBF2_9CE4_8422_2325, &gradients);
                net.visit(&mut digest);
                trained.gradients.push(digest.0);
            }
            net = optimizer.step(rate, net, gradients);
            trained.losses.push(value.to_bits());
            (self.seen)(Seen { step, loss: value, time: started.elapsed() });
        }
        let mut digest = Parameters(0xCBF2_9CE4_8422_2325);
        net.visit(&mut digest);
        trained.parameters = digest.0;
        trained
    }
}
