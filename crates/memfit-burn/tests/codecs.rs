//! Training by plans that hold tensors encoded: by lossless codecs the same bits at the peak that was foreseen, by lossy ones gradients
//! that are as near as the codec is.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn_flex::{Flex, FlexDevice};
use memfit::engine::{Fault, Found, Planner, Recorded, Settings, StepPlan};
use memfit::{Bytes, StepPlanner};
use memfit_burn::zoo::{Apart, Model, Trained, Training, Where, gradients, lossy, plain, saved};
use memfit_burn::{
    Budget, Memfit, Meter, Mode, Options, Report, attempt, enable_with, heap, last_plan, plan_with, report,
    reset_peak, step,
};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// The most that was on the heap between ops, copies in the making included, and when an op had just made its results. What there is
/// when an op begins, and what it makes, is counted by the host (`Counters::working`): all tensors, and no scratch memory of ops.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Whether an op runs.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Called when an op begins, and when it has ended.
fn mark() -> usize {
    let most = heap::mark();
    let ended = RUNS.fetch_xor(true, Ordering::Relaxed);
    MOST.fetch_max(if ended { heap::current() } else { most }, Ordering::Relaxed);
    most
}

const METER: Meter = Meter { current: heap::current, mark };

/// There is one device: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICE: Mutex<()> = Mutex::new(());
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a strategy finds is taken, whatever it costs: what is cheaper is a matter of measured times.
struct Taken(StepPlanner);

impl Planner for Taken {
    fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<Found, Fault> {
        Ok(Found { ns: 0, ..self.0.plan(recorded, settings)? })
    }

    fn adopt(&mut self, recorded: &Recorded, settings: &Settings) -> Result<StepPlan, Fault> {
        self.0.adopt(recorded, settings)
    }
}

/// A training, and of its last step what the heap rose by and what tensors took by the engine's account.
struct Run {
    trained: Trained,
    report: Report,
    rise: usize,
    peak: Bytes,
}

fn run(training: &Training, options: Options, strategy: Option<&str>) -> Run {
    enable_with(&FlexDevice, Options { meter: Some(METER), ..options }).unwrap();
    if let Some(name) = strategy {
        plan_with(&FlexDevice, Box::new(Taken(StepPlanner::new(0).by(name).unwrap())));
    }
    let (mut rise, mut peak, mut before) = (0, Bytes::ZERO, heap::current());
    let trained = attempt(&FlexDevice, || {
        training.run::<Autodiff<Memfit<Flex>>>(&FlexDevice, &mut |_| {
            let Report { engine, host, .. } = report(&FlexDevice);
            let most = MOST.swap(0, Ordering::Relaxed).max(usize::try_from(host.working).unwrap());
            (rise, peak) = (most.saturating_sub(before), engine.peak);
            step(&FlexDevice).unwrap();
            reset_peak(&FlexDevice);
            before = heap::current();
            heap::mark();
            MOST.store(before, Ordering::Relaxed);
        })
    });
    Run { trained: trained.unwrap(), report: report(&FlexDevice), rise, peak }
}

fn vgg(steps: usize) -> Training {
    Training { batch: 32, steps, seed: 3, gradients: true, ..Training::new(Model::Vgg16) }
}

/// Options for plans that hold what they may within `percent` of `peak`.
fn planned(
    peak: Bytes,
    percent: u64,
    lossless: &'static [&'static str],
    lossy: &'static [&'static str],
) -> Options {
    let budget = Budget::of(peak.0 * percent / 100);
    Options { budget, mode: Mode::Planned, lossless, lossy, ..Options::default() }
}

#[test]
fn lossless_codecs_give_the_same_bits_at_the_peak_that_was_foreseen() {
    let _alone = alone();
    let training = vgg(6);
    let expected = plain(&training, Where::Cpu, &mut |_| {});
    let without = run(&training, Options::default(), None);
    assert_eq!(without.trained, expected);
    for (strategy, codecs, percent) in [
        ("compress:zvc", &["zvc"][..], 97),
        ("compress:best", &["zvc"][..], 90),
        ("compress:gist-lossless", &["zvc", "binarize"][..], 85),
    ] {
        let with = run(&training, planned(without.peak, percent, codecs, &[]), Some(strategy));
        assert_eq!(with.trained, expected, "{strategy}");
        let steps = with.report.steps;
        // A map that has become denser than its room is computed again, and the step planned anew.
        assert!(steps.guided == 3 && steps.diverged == 0, "{strategy}: {steps:?}");
        assert!(with.report.engine.encoded > Bytes::ZERO && lossy(Where::Cpu).is_empty());
        // By the allocator's events, copies included, beside what the engine counted and the plan promised.
        let (saved, foreseen) = (without.rise - with.rise, without.peak.0 - with.peak.0);
        let foreseen = usize::try_from(foreseen).unwrap();
        let most = last_plan(&FlexDevice).unwrap().verified().peak();
        println!(
            "{strategy}: heap {} and {}, counted {} and {}, at most {most}; saved {saved}, foreseen {foreseen}",
            without.rise, with.rise, without.peak.0, with.peak.0
        );
        assert!(with.peak <= most || with.report.engine.lost > 0, "{strategy}");
        assert!(foreseen as u64 * 100 > without.peak.0 * (100 - percent), "{strategy}");
        assert!(saved.abs_diff(foreseen) <= without.rise / 50, "{strategy}");
    }
}

/// The errors of the last steps by `strategy` with `codec`, if those follow its plan.
fn errors(peak: Bytes, strategy: &str, codec: &'static [&'static str]) -> Vec<Apart> {
    let training = Training { gradients: false, ..vgg(6) };
    let options = Options { meter: Some(METER), ..planned(peak, 85, &[], codec) };
    let trained = run(&training, options, Some(strategy));
    assert!(trained.report.steps.guided == 3 && trained.report.engine.lost == 0, "{:?}", trained.report);
    let plan = saved(Where::Cpu).unwrap();
    let apart = gradients(&training, Where::Cpu, options, (plan.as_ref(), 2)).unwrap();
    assert_eq!(lossy(Where::Cpu), codec);
    assert!(report(&FlexDevice).steps.guided >= 2, "{:?}", report(&FlexDevice).steps);
    // Who does not name the codec has no such plan.
    let options = Options { lossy: &[], ..options };
    let refused = gradients(&training, Where::Cpu, options, (plan.as_ref(), 2)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("lossy") || refused.to_string().contains(codec[0]), "{refused}");
    apart
}

#[test]
fn gradients_are_as_near_as_the_codec_is() {
    let _alone = alone();
    let peak = run(&vgg(4), Options::default(), None).peak;
    for (codec, most) in [(&["int8+mask"][..], 1e-2), (&["int4+mask"][..], 1.5e-1)] {
        let apart = errors(peak, "compress:actnn", codec);
        println!("{codec:?}: {apart:?}");
        assert_eq!(apart.len(), 2);
        for Apart { error, noise, .. } in apart {
            assert!(error > 1e-5 && error <= most && error < noise, "{codec:?}: {error} of {noise}");
        }
    }
    // Exact ones are not off at all, in a network that draws numbers as well.
    let training = Training { batch: 3, steps: 4, ..Training::new(Model::Gpt) };
    let apart = gradients(&training, Where::Cpu, Options::default(), (None, 4)).unwrap();
    assert!(
        apart.len() == 4 && apart.iter().all(|apart| apart.error == 0.0 && apart.noise > 0.1),
        "{apart:?}"
    );
}
