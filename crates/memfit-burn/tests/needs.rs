//! What a training needs is measured in one, and holds in the next: a floor that counts all that can't go, and budgets above it in which
//! the first step is no harder than the others.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod dense;

use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::module::AutodiffModule as _;
use burn::optim::{AdamWConfig, GradientsParams, Optimizer as _, SgdConfig};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use dense::Net;
use memfit_burn::{
    Budget, Memfit, Needs, Options, attempt, enable, enable_with, evict_all, is_resident, needs, report,
    reset_peak, step,
};

type B = Autodiff<Memfit<Flex>>;

/// There is one device: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

const WIDTHS: [usize; 4] = [12, 96, 96, 4];

/// Losses of five steps towards what a copy of the network says, which is renewed every other step.
fn follow<B: AutodiffBackend>(batch: usize, ended: &mut dyn FnMut()) -> Vec<f32> {
    let device = B::Device::default();
    B::seed(&device, 5);
    let mut net = Net::<B>::new(&WIDTHS, &device);
    let mut before = net.valid();
    let mut optimizer = AdamWConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..5 {
        let values = |from: usize| (0..batch * 12).map(move |at| ((at * 7 + from) as f32).sin());
        let draw = |from: usize| {
            let values: Vec<f32> = values(from).collect();
            Tensor::<B, 2>::from_data(TensorData::new(values, [batch, 12]), &device)
        };
        let target = Tensor::from_inner(before.forward(draw(step).inner()) * 0.9);
        let loss = (net.forward(draw(step + 100)) - target).powi_scalar(2).mean();
        losses.extend(loss.to_data().iter::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-3, net, gradients);
        if step % 2 == 1 {
            before = net.valid();
        }
        ended();
    }
    losses
}

#[test]
fn the_floor_counts_the_copy_of_a_network() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    for batch in [8, 32, 256] {
        let expected = follow::<Autodiff<Flex>>(batch, &mut || ());
        enable_with(&FlexDevice, Options { record: true, ..Options::default() }).unwrap();
        let mut most: Option<Needs> = None;
        let mut look = || {
            step(&FlexDevice).unwrap();
            most = needs(&FlexDevice).into_iter().chain(most).max_by_key(|needs| needs.floor);
        };
        assert_eq!(follow::<B>(batch, &mut look), expected, "{batch} without a limit");
        let needs = most.unwrap();
        // Of the network, the copy, and the state of the optimizer none can go; the quotient of its largest moments has two operands,
        // and is written over one of them.
        let parameters: usize = WIDTHS.windows(2).map(|pair| 4 * (pair[0] + 1) * pair[1]).sum();
        let largest = 4 * 96 * 96;
        println!("batches of {batch}: {needs:?}, parameters {parameters}");
        assert!(needs.floor.0 >= (4 * parameters + 2 * largest) as u64, "{batch}: {needs:?}");
        assert!(batch > 8 || needs.floor.0 < (4 * parameters + 3 * largest) as u64, "{batch}: {needs:?}");
        assert!(needs.floor <= needs.least && needs.least <= needs.peak, "{batch}: {needs:?}");
        let trained = |budget: Budget| {
            enable(&FlexDevice, budget).unwrap();
            let trained = attempt(&FlexDevice, || follow::<B>(batch, &mut || step(&FlexDevice).unwrap()));
            assert!(report(&FlexDevice).engine.peak <= budget.bytes());
            reset_peak(&FlexDevice);
            trained
        };
        let enough = needs.above_floor(0.6);
        assert_eq!(trained(enough).unwrap(), expected, "{batch} in {enough:?}");
        let fault = trained(Budget::of(needs.floor.0 - 1)).unwrap_err().to_string();
        assert!(fault.starts_with("out of memory"), "{batch}: {fault}");
    }
}

/// Noise is a random tensor that is read, and then subtracted from, as a parameter in the first step: but before the backward pass.
#[test]
fn noise_in_the_first_step_is_no_parameter() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let mut net = Net::<B>::new(&[16; 9], &FlexDevice);
    let noise = Tensor::<B, 2>::random([512, 16], Distribution::Default, &FlexDevice);
    let noisy = noise.clone() * 0.5 + 1.0;
    let loss = (noise - net.forward(noisy)).powi_scalar(2).mean();
    let before = report(&FlexDevice).engine.used;
    evict_all(&FlexDevice);
    let after = report(&FlexDevice).engine.used;
    assert!(after.0 * 4 < before.0, "{after} of {before} are left");
    // What the optimizer writes is one, and stays.
    let gradients = GradientsParams::from_grads(loss.backward(), &net);
    net = SgdConfig::new().init().step(1e-3, net, gradients);
    evict_all(&FlexDevice);
    for layer in &net.layers {
        assert!(is_resident(&layer.weight.val().inner()).unwrap());
    }
}
