//! A host that fails at its n-th call, for every n: at the run of an op, the making of a copy, its reading, its end. What the
//! program holds has its numbers afterwards, what failed can be done again, and the error says what failed and why.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::{Numbers, apply, check, put};
use common::plans::{ALIGN, planned, settings};
use common::training::{self, Training, Ways};
use memfit_engine::replay::{Event, Trace};
use memfit_engine::stepping::Stepper;
use memfit_engine::{Call, Engine, Fault, Settings, StepPlan, Storing, TensorId};
use memfit_ir::{Bytes, Nanos};
use memfit_testkit::graph;

/// How often what has failed is tried again before the host is mended.
const TRIES: u64 = 3;

/// What became of one run.
#[derive(Debug, Default)]
struct Met {
    /// Calls of the host that may fail; of several runs, how many.
    calls: u64,
    /// Faults that the program got.
    faults: u64,
    /// Looks at all that is held for which there was no room in one piece.
    scattered: u64,
}

impl Met {
    fn add(&mut self, other: &Met) {
        self.calls += other.calls;
        self.faults += other.faults;
        self.scattered += other.scattered;
    }
}

fn names_its_cause(fault: &Fault, kind: &str, what: &str) {
    let message = fault.to_string();
    match fault {
        Fault::Host(_) => assert!(message.ends_with(": the device is on fire"), "{what}: {message}"),
        Fault::Gone { .. } => assert!(message.contains("the device is on fire"), "{what}: {message}"),
        fault => panic!("{what}, at `{kind}`: {fault}"),
    }
}

/// Runs `trace` while the calls of the host in `failing` fail. `None` if there is no room for it.
fn run(
    trace: &Trace,
    settings: &Settings,
    plan: Option<StepPlan>,
    failing: std::ops::Range<u64>,
    what: &str,
) -> Option<Met> {
    let host = Numbers { failing: failing.clone(), ..Numbers::default() };
    let mut engine = Engine::new(host, settings.clone()).unwrap();
    if let Some(plan) = plan {
        engine.follow(plan);
    }
    let (mut tensors, mut met): (Vec<TensorId>, Met) = (Vec::new(), Met::default());
    for event in &trace.events {
        match event {
            Event::Put { size, role } => match put(&mut engine, *size, *role) {
                Ok(tensor) => tensors.push(tensor),
                Err(Fault::NoRoom(_)) => return None,
                Err(fault) => {
                    names_its_cause(&fault, "put", what);
                    met.faults += 1;
                    mend(&mut engine, &mut met, what);
                    tensors.push(put(&mut engine, *size, *role).unwrap());
                }
            },
            Event::Call { kind, reads, outputs, time, workspace, effect } => {
                let reads: Vec<TensorId> = reads.iter().map(|&read| tensors[read as usize]).collect();
                let (time, workspace, effect) = (*time, *workspace, *effect);
                let kind = trace.kinds[*kind].as_str();
                let call = Call { kind, reads: &reads, outputs, time, workspace, effect, ..Call::default() };
                let held = engine.held();
                for tries in 0.. {
                    match apply(&mut engine, &call, &mut tensors) {
                        Ok(()) => break,
                        Err(Fault::NoRoom(_)) => return None,
                        Err(fault) => names_its_cause(&fault, kind, what),
                    }
                    met.faults += 1;
                    assert_eq!(engine.held(), held, "{what}: nothing is made");
                    assert!(tries < TRIES, "{what}: `{kind}` goes on to fail");
                    if tries == TRIES - 1 || failing.end - failing.start == 1 {
                        mend(&mut engine, &mut met, what);
                    }
                }
            }
            Event::Share(tensor) => engine.share(tensors[*tensor as usize]).unwrap(),
            Event::Release(tensor) => engine.del(tensors[*tensor as usize]).unwrap(),
        }
    }
    met.calls = engine.host.tried;
    mend(&mut engine, &mut met, what);
    assert!(engine.stats().peak <= settings.budget && engine.host.most <= settings.budget.0, "{what}");
    for tensor in engine.held() {
        while engine.del(tensor).is_ok() {}
    }
    engine.diverge();
    assert_eq!((engine.stats().used, engine.host.used), (Bytes::ZERO, 0), "{what}: bytes are left behind");
    assert!(engine.host.copies.is_empty(), "{what}: copies are left behind");
    Some(met)
}

/// From now on nothing fails: all that is held can be had.
fn mend(engine: &mut Engine<'_, Numbers>, met: &mut Met, what: &str) {
    engine.host.failing = 0..0;
    met.scattered += u64::from(!check(engine, what));
}

/// Every call fails once by itself, and with the two or the many after it.
fn every_call(trace: &Trace, settings: &Settings, plan: Option<&StepPlan>, what: &str) -> Met {
    let Some(whole) = run(trace, settings, plan.cloned(), 0..0, what) else { return Met::default() };
    let mut sum = Met::default();
    for from in 1..=whole.calls {
        for length in [1, 3, 40] {
            let what = format!("{what}, {length} from call {from}");
            if let Some(met) = run(trace, settings, plan.cloned(), from..from + length, &what) {
                sum.add(&Met { calls: 1, ..met });
            }
        }
    }
    sum
}

