//! What a program does by hand: evict, bring back, pin, store elsewhere; another budget in mid-training; policies by options.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Distribution, Int, Tensor, module};
use memfit_burn::{
    Budget, Fault, Flex, FlexDevice, Memfit, Mode, Options, Sample, Sieve, Tier, attempt, disable, enable,
    enable_with, evict, is_resident, needs, pin, report, restore, set_budget, step, swap_in, swap_out, unpin,
};

type M = Memfit<Flex>;
type B = Autodiff<M>;

/// There is one device: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

const KIB: u64 = 1 << 10;

/// 16 KiB.
fn made(of: f64) -> Tensor<M, 2> {
    Tensor::full([64, 64], of, &FlexDevice)
}

fn used() -> u64 {
    report(&FlexDevice).engine.used.0
}

#[test]
fn a_tensor_goes_and_comes_back_by_hand() {
    let _alone = alone();
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let x = made(0.25);
    let y = x.clone().sin() + x.clone();
    let before = (used(), y.to_data());
    assert!(is_resident(&y).unwrap() && evict(&y).unwrap());
    assert_eq!((is_resident(&y).unwrap(), used()), (false, before.0 - 16 * KIB));
    assert_eq!(y.to_data(), before.1);
    // What it was computed from may be there again, too.
    assert!(is_resident(&y).unwrap() && used() >= before.0);
    evict(&y).unwrap();
    restore(&y).unwrap();
    assert!(is_resident(&y).unwrap());
    // What is pinned stays, until as many have given it up.
    pin(&y).unwrap();
    pin(&y).unwrap();
    assert!(!evict(&y).unwrap());
    unpin(&y).unwrap();
    assert!(!evict(&y).unwrap());
    unpin(&y).unwrap();
    assert!(evict(&y).unwrap());
    assert!(matches!(unpin(&y), Err(Fault::Unknown(_))));
    // Pinning brings back.
    pin(&y).unwrap();
    assert!(is_resident(&y).unwrap());
    unpin(&y).unwrap();
    // What was brought in can't be made again.
    let brought = Tensor::<M, 1>::from_floats([1.0, 2.0], &FlexDevice);
    assert!(!evict(&brought).unwrap());
    let (whole, truth) = (Tensor::<M, 1, Int>::arange(0..9, &FlexDevice) + 1, x.clone().greater_elem(0.0));
    assert!(evict(&whole).unwrap() && evict(&truth).unwrap());
    assert_eq!(whole.into_data().iter::<i64>().sum::<i64>(), 45);
    // By the tensor under one that has a gradient.
    let z = Tensor::<B, 2>::from_inner(x).require_grad().exp();
    assert!(evict(&z.clone().inner()).unwrap());
    assert!(!is_resident(&z.inner()).unwrap());
}

#[test]
fn a_tensor_is_stored_elsewhere_by_hand() {
    let _alone = alone();
    let options = Options { host: Some(Budget::of(20 * KIB)), ..Options::default() };
    enable_with(&FlexDevice, options).unwrap();
    let random = || Tensor::<M, 2>::random([64, 64], Distribution::Default, &FlexDevice) + 1.0;
    let (x, y) = (random(), random());
    let expected = (x.to_data(), y.to_data());
    let before = report(&FlexDevice).engine;
    assert!(swap_out(&x, Tier::Host).unwrap() && !is_resident(&x).unwrap());
    let stats = report(&FlexDevice).engine;
    assert_eq!((stats.used.0, stats.stored.0), (before.used.0 - 16 * KIB, before.stored.0 + 16 * KIB));
    // There is no more room there, and no disk.
    assert!(
        !swap_out(&y, Tier::Host).unwrap() && !swap_out(&y, Tier::Disk).unwrap() && is_resident(&y).unwrap()
    );
    swap_in(&x).unwrap();
    assert_eq!((x.into_data(), y.into_data()), expected);
    let stats = report(&FlexDevice).engine;
    assert_eq!((stats.loaded.0, stats.recomputes), (before.loaded.0 + 16 * KIB, before.recomputes));
}

/// Burn's default slices this gradient out of one for a kernel of 4 × 4.
#[test]
fn a_gradient_that_is_a_slice_is_stored_elsewhere_with_all_its_bytes() {
    let _alone = alone();
    let options = Options { host: Some(Budget::of(1 << 20)), ..Options::default() };
    let gradient = |swap: bool| {
        enable_with(&FlexDevice, options).unwrap();
        <B as Backend>::seed(&FlexDevice, 7);
        let random = |shape| Tensor::<B, 4>::random(shape, Distribution::Default, &FlexDevice);
        let (x, weight) = (random([2, 8, 12, 12]), random([16, 8, 3, 3]).require_grad());
        let strided = ConvOptions::new([2; 2], [1; 2], [1; 2], 1);
        let made = module::conv2d(x, weight.clone(), None, strided).powi_scalar(2).sum();
        let gradient = weight.grad(&made.backward()).unwrap();
        let before = report(&FlexDevice).engine;
        if swap {
            assert!(swap_out(&gradient, Tier::Host).unwrap() && !is_resident(&gradient).unwrap());
            let after = report(&FlexDevice).engine;
            let bytes = 16 * 8 * 4 * 4 * 4;
            assert_eq!((before.used.0 - after.used.0, after.stored.0 - before.stored.0), (bytes, bytes));
        }
        let read = gradient.into_data();
        let (after, host) = (report(&FlexDevice).engine, report(&FlexDevice).host);
        // The axes swapped and the slice are made again, of bytes that are there.
        let views = if swap { 2 } else { 0 };
        assert_eq!((after.recomputes - before.recomputes, host.missized, host.unexpected), (views, 0, 0));
        read
    };
    assert_eq!(gradient(true), gradient(false));
}

