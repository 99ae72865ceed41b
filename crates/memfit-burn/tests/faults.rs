//! What is refused, and what is left of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Int, Tensor};
use memfit::formats::plan_json;
use memfit::ir::Step;
use memfit::profile::Saved;
use memfit_burn::{
    Budget, Fault, Flex, FlexDevice, Memfit, Meter, Mode, Options, attempt, enable, enable_with, last_plan,
    load_plan, report, save_plan, step, tried,
};

type B = Autodiff<Memfit<Flex>>;

/// There is one device: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A chain whose activations take 16 KiB each; the bits of its gradient.
fn chain<B: AutodiffBackend>(device: &B::Device) -> Vec<f32> {
    B::seed(device, 3);
    let x = Tensor::<B, 2>::random([64, 64], Distribution::Default, device).require_grad();
    let mut y = x.clone();
    for _ in 0..20 {
        y = (y.clone().matmul(y.tanh()) * 0.1).sin();
    }
    x.grad(&y.sum().backward()).unwrap().into_data().to_vec().unwrap()
}

#[test]
fn a_budget_that_is_too_small_is_a_fault_and_not_the_end() {
    let _alone = alone();
    enable(&FlexDevice, Budget::of(40 << 10)).unwrap();
    // What is caught is not printed.
    static PRINTED: AtomicBool = AtomicBool::new(false);
    std::panic::set_hook(Box::new(|_| PRINTED.store(true, Ordering::Relaxed)));
    let fault = attempt(&FlexDevice, || chain::<B>(&FlexDevice)).unwrap_err();
    let _ = std::panic::take_hook();
    let Fault::NoRoom(room) = &fault else { panic!("{fault}") };
    assert!(room.enough.0 > 40 << 10 && !PRINTED.load(Ordering::Relaxed), "{fault}");
    assert!(fault.to_string().contains(" -> f32[64, 64]` takes `16 KiB`"), "{fault}");
    // A tensor may be left in a graph that Burn has not cleared yet.
    assert!(report(&FlexDevice).engine.peak.0 <= 40 << 10 && report(&FlexDevice).tensors <= 1);
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    assert_eq!(chain::<B>(&FlexDevice), chain::<Autodiff<Flex>>(&FlexDevice));
}

#[test]
fn burns_own_checkpointing_works_above() {
    let _alone = alone();
    enable(&FlexDevice, Budget::of(250 << 10)).unwrap();
    let within = chain::<Autodiff<Memfit<Flex>, BalancedCheckpointing>>(&FlexDevice);
    assert_eq!(within, chain::<Autodiff<Flex>>(&FlexDevice));
    assert!(report(&FlexDevice).engine.peak.0 <= 250 << 10);
    assert!(report(&FlexDevice).engine.recomputes > 0);
}

#[test]
fn tensors_go_from_thread_to_thread() {
    let _alone = alone();
    enable(&FlexDevice, Budget::of(3 << 20)).unwrap();
    let weight = Tensor::<B, 2>::ones([64, 64], &FlexDevice).require_grad();
    let message = enable(&FlexDevice, Budget::UNLIMITED).unwrap_err().to_string();
    assert!(message.contains("1 tensors are on the device already"), "{message}");
    // Two threads make batches, a third trains, a fourth reads the losses.
    let (batches, made) = std::sync::mpsc::sync_channel(4);
    let makers: Vec<_> = (0..2)
        .map(|_| {
            let batches = batches.clone();
            std::thread::spawn(move || {
                for at in 0..20 {
                    let batch = Tensor::<B, 2>::full([64, 64], 0.01, &FlexDevice) + 1.0;
                    batches.send(batch * f64::from(at % 2)).unwrap();
                }
            })
        })
        .collect();
    drop(batches);
    let (losses, seen) = std::sync::mpsc::channel();
    let trainer = std::thread::spawn(move || {
        let mut weight = weight;
        for batch in made {
            let loss = batch.matmul(weight.clone()).tanh().matmul(weight.clone()).sum();
            let gradient = weight.grad(&loss.backward()).unwrap();
            weight = Tensor::from_inner(weight.inner() - gradient * 1e-6).require_grad();
            losses.send(loss).unwrap();
        }
        weight
    });
    let reader =
        std::thread::spawn(move || seen.iter().map(|loss| f64::from(loss.into_scalar())).collect::<Vec<_>>());
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    let weight = trainer.join().unwrap();
    let losses = reader.join().unwrap();
    assert_eq!(losses.len(), 40);
    assert!(losses.iter().all(|&loss| loss == 0.0 || loss > 1000.0), "{losses:?}");
    assert!((weight * 0.0).into_data().to_vec::<f32>().unwrap().iter().all(|&zero| zero == 0.0));
    assert_eq!(report(&FlexDevice).tensors, 0);
    assert!(report(&FlexDevice).engine.peak.0 <= 3 << 20);
}

