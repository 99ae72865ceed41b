//! Plans that store, encode and load are followed to the same numbers, and what was done passes the judge on real bytes.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::Numbers;
use common::plans::{ALIGN, planned, settings};
use memfit_engine::replay::{Event, Trace, drive, followed};
use memfit_engine::{Engine, Fault, Recorded, Settings, StepPlan, TensorId};
use memfit_ir::{Bytes, Nanos, OpId, Step};
use memfit_testkit::bytes::{Truth, check};
use memfit_verify::verify;

fn judge(recorded: &Recorded, settings: &Settings, what: &str) {
    let plan = recorded.plan().expect("the allocator has addresses");
    let limits = settings.limits(settings.budget);
    let truth = Truth::of(&recorded.graph);
    if let Err(fault) = check(&truth, &recorded.graph, &limits, &plan) {
        panic!(
            "{what}: wrong bytes: {fault:?}\n{}",
            memfit_ir::text::print(Some(&limits), Some(&recorded.graph), Some(&plan))
        );
    }
    if let Err(rejected) = verify(&recorded.graph, &limits, plan) {
        panic!("{what}: {rejected}");
    }
}

/// The numbers that are held at the end; whether the plan was followed; what was moved.
fn run(
    trace: &Trace,
    settings: &Settings,
    plan: Option<StepPlan>,
    loses: Option<u64>,
    what: &str,
) -> Result<(Vec<u64>, bool, [usize; 3]), Fault> {
    let mut engine = Engine::new(Numbers { loses, ..Numbers::default() }, settings.clone())?;
    if let Some(plan) = plan {
        engine.follow(plan);
    }
    drive(&mut engine, trace)?;
    let held: Vec<TensorId> = engine.held();
    let numbers = held.iter().map(|&tensor| {
        let block = engine.get(tensor)?;
        Ok(if block.size > Bytes::ZERO { engine.host.held[&block.offset.0] } else { 0 })
    });
    let mut numbers = numbers.collect::<Result<Vec<u64>, Fault>>()?;
    // Tensors are numbered as they come, and not alike in two runs.
    numbers.sort_unstable();
    let recorded = engine.end_step()?;
    judge(&recorded, settings, what);
    assert!(engine.stats().peak <= settings.budget, "{what}");
    assert!(
        engine.stats().tier_peaks.iter().all(|&peak| peak <= settings.tiers[0].unwrap().capacity),
        "{what}"
    );
    assert!(engine.host.copies.is_empty(), "{what}: copies are left behind");
    Ok((numbers, engine.is_guided(), engine.host.moved))
}

#[test]
fn plans_with_copies_are_followed_and_keep_every_number() {
    let (mut plans, mut kept, mut moved, mut lost) = (0, 0, [0; 3], 0);
    let (mut made, mut asked) = (0, 0);
    for seed in 0..3000 {
        let time = |op: OpId| Nanos(1 + u64::from(op.0) * 7 % 13);
        let Some((trace, roomy, plan)) = planned(seed, !seed, time) else { continue };
        let what = format!("seed {seed}");
        plans += 1;
        let (plain, _, _) = run(&trace, &roomy, None, None, &what).unwrap();
        let (numbers, guided, count) = run(&trace, &roomy, Some(plan.clone()), None, &what).unwrap();
        assert_eq!(numbers, plain, "{what}");
        kept += usize::from(guided);
        for (sum, count) in moved.iter_mut().zip(count) {
            *sum += count;
        }
        // In virtual time what is done is the plan, step by step.
        let followed = followed(&trace, roomy.clone(), plan.clone()).unwrap();
        assert_eq!(followed.is_some(), guided, "{what}");
        if let Some((recorded, stats)) = followed {
            let transfers = |steps: &[Step]| {
                steps.iter().filter(|step| matches!(step, Step::Offload { .. } | Step::Encode { .. })).count()
            };
            let (done, planned) = (transfers(&recorded.program.steps), transfers(&plan.program().steps));
            assert!(done <= planned, "{what}");
            (made, asked) = (made + done, asked + planned);
            judge(&recorded, &roomy, &what);
            assert_eq!(stats.recomputes, 0, "{what}");
        }
        // Copies that fail cost time, not numbers; and so does a tier that is too small, and a budget.
        for loses in [2, 3, 7] {
            let (numbers, guided, _) = run(&trace, &roomy, Some(plan.clone()), Some(loses), &what).unwrap();
            assert_eq!(numbers, plain, "{what}: every {loses}. copy is lost");
            lost += usize::from(guided);
        }
        let narrow = settings(roomy.budget, Bytes(64));
        assert_eq!(run(&trace, &narrow, Some(plan.clone()), None, &what).unwrap().0, plain, "{what}");
        let tight = settings(Bytes(trace.base().peak.0 * 5 / 4).round_up(ALIGN), Bytes(1 << 20));
        match run(&trace, &tight, Some(plan), None, &what) {
            Ok((numbers, _, _)) => assert_eq!(numbers, plain, "{what}: tight"),
            Err(Fault::NoRoom(_)) => {}
            Err(fault) => panic!("{what}: {fault}"),
        }
    }
    println!("{plans} plans, {kept} followed to their end, {lost} with copies that were lost");
    println!("{made} of {asked} copies made where nothing is lost; {moved:?} made, loaded, forgotten");
    // What can't be computed again is not stored, and it stays.
    assert!(plans > 1000 && kept * 10 > plans * 9 && made * 2 > asked && lost * 10 > 3 * plans * 9);
    assert!(moved.iter().all(|&count| count > 1000));
}

#[test]
fn a_step_that_is_another_leaves_the_plan_with_all_it_stored() {
    let mut checked = 0;
    for seed in 0..600 {
        let Some((trace, roomy, plan)) = planned(seed, seed, |_| Nanos(5)) else { continue };
        let what = format!("seed {seed}");
        // From some call on, ops are of another kind.
        let mut other = trace.clone();
        other.kinds.push("other".to_owned());
        let calls = other.events.iter().filter(|event| matches!(event, Event::Call { .. })).count();
        let mut left = calls / 2;
        let number = other.kinds.len() - 1;
        for event in &mut other.events {
            if let Event::Call { kind, .. } = event {
                left = left.saturating_sub(1);
                if left == 0 {
                    *kind = number;
                }
            }
        }
        let (plain, _, _) = run(&other, &roomy, None, None, &what).unwrap();
        let (numbers, guided, _) = run(&other, &roomy, Some(plan), None, &what).unwrap();
        assert_eq!(numbers, plain, "{what}");
        assert!(!guided || calls < 2, "{what}");
        checked += 1;
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn what_others_may_have_written_to_stays_whatever_the_plan_says() {
    let mut freed = 0;
    for seed in 0..300 {
        let Some((trace, roomy, plan)) = planned(seed, seed, |_| Nanos(5)) else { continue };
        let host = Numbers { shared: true, ..Numbers::default() };
        let mut engine = Engine::new(host, roomy).unwrap();
        engine.follow(plan);
        drive(&mut engine, &trace).unwrap();
        assert_eq!(engine.host.moved, [0; 3], "seed {seed}: nothing is copied");
        assert_eq!((engine.stats().recomputes, engine.stats().evictions), (0, 0), "seed {seed}");
        freed += 1;
    }
    assert!(freed > 100, "{freed}");
}