/// Gradients of steps of a chain whose activations take 16 KiB each.
fn train(steps: usize, mut between: impl FnMut(usize)) -> Vec<Vec<f32>> {
    <B as Backend>::seed(&FlexDevice, 3);
    let mut weight = Tensor::<B, 2>::random([64, 64], Distribution::Default, &FlexDevice).require_grad();
    let mut gradients = Vec::new();
    for at in 0..steps {
        let mut y = weight.clone();
        for _ in 0..20 {
            y = (y.clone().matmul(y.tanh()) * 0.1).sin();
        }
        let gradient = weight.grad(&y.sum().backward()).unwrap();
        gradients.push(gradient.to_data().to_vec().unwrap());
        weight = Tensor::from_inner(weight.inner() - gradient * 1e-3).require_grad();
        between(at);
    }
    gradients
}

#[test]
fn the_budget_changes_in_mid_training() {
    let _alone = alone();
    enable_with(&FlexDevice, Options { record: true, ..Options::default() }).unwrap();
    assert_eq!(needs(&FlexDevice), None);
    let expected = train(4, |_| step(&FlexDevice).unwrap());
    let needs = needs(&FlexDevice).unwrap();
    assert!(
        needs.floor.0 >= 32 * KIB && needs.floor <= needs.least && needs.least.0 < needs.peak.0 / 2,
        "{needs:?}"
    );
    assert!(needs.peak <= report(&FlexDevice).engine.peak);
    assert_eq!(needs.above_floor(0.0).bytes(), needs.floor);
    assert_eq!(needs.above_floor(1.0).bytes(), needs.peak);
    for mode in [Mode::Online, Mode::Planned] {
        let (large, small) = (needs.above_floor(0.8), needs.above_floor(0.4));
        let options = Options { budget: large, mode, strategy: "evict:planned", ..Options::default() };
        enable_with(&FlexDevice, options).unwrap();
        let mut peaks = Vec::new();
        let gradients = train(14, |at| {
            peaks.push(report(&FlexDevice).engine.peak);
            step(&FlexDevice).unwrap();
            match at {
                4 => set_budget(&FlexDevice, small).unwrap(),
                9 => disable(&FlexDevice).unwrap(),
                _ => {}
            }
            memfit_burn::reset_peak(&FlexDevice);
        });
        assert_eq!(gradients[..4], expected, "{mode:?}");
        assert!(peaks[..5].iter().all(|peak| *peak <= large.bytes()), "{mode:?}: {peaks:?}");
        assert!(peaks[1..5].iter().any(|peak| *peak > small.bytes()), "{mode:?}: {peaks:?}");
        assert!(peaks[5..10].iter().all(|peak| *peak <= small.bytes()), "{mode:?}: {peaks:?}");
        assert!(peaks[10..].iter().all(|peak| *peak > large.bytes()), "{mode:?}: {peaks:?}");
        let report = report(&FlexDevice);
        assert_eq!((report.budget, report.tensors), (None, 0));
        assert!(mode == Mode::Online || report.steps.planned >= 2, "{:?}", report.steps);
    }
    // What there is no room for leaves the budget as it was.
    enable(&FlexDevice, Budget::of(256 * KIB)).unwrap();
    let held = Tensor::<M, 2>::from_data(made(1.0).into_data(), &FlexDevice);
    assert!(matches!(set_budget(&FlexDevice, Budget::of(KIB)), Err(Fault::NoRoom(_))));
    assert_eq!(report(&FlexDevice).budget.unwrap().0, 256 * KIB);
    drop(held);
}

#[test]
fn policies_are_chosen_by_options() {
    let _alone = alone();
    enable_with(&FlexDevice, Options { record: true, ..Options::default() }).unwrap();
    let expected = train(3, |_| step(&FlexDevice).unwrap());
    let budget = needs(&FlexDevice).unwrap().above_floor(0.6);
    let mut evaluations = Vec::new();
    for (evictor, sieve) in [
        ("best", Sieve::default()),
        ("dtr", Sieve::default()),
        ("dtr", Sieve { sample: Sample::Sqrt, ..Sieve::default() }),
        ("dtr", Sieve { sample: Sample::Count(4.try_into().unwrap()), ..Sieve::default() }),
        ("lru", Sieve { share_of_mean: 0.01, ..Sieve::default() }),
        ("megengine", Sieve { minimum: KIB, ..Sieve::default() }),
    ] {
        let options = Options { budget, evictor, sieve, exponents: [1.0, 0.5, 2.0], ..Options::default() };
        enable_with(&FlexDevice, options).unwrap();
        let trained = attempt(&FlexDevice, || train(3, |_| ())).unwrap();
        assert_eq!(trained, expected, "{evictor} {sieve:?}");
        let stats = report(&FlexDevice).engine;
        assert!(stats.peak <= budget.bytes() && stats.recomputes > 0, "{evictor}");
        evaluations.push(stats.evaluations as f64 / stats.evictions as f64);
    }
    assert!(evaluations[2] * 2.0 < evaluations[1], "{evaluations:?}");
    assert!(evaluations[3] > 0.0 && evaluations[3] <= 4.0, "{evaluations:?}");
    let unknown = enable_with(&FlexDevice, Options { evictor: "oracle", ..Options::default() });
    assert!(unknown.unwrap_err().to_string().contains("there is no evictor `oracle`"));
}
