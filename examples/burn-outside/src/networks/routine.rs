//! What goes with training: gradients that are gathered over several batches and clipped, a rate that changes, an average of the parameters,
//! records that are saved and loaded midway, batches of other sizes.

use std::collections::VecDeque;

use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, activation};

use super::{cross_entropy, images};
use crate::Log;

#[derive(Module, Debug)]
pub struct Convolutions<B: Backend> {
    layers: Vec<Conv2d<B>>,
    norms: Vec<BatchNorm<B>>,
    head: Linear<B>,
}

impl<B: Backend> Convolutions<B> {
    pub fn new(classes: usize, device: &B::Device) -> Self {
        let layer = |(from, to): (usize, usize)| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_stride([if from == 16 && to == 32 { 2 } else { 1 }; 2])
                .init(device)
        };
        Convolutions {
            layers: [(3, 16), (16, 16), (16, 32), (32, 32)].map(layer).into(),
            norms: [16, 16, 32, 32].map(|width| BatchNormConfig::new(width).init(device)).into(),
            head: LinearConfig::new(32, classes).init(device),
        }
    }

    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let layers = self.layers.iter().zip(&self.norms);
        let x = layers.fold(x, |x, (layer, norm)| activation::relu(norm.forward(layer.forward(x))));
        self.head.forward(x.mean_dim(3).mean_dim(2).flatten(1, 3))
    }
}

/// The parameters of a module, flat.
struct Flat<B: Backend>(VecDeque<Tensor<B, 1>>);

impl<B: Backend> ModuleVisitor<B> for Flat<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push_back(param.val().flatten(0, D - 1));
    }
}

/// Takes a little of them.
struct Average<B: Backend>(Flat<B>);

impl<B: Backend> ModuleMapper<B> for Average<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(latest) = self.0.0.pop_front() else { return param };
        param.map(|average| {
            let latest = latest.reshape(average.shape());
            average * 0.9 + latest * 0.1
        })
    }
}

pub fn train<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 12);
    let mut net = Convolutions::<B>::new(5, device);
    let mut average = net.valid();
    let config = AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(0.5)));
    let mut optimizer = config.init();
    let mut gathered = GradientsAccumulator::new();
    let rates = CosineAnnealingLrSchedulerConfig::new(1e-2, super::STEPS).with_min_lr(1e-4);
    let mut rates = rates.init().expect("a rate between 0 and 1");
    for step in 0..super::STEPS {
        for part in 0..3 {
            let (x, targets) = images::<B>((3 * step + part) as u64, [4, 3, 16], 5, device);
            let loss = cross_entropy(net.forward(x), targets) / 3.0;
            log.note("loss", &loss);
            gathered.accumulate(&net, GradientsParams::from_grads(loss.backward(), &net));
        }
        let gradients = gathered.grads();
        log.gradients(&net, &gradients);
        net = optimizer.step(rates.step(), net, gradients);
        let mut latest = Flat(VecDeque::new());
        net.valid().visit(&mut latest);
        average = average.map(&mut Average(latest));
        if step == 2 {
            // Saved and loaded midway.
            let (of_net, of_optimizer) = (net.clone().into_record(), optimizer.to_record());
            net = Convolutions::<B>::new(5, device).load_record(of_net);
            optimizer = config.init().load_record(of_optimizer);
        }
        log.end_step();
    }
    log.parameters(&net);
    log.parameters(&average);
}

pub fn batches<B: AutodiffBackend>(device: &B::Device, log: &mut Log<'_>) {
    B::seed(device, 13);
    let sizes = [8, 8, 5, 8, 3, 8, 8];
    log.fit(Convolutions::<B>::new(5, device), SgdConfig::new().init(), 0.02, sizes.len(), |net, step| {
        let (x, targets) = images::<B>(step as u64, [sizes[step], 3, 16], 5, device);
        cross_entropy(net.forward(x), targets)
    });
}
