//! Each network has the same bits within a budget as on the plain backend: losses, all gradients of each step, parameters at the end; and its
//! tensors stay within the budget. By default in `floor+50%`, online and planned; with `MEMFIT_ALL=1` in `floor+80%` and `floor+60%`, too.
//! `MEMFIT_ONLY=vit,gan` trains those alone.

use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn_outside::Log;
use burn_outside::networks::{Training, all};
use memfit_burn::{
    Budget, Device, Flex, FlexDevice, Memfit, Mode, NdArray, NdArrayDevice, Needs, Options, attempt,
    enable_with, needs, report, reset_peak, step,
};

/// Each back end has one device: one training at a time.
static DEVICE: Mutex<()> = Mutex::new(());

type Seen = Vec<(String, u64)>;

fn train<B: AutodiffBackend>(
    training: Training<B>,
    device: &B::Device,
    ended: &mut dyn FnMut(usize),
) -> Seen {
    let mut log = Log::new(ended);
    training.1(device, &mut log);
    log.seen
}

/// What the steps of a training need: the most of each.
fn need<B: AutodiffBackend<Device: Device>>(training: Training<B>, device: &B::Device) -> (Seen, Needs) {
    let options = Options { record: true, ..Options::default() };
    enable_with(device, options).expect("a device without tensors");
    let mut most: Option<Needs> = None;
    let seen = train::<B>(training, device, &mut |_| {
        step(device).expect("room for everything");
        if let Some(now) = needs(device) {
            let before = most.unwrap_or(now);
            let least = now.least.max(before.least);
            most = Some(Needs { peak: now.peak.max(before.peak), floor: now.floor.max(before.floor), least });
        }
    });
    (seen, most.expect("a recorded step"))
}

fn differs(name: &str, seen: &Seen, expected: &Seen) -> Option<String> {
    let first = seen.iter().zip(expected).find(|(seen, expected)| seen != expected);
    match first {
        Some(((what, _), _)) => Some(format!("{name}: {what} differs")),
        None if seen.len() != expected.len() => {
            Some(format!("{name}: {} and {} tensors", seen.len(), expected.len()))
        }
        None => None,
    }
}

/// Trains without memfit, and with it in several budgets and modes; what is wrong.
fn hold<P, M>(device: &P::Device) -> Vec<String>
where
    P: AutodiffBackend<Device: Device>,
    M: AutodiffBackend<Device = P::Device>,
{
    let (whole, only) = (std::env::var_os("MEMFIT_ALL").is_some(), std::env::var("MEMFIT_ONLY").ok());
    let shares: &[f64] = if whole { &[0.8, 0.6, 0.5] } else { &[0.5] };
    let (mut wrong, mut runs, mut again) = (Vec::new(), 0, 0);
    for (plain, within) in all::<P>(device).into_iter().zip(all::<M>(device)) {
        let name = plain.0;
        if only.as_ref().is_some_and(|only| !only.split(',').any(|only| only == name)) {
            continue;
        }
        let expected = train::<P>(plain, device, &mut |_| {});
        let (seen, needs) = need::<M>(within, device);
        wrong.extend(differs(&format!("{name}, no limit"), &seen, &expected));
        for (&share, mode) in
            shares.iter().flat_map(|share| [Mode::Online, Mode::Planned].map(|mode| (share, mode)))
        {
            let budget = needs.above_floor(share);
            let options = Options { budget, mode, strategy: "evict:planned", ..Options::default() };
            let what = format!("{name}, floor+{:.0}%, {mode:?}", share * 100.0);
            enable_with(device, options).expect("a device without tensors");
            let trained = attempt(device, || {
                train::<M>(within, device, &mut |_| {
                    if mode == Mode::Planned {
                        step(device).expect("room for what is held");
                    }
                })
            });
            let (report, budget) = (report(device), budget.bytes());
            println!(
                "{what}: {} of {} (floor {}, peak {}), {} ops again, {} steps by a plan",
                report.engine.peak,
                budget,
                needs.floor,
                needs.peak,
                report.engine.recomputes,
                report.steps.guided
            );
            match trained {
                Ok(seen) => wrong.extend(differs(&what, &seen, &expected)),
                Err(fault) => wrong.push(format!("{what}: {fault}")),
            }
            if report.engine.peak > budget {
                wrong.push(format!("{what}: {} in a budget of {budget}", report.engine.peak));
            }
            if report.host.unexpected > 0 {
                wrong.push(format!("{what}: {} views that share nothing", report.host.unexpected));
            }
            if report.host.missized > 0 {
                wrong.push(format!("{what}: {} tensors of another size than counted", report.host.missized));
            }
            (runs, again) = (runs + 1, again + usize::from(report.engine.recomputes > 0));
        }
        enable_with(device, Options { budget: Budget::UNLIMITED, ..Options::default() }).ok();
        reset_peak(device);
    }
    println!("{runs} trainings within a budget, {again} of them with repetitions");
    if again * 10 < runs * 9 {
        wrong.push(format!("only {again} of {runs} trainings repeat anything"));
    }
    wrong
}

#[test]
fn the_same_bits_as_flex() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let wrong = hold::<Autodiff<Flex>, Autodiff<Memfit<Flex>>>(&FlexDevice);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_same_bits_as_ndarray() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let wrong = hold::<Autodiff<NdArray>, Autodiff<Memfit<NdArray>>>(&NdArrayDevice::Cpu);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
