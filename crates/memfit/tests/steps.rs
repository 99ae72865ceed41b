//! The steps of a host: recorded, planned, followed, saved, and taken over by another run.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use memfit::engine::stepping::Options;
use memfit::engine::{Call, Engine, Fault, Output, Settings, TensorId, VirtualHost};
use memfit::ir::{Nanos, Role};
use memfit::tiers::Room;
use memfit::{Bytes, Failure, PORTFOLIO, Parts, Steps, host_settings, profile};

const KB: Bytes = Bytes(1 << 10);
const LAYERS: usize = 24;
/// What a step takes here.
const TOOK: Duration = Duration::from_micros(50);

/// An engine whose budget is a third of what a step would take.
fn engine() -> Engine<'static, VirtualHost> {
    let none: &[&str] = &[];
    let clock = || Duration::ZERO;
    let settings = host_settings(Bytes(KB.0 * 9), &Room::default(), [none, none], &clock).unwrap();
    Engine::new(VirtualHost::of(&settings), settings).unwrap()
}

fn steps() -> Steps {
    Steps::new(Options { settled: 1, ..Options::default() }, PORTFOLIO, 1).unwrap()
}

/// A chain, and the way back.
fn step(engine: &mut Engine<'_, VirtualHost>) -> Result<(), Fault> {
    let apply = |engine: &mut Engine<'_, VirtualHost>, kind: &str, reads: &[TensorId]| {
        let (mut made, outputs) = (Vec::new(), [Output::Fresh(KB)]);
        let call = Call { kind, reads, outputs: &outputs, time: Nanos(100), ..Call::default() };
        engine.apply(&call, &mut made).map(|()| made[0])
    };
    let mut chain = vec![engine.put(KB, Role::Input)?];
    for at in 0..LAYERS {
        chain.push(apply(engine, "forward", &[chain[at]])?);
    }
    let mut gradient = apply(engine, "loss", &chain[LAYERS..])?;
    while let Some(value) = chain.pop() {
        let next = apply(engine, "backward", &[gradient, value])?;
        engine.del(gradient)?;
        engine.del(value)?;
        gradient = next;
    }
    engine.del(gradient)
}

#[test]
fn a_step_is_planned_followed_and_saved_for_another_run() {
    let (mut engine, mut first) = (engine(), steps());
    first.begin(&mut engine).unwrap();
    assert!(first.is_open() && first.last().is_none());
    step(&mut engine).unwrap();
    let online = first.end(&mut engine, || TOOK).unwrap();
    assert!(online.wants_plan && !online.guided && first.last().is_some());
    let planned = first.settle(&engine.settings().clone()).unwrap().unwrap();
    assert!(planned <= online.recompute_ns, "{planned} {}", online.recompute_ns);
    assert_eq!(first.settle(&engine.settings().clone()).unwrap(), None, "it has been planned");
    assert!(first.arena().is_some() && first.tried().iter().any(|tried| tried.name == PORTFOLIO));
    let saved = first.save(engine.settings().align).unwrap().unwrap();
    let predicted = first.timing().predicted().unwrap();
    let once = Nanos(Nanos::from(TOOK).0 - online.recompute_ns);
    assert_eq!((predicted, first.timing().measured()), (Parts { once, again: Nanos(planned) }, None));

    let (mut engine, mut second) = (self::engine(), steps());
    assert_eq!(second.save(Bytes(1)).unwrap(), None);
    let sequence =
        second.add(profile::load(&saved.profile, &saved.plan, None, &[]).unwrap(), Some(predicted));
    assert_eq!((second.timing().predicted(), second.timing().measured()), (Some(predicted), None));
    second.begin(&mut engine).unwrap();
    step(&mut engine).unwrap();
    let stepped = second.end(&mut engine, || TOOK).unwrap();
    assert!(stepped.guided, "the first step follows what it was given");
    assert_eq!((stepped.sequence, stepped.recompute_ns), (Some(sequence), planned));
    let measured = second.timing().measured().unwrap();
    assert_eq!((measured.sum(), measured.again), (Nanos::from(TOOK), predicted.again));
    assert_eq!(second.timing().predicted(), Some(predicted), "still what it was");
    let far = Parts { once: Nanos(1 << 40), ..measured };
    assert!(measured.why_not(far).unwrap().contains("in the step that was planned"));
}

#[test]
fn other_budgets_are_asked_for_before_one_is_taken() {
    let (mut engine, mut steps) = (engine(), steps());
    assert!(!steps.plan_within(engine.settings()).unwrap(), "no step so far");
    steps.begin(&mut engine).unwrap();
    step(&mut engine).unwrap();
    steps.end(&mut engine, || TOOK).unwrap();
    let settings = |budget| Settings { budget, ..engine.settings().clone() };
    let least = steps.least_budget(engine.settings(), KB, engine.stats().peak).unwrap();
    assert!(least < engine.settings().budget, "{least}");
    assert!(!steps.plan_within(&settings(Bytes(2 << 10))).unwrap());
    assert!(steps.plan_within(&settings(least)).unwrap());
    assert!(steps.take_last().is_some());
}

#[test]
fn a_step_that_fails_leaves_nothing_open() {
    let (mut engine, mut steps) = (engine(), steps());
    steps.abandon(&mut engine).unwrap();
    steps.begin(&mut engine).unwrap();
    let held = engine.put(KB, Role::Input).unwrap();
    steps.abandon(&mut engine).unwrap();
    assert!(!steps.is_open() && engine.is_resident(held) && !engine.is_guided());
    assert!(matches!(steps.set_strategy("magic"), Err(Failure::Usage { .. })));
    steps.set_strategy("auto").unwrap();
}

#[test]
fn a_step_that_was_not_recorded_is_abandoned_as_well() {
    let options = Options { settled: 1, trusting: true, ..Options::default() };
    let (mut engine, mut steps) = (engine(), Steps::new(options, PORTFOLIO, 1).unwrap());
    let mut recorded = Vec::new();
    let mut take = |steps: &mut Steps, engine: &mut Engine<'_, VirtualHost>| {
        steps.begin(engine).unwrap();
        step(engine).unwrap();
        let stepped = steps.end(engine, || TOOK).unwrap();
        recorded.push(steps.last().is_some());
        if stepped.wants_plan {
            steps.settle(&engine.settings().clone()).unwrap();
        }
    };
    for _ in 0..10 {
        take(&mut steps, &mut engine);
    }
    steps.begin(&mut engine).unwrap();
    let held = engine.put(KB, Role::Input).unwrap();
    steps.abandon(&mut engine).unwrap();
    assert!(!steps.is_open() && engine.is_resident(held) && !engine.is_guided());
    engine.del(held).unwrap();
    take(&mut steps, &mut engine);
    assert!(recorded[0] && !recorded[9], "the last is not recorded any more: {recorded:?}");
    assert!(recorded[10], "the one after a failure is");
}
