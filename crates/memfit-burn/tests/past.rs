//! Ordinary programs, most of which don't say where a step ends: the past goes nevertheless, so tables, memory and time stay what they are,
//! step after step.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod dense;

use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::module::{AutodiffModule as _, Module};
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, ElementConversion as _, Tensor};
use burn_flex::{Flex, FlexDevice};
use dense::{Net, through};
use memfit_burn::{Budget, Memfit, Report, attempt, enable, report, reset_peak, step};

type B = Autodiff<Memfit<Flex>>;

/// There is one device: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

fn batch<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    Tensor::random([128, 32], Distribution::Default, device)
}

/// Who has a clone of the network and of the optimizer's state while the optimizer writes.
#[derive(Clone, Copy, PartialEq)]
enum Clones {
    Nobody,
    /// The program, until the step ends.
    Program,
    /// A thread, as one that writes checkpoints: it drops them in the middle of the next forward pass.
    Thread,
}

/// Losses of `steps` steps; after each, `seen` is asked.
fn train<B: AutodiffBackend, O: Optimizer<Net<B>, B>>(
    mut optimizer: O,
    clones: Clones,
    frozen: usize,
    steps: usize,
    seen: &mut dyn FnMut(),
) -> Vec<f32> {
    let device = B::Device::default();
    B::seed(&device, 3);
    let mut net = Net::<B>::new(&[32; 7], &device);
    net.layers = net
        .layers
        .into_iter()
        .enumerate()
        .map(|(at, layer)| if at < frozen { layer.no_grad() } else { layer })
        .collect();
    let mut losses = Vec::new();
    let mut cloned = None;
    for _ in 0..steps {
        let target = batch::<B>(&device);
        let (first, last) = net.layers.split_at(3);
        let x = through(first, batch(&device));
        if let Some(cloned) = cloned.take() {
            std::thread::scope(|threads| threads.spawn(|| drop(cloned)).join().unwrap());
        }
        let loss = (target - through(last, x)).powi_scalar(2).mean();
        losses.push(loss.clone().into_scalar().elem());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        cloned = (clones != Clones::Nobody).then(|| (net.clone(), optimizer.to_record()));
        net = optimizer.step(1e-3, net, gradients);
        if clones == Clones::Program {
            cloned = None;
        }
        seen();
    }
    losses
}

const STEPS: usize = 60;

/// Trains without and within a budget, and holds the tenth step against the last.
fn stays_as_it_is<O: Optimizer<Net<Autodiff<Flex>>, Autodiff<Flex>>, P: Optimizer<Net<B>, B>>(
    name: &str,
    plain: impl Fn() -> O,
    within: impl Fn() -> P,
    clones: Clones,
    frozen: usize,
) {
    let expected = train::<Autodiff<Flex>, _>(plain(), clones, frozen, STEPS, &mut || ());
    let mut free = Vec::new();
    let run = |budget: Budget, reports: &mut Vec<Report>| {
        enable(&FlexDevice, budget).unwrap();
        let seen = &mut || {
            reports.push(report(&FlexDevice));
            reset_peak(&FlexDevice);
            // What is frozen stays, as parameters do before they are replaced: this program says where its steps end.
            if frozen > 0 {
                step(&FlexDevice).unwrap();
            }
        };
        attempt(&FlexDevice, || train::<B, _>(within(), clones, frozen, STEPS, seen)).unwrap()
    };
    assert_eq!(run(Budget::UNLIMITED, &mut free), expected, "{name}");
    let peak = |reports: &[Report], at: usize| reports[at].engine.peak.0;
    println!(
        "{name}: peak {} and {}, tables {} and {}",
        peak(&free, 9),
        peak(&free, STEPS - 1),
        free[9].tables,
        free[STEPS - 1].tables
    );
    assert!(peak(&free, STEPS - 1) <= peak(&free, 9) * 9 / 8, "{name}");
    assert!(free[STEPS - 1].tables <= 2 * free[9].tables, "{name}");
    // What a thread gives up in mid-step must leave activations evictable.
    let tenths = if clones == Clones::Thread { 7 } else { 8 };
    let (mut tight, budget) = (Vec::new(), Budget::of(peak(&free, 9) * tenths / 10));
    assert_eq!(run(budget, &mut tight), expected, "{name} within a budget");
    let again = |from: usize, to: usize| tight[to].engine.recomputes - tight[from].engine.recomputes;
    println!(
        "{name}: {} ops again in ten steps, {} in the last ten",
        again(5, 15),
        again(STEPS - 11, STEPS - 1)
    );
    assert!(tight.iter().all(|report| report.engine.peak.0 <= budget.bytes().0));
    assert!(again(STEPS - 11, STEPS - 1) <= 4 * again(5, 15) + 200, "{name}");
}

#[test]
fn training_stays_as_it_is() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    stays_as_it_is("SGD", || SgdConfig::new().init(), || SgdConfig::new().init(), Clones::Nobody, 0);
    stays_as_it_is("Adam", || AdamConfig::new().init(), || AdamConfig::new().init(), Clones::Nobody, 0);
    stays_as_it_is("AdamW", || AdamWConfig::new().init(), || AdamWConfig::new().init(), Clones::Nobody, 0);
    for (clones, name) in [(Clones::Program, "the program"), (Clones::Thread, "a thread")] {
        let name = |optimizer: &str| format!("{optimizer}, {name} has clones");
        stays_as_it_is(&name("SGD"), || SgdConfig::new().init(), || SgdConfig::new().init(), clones, 0);
        stays_as_it_is(&name("Adam"), || AdamConfig::new().init(), || AdamConfig::new().init(), clones, 0);
        stays_as_it_is(&name("AdamW"), || AdamWConfig::new().init(), || AdamWConfig::new().init(), clones, 0);
    }
    stays_as_it_is(
        "AdamW, half frozen",
        || AdamWConfig::new().init(),
        || AdamWConfig::new().init(),
        Clones::Nobody,
        3,
    );
}

#[test]
fn evaluation_keeps_no_batch() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let net = Net::<B>::new(&[32; 7], &FlexDevice).valid();
    let mut total = Tensor::<Memfit<Flex>, 1>::zeros([1], &FlexDevice);
    let mut classes = Vec::new();
    let mut seen = Vec::new();
    for _ in 0..200 {
        let x = batch::<Memfit<Flex>>(&FlexDevice).into_data();
        let x = Tensor::<Memfit<Flex>, 2>::from_data(x, &FlexDevice);
        total = total + Tensor::cat(vec![x.clone(), x.clone()], 0).sum();
        classes.push(net.forward(x).argmax(1));
        seen.push(report(&FlexDevice));
        reset_peak(&FlexDevice);
    }
    let (early, late) = (seen[49].engine.peak.0, seen[199].engine.peak.0);
    println!("evaluation: peak {early} and {late}, tables {} and {}", seen[49].tables, seen[199].tables);
    // What is held grows by 1 KiB of classes a batch.
    assert!(late <= early + 150 * 1024 + 64 * 1024, "{early} {late}");
    assert!(total.into_scalar() > 0.0);
}