#[test]
fn whatever_fails_online_all_that_is_held_is_right() {
    let mut sum = Met::default();
    for seed in 0..1500 {
        let trace = Trace::of_graph(&graph(seed), |op| Nanos(1 + u64::from(op.0) * 7 % 60));
        let trace = if seed % 2 == 1 { trace.with_snapshots(|_| Nanos(1)) } else { trace };
        let budget = Bytes(trace.base().peak.0 * 18 / 16 + 8).round_up(ALIGN);
        let host = Bytes([64, 1 << 20][usize::from(seed % 4 > 1)]);
        let stores = Settings { storing: Storing::WhereCheaper, ..settings(budget, host) };
        let log = seed % 3 == 0;
        let met = every_call(&trace, &Settings { log, ..stores }, None, &format!("seed {seed}"));
        sum.add(&met);
    }
    println!("{sum:?}");
    assert!(sum.calls > 20_000 && sum.faults * 2 > sum.calls && sum.scattered * 200 < sum.calls, "{sum:?}");
}

#[test]
fn whatever_fails_while_a_plan_is_followed_all_that_is_held_is_right() {
    let mut sum = Met::default();
    for seed in 0..600 {
        let Some((trace, roomy, plan)) = planned(seed, !seed, |op| Nanos(1 + u64::from(op.0) * 7 % 13))
        else {
            continue;
        };
        let tight = Bytes(trace.base().peak.0 * 5 / 4).round_up(ALIGN);
        for budget in [roomy.budget, tight] {
            let settings = Settings { budget, ..roomy.clone() };
            let met = every_call(&trace, &settings, Some(&plan), &format!("seed {seed}, {budget}"));
            sum.add(&met);
        }
    }
    println!("{sum:?}");
    assert!(sum.calls > 16_000 && sum.faults * 2 > sum.calls && sum.scattered * 200 < sum.calls, "{sum:?}");
}

/// A training whose parameters and state are parked, planned and followed; a step that fails is given up, and the next ones do
/// as if nothing had been.
#[test]
fn whatever_fails_in_a_training_what_lasts_is_right() {
    let mut sum = Met::default();
    for seed in 0..4 {
        let lasting = {
            let mut engine = Engine::new(Numbers::default(), Settings::new(Bytes(1 << 30))).unwrap();
            Training::new(&mut engine, seed).unwrap().lasting()
        };
        let part = |percent: u64| Bytes(lasting * percent / 100);
        for (percent, host, disk) in [(140, 0, 0), (95, 150, 0), (70, 50, 200)] {
            let settings = training::settings(part(percent), part(host), part(disk));
            let what = format!("seed {seed}, {percent} %");
            let Some(whole) = train(seed, &settings, 0..0, &what) else { continue };
            let stride = 1 + whole.calls / 60;
            for from in (1..=whole.calls).step_by(usize::try_from(stride).unwrap()) {
                for length in [1, 5] {
                    let what = format!("{what}, {length} from call {from}");
                    if let Some(met) = train(seed, &settings, from..from + length, &what) {
                        sum.add(&Met { calls: 1, ..met });
                    }
                }
            }
        }
    }
    println!("{sum:?}");
    assert!(sum.calls > 500 && sum.faults * 2 > sum.calls && sum.scattered == 0, "{sum:?}");
}

fn train(seed: u64, settings: &Settings, failing: std::ops::Range<u64>, what: &str) -> Option<Met> {
    let mut engine = Engine::new(Numbers::default(), settings.clone()).unwrap();
    let mut training = Training::new(&mut engine, seed).ok()?;
    // What comes in before the training is no part of it.
    engine.host.tried = 0;
    engine.host.failing = failing;
    let (mut stepper, mut met) = (Stepper::default(), Met::default());
    let ways = Ways { alike: true, ..Ways::default() };
    for _ in 0..6 {
        let stepped = stepper
            .begin(&mut engine)
            .and_then(|()| training.step(&mut engine, ways))
            .and_then(|()| stepper.end(&mut engine).map(|_| ()));
        match stepped {
            Ok(()) => {}
            Err(Fault::NoRoom(_)) => return None,
            Err(fault) => {
                names_its_cause(&fault, "step", what);
                met.faults += 1;
                engine.diverge();
                mend(&mut engine, &mut met, what);
                training.abandon(&mut engine);
            }
        }
    }
    met.calls = engine.host.tried;
    engine.diverge();
    mend(&mut engine, &mut met, what);
    assert!(engine.host.most <= settings.budget.0, "{what}");
    // There are no addresses any more.
    engine.lift_budget();
    for tensor in engine.held() {
        engine.restore(tensor).unwrap();
    }
    assert!(!engine.has_parked(), "{what}");
    Some(met)
}