/// Three threads hold a tensor, and each uses it for the last time at the same moment: two in an op, one by giving it up.
#[test]
fn the_last_use_may_be_on_several_threads() {
    const ROUNDS: usize = 3000;
    let _alone = alone();
    enable(&FlexDevice, Budget::of(1 << 20)).unwrap();
    let worker = |add: f32| {
        let (sender, tensors) = std::sync::mpsc::sync_channel::<Tensor<Memfit<Flex>, 1>>(1);
        let thread = std::thread::spawn(move || {
            let sums = tensors.iter().map(|tensor| match add {
                0.0 => 4.0,
                _ => (tensor + add).tanh().sum().into_scalar(),
            });
            sums.collect::<Vec<f32>>()
        });
        (sender, thread)
    };
    let workers = [0.0, 20.0, 30.0].map(worker);
    for _ in 0..ROUNDS {
        let tensor = Tensor::<Memfit<Flex>, 1>::ones([4], &FlexDevice);
        workers.iter().for_each(|(sender, _)| sender.send(tensor.clone()).unwrap());
    }
    for (sender, thread) in workers {
        drop(sender);
        assert_eq!(thread.join().unwrap(), [4.0; ROUNDS]);
    }
    assert_eq!(report(&FlexDevice).tensors, 0);
}

#[test]
fn two_threads_train_beside_each_other() {
    let _alone = alone();
    // A chain whose numbers are not random: there is one stream for all threads.
    fn own<B: AutodiffBackend>(scale: f64) -> Vec<f32> {
        let x = Tensor::<B, 2>::full([64, 64], 0.3, &B::Device::default()).cumsum(0).require_grad();
        let mut y = x.clone() * scale;
        for _ in 0..20 {
            y = (y.clone().matmul(y.tanh()) * 0.01).sin();
        }
        x.grad(&y.sum().backward()).unwrap().into_data().to_vec().unwrap()
    }
    let expected = [0.5, 2.0].map(own::<Autodiff<Flex>>);
    enable(&FlexDevice, Budget::of(900 << 10)).unwrap();
    let threads = [0.5, 2.0]
        .map(|scale| std::thread::spawn(move || (0..5).map(|_| own::<B>(scale)).collect::<Vec<_>>()));
    for (thread, expected) in threads.into_iter().zip(expected) {
        assert!(thread.join().unwrap().iter().all(|found| *found == expected));
    }
    assert_eq!(report(&FlexDevice).tensors, 0);
    assert!(report(&FlexDevice).engine.peak.0 <= 900 << 10);
}

#[test]
fn views_share_what_they_show() {
    let _alone = alone();
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let tensor = Tensor::<Memfit<Flex>, 2>::random([32, 32], Distribution::Default, &FlexDevice);
    let before = report(&FlexDevice).engine.used;
    let views = (
        tensor.clone().transpose(),
        tensor.clone().reshape([16, 64]),
        tensor.clone().slice([3..7, 2..9]),
        tensor.clone().slice([0..4, 0..32]).flip([0]),
        tensor.clone().unsqueeze::<3>().expand([4, 32, 32]),
    );
    assert_eq!(report(&FlexDevice).engine.used, before, "no view has bytes of its own");
    // What is not contiguous is copied to be seen in another shape.
    let copied = tensor.clone().transpose().reshape([1024]);
    assert_eq!(report(&FlexDevice).engine.used.0, 2 * before.0);
    drop(views);
    drop(copied);
    assert_eq!(report(&FlexDevice).engine.used, before);
    assert_eq!((report(&FlexDevice).host.unexpected, report(&FlexDevice).host.copies), (0, 0));
}

