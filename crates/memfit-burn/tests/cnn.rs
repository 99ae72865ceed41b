//! A small network trains to the same bits with and without a budget.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, Optimizer as _};
use burn::tensor::activation::relu;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Int, Tensor};
use burn_flex::{Flex, FlexDevice};
use memfit_burn::{Budget, Memfit, Options, Report, attempt, enable_with, report, step};

#[derive(Module, Debug)]
struct Net<B: Backend> {
    convolutions: Vec<Conv2d<B>>,
    norms: Vec<BatchNorm<B>>,
    dropout: Dropout,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        let same = PaddingConfig2d::Same;
        let widths = [(3, 8), (8, 8), (8, 16), (16, 16), (16, 16)];
        let convolution =
            |(from, to)| Conv2dConfig::new([from, to], [3, 3]).with_padding(same.clone()).init(device);
        Net {
            convolutions: widths.map(convolution).into(),
            norms: widths.map(|(_, to)| BatchNormConfig::new(to).init(device)).into(),
            dropout: DropoutConfig::new(0.2).init(),
            head: LinearConfig::new(16, 4).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut x = x;
        for (convolution, norm) in self.convolutions.iter().zip(&self.norms) {
            let y = relu(norm.forward(convolution.forward(x.clone())));
            x = if y.dims() == x.dims() { x + self.dropout.forward(y) } else { y };
        }
        self.head.forward(x.mean_dim(3).mean_dim(2).flatten(1, 3))
    }
}

/// Every bit of every parameter and running statistic.
struct Bits(Vec<u32>);

impl<B: Backend> ModuleVisitor<B> for Bits {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let values: Vec<f32> = param.val().into_data().to_vec().unwrap();
        self.0.extend(values.iter().map(|value| value.to_bits()));
    }
}

/// Losses and parameters after `steps` steps.
fn train<B: AutodiffBackend>(device: &B::Device, steps: usize, end: impl Fn()) -> (Vec<u32>, Vec<u32>) {
    B::seed(device, 17);
    let mut net = Net::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let x = Tensor::<B, 4>::random([8, 3, 16, 16], Distribution::Default, device);
        let labels = Tensor::<B, 1, Int>::from_ints([0, 1, 2, 3, 0, 1, 2, 3], device);
        let loss = loss_of.forward(net.forward(x), labels);
        losses.push(loss.clone().into_scalar().to_bits_like());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(0.01, net, gradients);
        end();
    }
    let mut bits = Bits(Vec::new());
    net.visit(&mut bits);
    (losses, bits.0)
}

/// The bits of a scalar of any backend whose floats are `f32`.
trait ToBitsLike {
    fn to_bits_like(self) -> u32;
}

impl<E: burn::tensor::Element> ToBitsLike for E {
    fn to_bits_like(self) -> u32 {
        self.elem::<f32>().to_bits()
    }
}

fn within(options: Options, end: impl Fn()) -> ((Vec<u32>, Vec<u32>), Report) {
    enable_with(&FlexDevice, options).unwrap();
    let trained = attempt(&FlexDevice, || train::<Autodiff<Memfit<Flex>>>(&FlexDevice, 4, end)).unwrap();
    let report = report(&FlexDevice);
    assert_eq!(report.tensors, 0);
    assert_eq!(report.engine.used.0, 0, "nothing is held, so nothing is in use");
    (trained, report)
}

#[test]
fn a_budget_changes_no_bit() {
    let plain = train::<Autodiff<Flex>>(&FlexDevice, 4, || ());
    let (free, report) = within(Options::default(), || ());
    assert_eq!(plain, free);
    assert_eq!(report.engine.recomputes, 0);
    assert_eq!((report.host.unexpected, report.host.copies), (0, 0));
    let peak = report.engine.peak.0;
    for percent in [80, 60, 50, 40] {
        let budget = Budget::of(peak * percent / 100);
        for ends in [false, true] {
            let end = || {
                if ends {
                    step(&FlexDevice).unwrap()
                }
            };
            let (trained, report) = within(Options { budget, ..Options::default() }, end);
            assert_eq!(plain, trained, "{percent} % of {peak}");
            assert!(report.engine.peak <= budget.bytes());
            assert!(report.engine.recomputes > 0);
            println!("{percent} % {ends}: {report:?}");
        }
    }
}