#[test]
fn what_ops_take_for_themselves_may_count() {
    let _alone = alone();
    // A device on which every op takes 64 KiB, its outputs included.
    let meter = Some(Meter { current: || 0, mark: || 64 << 10 });
    let free = Options { meter, scratch: true, ..Options::default() };
    let peak = |options: Options| {
        enable_with(&FlexDevice, options).unwrap();
        let bits = chain::<B>(&FlexDevice);
        (bits, report(&FlexDevice).engine)
    };
    let (bits, alone) = peak(Options { scratch: false, ..free });
    let (_, unknown) = peak(free);
    let (_, known) = peak(free);
    assert!(unknown.peak >= alone.peak && known.peak.0 >= alone.peak.0 + (48 << 10), "{alone:?} {known:?}");
    // It is known still after a training that did not count it.
    peak(Options { scratch: false, ..free });
    let (within, counted) = peak(Options { budget: Budget::of(known.peak.0 / 2), ..free });
    assert_eq!(within, bits);
    assert!(counted.peak.0 <= known.peak.0 / 2 && counted.recomputes > 0);
    let small = Options { budget: Budget::of(90 << 10), ..free };
    enable_with(&FlexDevice, small).unwrap();
    let fault = attempt(&FlexDevice, || chain::<B>(&FlexDevice)).unwrap_err();
    assert!(matches!(fault, Fault::NoRoom(_)), "{fault}");
    enable_with(&FlexDevice, Options { scratch: false, ..small }).unwrap();
    assert_eq!(chain::<B>(&FlexDevice), bits);
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
}

/// So little that everything of [`repeat`] is computed several times.
const TIGHT: u64 = 6 << 14;

/// Trains `steps` steps of a chain of 80 ops in planned mode; the gradients of the last.
fn repeat(steps: usize) -> Vec<f32> {
    <B as Backend>::seed(&FlexDevice, 5);
    let x = Tensor::<B, 2>::random([64, 64], Distribution::Default, &FlexDevice);
    let mut gradient = Vec::new();
    for _ in 0..steps {
        let x = x.clone().require_grad();
        let mut y = x.clone();
        for _ in 0..80 {
            y = y.tanh();
        }
        gradient = x.grad(&y.sum().backward()).unwrap().into_data().to_vec().unwrap();
        drop(x);
        step(&FlexDevice).unwrap();
    }
    gradient
}

fn planned() -> Options {
    Options { budget: Budget::of(TIGHT), mode: Mode::Planned, ..Options::default() }
}

#[test]
fn what_has_fitted_once_is_planned_however_slow() {
    let _alone = alone();
    enable_with(&FlexDevice, planned()).unwrap();
    repeat(6);
    let steps = report(&FlexDevice).steps;
    assert_eq!((steps.steps, steps.planned, steps.guided), (6, 1, 3));
    assert!(report(&FlexDevice).engine.peak.0 <= TIGHT);
}

#[test]
fn the_judge_passes_a_plan_before_it_is_followed() {
    let _alone = alone();
    enable_with(&FlexDevice, planned()).unwrap();
    assert!(last_plan(&FlexDevice).is_none() && save_plan(&FlexDevice).unwrap().is_none());
    assert_eq!(report(&FlexDevice).steps.verified, 0);
    let gradient = repeat(4);
    let steps = report(&FlexDevice).steps;
    assert!(steps.guided > 0);
    // The judge's word on the plan that was followed, on the program as it is.
    let plan = last_plan(&FlexDevice).unwrap();
    assert_eq!((steps.planned, steps.verified, steps.arena), (1, 1, plan.verified().peak().0));
    assert_eq!(plan.verified().plan().graph, plan.graph().digest());
    assert_eq!(steps.planned_recompute_ns, plan.repeated_ns());
    assert!(tried(&FlexDevice).iter().any(|tried| tried.recompute_ns == Some(plan.repeated_ns())));
    let saved = save_plan(&FlexDevice).unwrap().unwrap();

    // Another run takes it over, and is guided by it to the same bits.
    enable_with(&FlexDevice, planned()).unwrap();
    load_plan(&FlexDevice, &saved).unwrap();
    assert_eq!(report(&FlexDevice).steps.verified, 1);
    assert_eq!(repeat(4), gradient);
    let steps = report(&FlexDevice).steps;
    assert!(steps.guided > 0 && steps.planned == 0, "{steps:?}");
}

#[test]
fn a_plan_that_was_changed_by_hand_is_refused() {
    let _alone = alone();
    enable_with(&FlexDevice, planned()).unwrap();
    repeat(4);
    let saved = save_plan(&FlexDevice).unwrap().unwrap();
    let file = plan_json::read(&saved.plan).unwrap();
    let is_run = |step: &Step| matches!(step, Step::Compute(_));
    let run = file.plan.program.steps.iter().rposition(is_run).unwrap();
    let is_free = |step: &Step| matches!(step, Step::Free(_));
    let free = file.plan.program.steps.iter().rposition(is_free).unwrap();
    // An op that does not run; bytes that go before they are there.
    for (from, to) in [(run, None), (free, Some(0))] {
        let mut changed = file.clone();
        let step = changed.plan.program.steps.remove(from);
        if let Some(to) = to {
            changed.plan.program.steps.insert(to, step);
        }
        let changed = Saved { profile: saved.profile.clone(), plan: plan_json::write(&changed) };
        enable_with(&FlexDevice, planned()).unwrap();
        let failure = load_plan(&FlexDevice, &changed).unwrap_err();
        assert_eq!(failure.exit_code(), 6, "{failure}");
        assert!(last_plan(&FlexDevice).is_none() && report(&FlexDevice).steps.verified == 0);
    }
    let cut = Saved { plan: saved.plan[..saved.plan.len() - 20].to_vec(), profile: saved.profile.clone() };
    assert_eq!(load_plan(&FlexDevice, &cut).unwrap_err().exit_code(), 3);
    assert!(load_plan(&FlexDevice, &saved).is_ok());
}

/// A kernel that panics ends the op, and tensors that go afterwards do not end the process.
#[test]
fn an_op_that_the_backend_can_not_run_is_a_fault() {
    let _alone = alone();
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let mask = Tensor::<Memfit<Flex>, 2>::ones([4, 4], &FlexDevice).greater_elem(0.5);
    let indices = Tensor::<Memfit<Flex>, 1, Int>::from_ints([9], &FlexDevice);
    let fault = attempt(&FlexDevice, || mask.clone().select(0, indices.clone())).unwrap_err();
    assert!(fault.to_string().contains("the backend can't run"), "{fault}");
    let after = attempt(&FlexDevice, || mask.clone().bool_not()).unwrap_err();
    assert!(after.to_string().contains("`enable` begins anew"), "{after}");
    drop((mask, indices));
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    assert_eq!(chain::<B>(&FlexDevice), chain::<Autodiff<Flex>>(&FlexDevice));
}

/// A chain of ops on `weight`, of which that of number `fails` is one that the backend can't run.
fn chain_that_fails(weight: &Tensor<B, 2>, fails: usize) -> Vec<f32> {
    let mut y = weight.clone();
    for at in 0..20 {
        if at == fails {
            let mask = y.clone().greater_elem(0.5);
            let indices = Tensor::<B, 1, Int>::from_ints([1 << 20], &FlexDevice);
            y = mask.select(0, indices).float();
        }
        y = (y.clone().matmul(y.tanh()) * 0.1).sin();
    }
    y.into_data().to_vec().unwrap()
}

#[test]
fn wherever_a_step_fails_what_is_held_is_right_or_refused() {
    let _alone = alone();
    let weight = || Tensor::<B, 2>::full([64, 64], 0.3, &FlexDevice).cumsum(0);
    let bits = |tensor: &Tensor<B, 2>| tensor.clone().into_data().to_vec::<f32>().unwrap();
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    let (expected, whole) = (bits(&weight()), chain_that_fails(&weight(), usize::MAX));
    // There is no room, at one op or another.
    let (mut too_small, mut enough) = (0, 0);
    for kib in (24..220).step_by(4) {
        enable(&FlexDevice, Budget::of(kib << 10)).unwrap();
        let Ok(held) = attempt(&FlexDevice, weight) else { continue };
        match attempt(&FlexDevice, || chain_that_fails(&held, usize::MAX)) {
            Ok(found) => {
                enough += 1;
                assert_eq!(found, whole, "{kib} KiB");
            }
            Err(fault) => {
                too_small += 1;
                let Fault::NoRoom(room) = &fault else { panic!("{kib} KiB: {fault}") };
                assert!(!room.op.is_empty() && room.enough.0 > kib << 10, "{kib} KiB: {fault}");
            }
        }
        assert_eq!(bits(&held), expected, "{kib} KiB");
    }
    assert!(too_small > 2 && enough > 20, "{too_small} {enough}");
    // The backend panics in an op: it has lost its tensors, and says so whoever asks.
    for fails in 0..20 {
        enable(&FlexDevice, Budget::of(120 << 10)).unwrap();
        let held = weight();
        let fault = attempt(&FlexDevice, || chain_that_fails(&held, fails)).unwrap_err();
        assert!(fault.to_string().contains("the backend can't run `"), "op {fails}: {fault}");
        let after = attempt(&FlexDevice, || bits(&held)).unwrap_err();
        assert!(after.to_string().contains("`enable` begins anew"), "op {fails}: {after}");
        drop(held);
        enable(&FlexDevice, Budget::of(120 << 10)).unwrap();
        assert_eq!(chain_that_fails(&weight(), usize::MAX), whole, "op {fails}");
    }
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
}
