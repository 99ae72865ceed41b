//! Step after step: sequences are recognised, planned once they have settled, and followed in the steps after.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use common::numbers::{KB, Numbers, step};
use memfit_engine::offline::Portfolio;
use memfit_engine::stepping::{Options, Stepped, Stepper, sequence};
use memfit_engine::{Engine, Settings, StepPlan};
use memfit_ir::{Bytes, Digest, Limits, Role, Step};

/// Trains with `layers` layers in each step; what is in the weight after each, and what became of each.
fn train(budget: u64, layers: &[u64], stepper: &mut Stepper, align: u64) -> (Vec<u64>, Vec<Stepped>) {
    let settings = Settings { align: Bytes(align), ..Settings::new(Bytes(budget)) };
    let mut engine = Engine::new(Numbers::default(), settings).unwrap();
    let mut weight = engine.put(KB, Role::Parameter).unwrap();
    let (mut numbers, mut steps) = (Vec::new(), Vec::new());
    for &layers in layers {
        stepper.begin(&mut engine).unwrap();
        let (new, number) = step(&mut engine, weight, layers);
        weight = new;
        numbers.push(number);
        steps.push(stepper.end(&mut engine).unwrap());
        assert!(engine.host.most <= budget);
    }
    (numbers, steps)
}

fn stepper(options: Options) -> Stepper {
    Stepper::new(options, Box::new(Portfolio::default()))
}

fn free(layers: &[u64]) -> Vec<u64> {
    train(1 << 20, layers, &mut Stepper::default(), 512).0
}

#[test]
fn a_loop_is_planned_after_its_second_step_and_guided_from_the_third() {
    let layers = [12; 6];
    for (align, trusting) in [(1, false), (512, false), (1, true), (512, true)] {
        let mut stepper = stepper(Options { trusting, ..Options::default() });
        let (numbers, steps) = train(13 * 1024, &layers, &mut stepper, align);
        assert_eq!(numbers, free(&layers));
        let guided: Vec<bool> = steps.iter().map(|step| step.guided).collect();
        let planned: Vec<bool> = steps.iter().map(|step| step.planned).collect();
        assert_eq!(guided, [false, false, true, true, true, true], "align {align}");
        assert_eq!(planned, [false, true, false, false, false, false]);
        let online = steps[1].recompute_ns;
        for step in &steps[2..] {
            assert_eq!(Some(step.recompute_ns), step.predicted_ns);
            assert!(step.recompute_ns < online, "{} {online}", step.recompute_ns);
        }
        assert!(steps.iter().all(|step| step.sequence == steps[0].sequence));
    }
}

/// A program with several paths in turn has a plan for each; one that is out of turn falls back to the online policy.
#[test]
fn every_path_has_its_plan() {
    let mut layers: Vec<u64> = [12, 9, 14].repeat(4);
    layers.extend([9, 12, 9, 9, 14, 12, 12]);
    for trusting in [false, true] {
        let mut stepper = stepper(Options { trusting, ..Options::default() });
        let (numbers, steps) = train(14 * 1024, &layers, &mut stepper, 512);
        assert_eq!(numbers, free(&layers));
        let planned: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].planned).collect();
        assert_eq!(planned, [3, 4, 5]);
        assert!(steps[6..12].iter().all(|step| step.guided), "{steps:#?}");
        assert!(!steps[12].guided, "14 was followed by 12 so far");
        assert_eq!(stepper.plans().count(), 3);
        let known: BTreeSet<Digest> = steps.iter().filter_map(|step| step.sequence).collect();
        assert_eq!(known.len(), 3);
    }
}

/// Where steps are not recorded as long as they are the same, one that is another is still found out at its first
/// difference, and what it has turned into is planned in its turn.
#[test]
fn a_step_that_is_not_recorded_may_be_another() {
    let mut layers = vec![12; 6];
    layers.extend([9; 6]);
    // Shorter: its first calls are those of the longer one.
    layers.extend([12, 12, 12, 12, 6, 12]);
    let mut stepper = stepper(Options { trusting: true, ..Options::default() });
    let (numbers, steps) = train(13 * 1024, &layers, &mut stepper, 512);
    assert_eq!(numbers, free(&layers));
    let unknown: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].sequence.is_none()).collect();
    assert_eq!(unknown, [6], "{steps:#?}");
    assert!(!steps[6].guided && steps[6].expected);
    let guided: Vec<bool> = steps[7..12].iter().map(|step| step.guided).collect();
    assert_eq!(guided, [false, false, true, true, true], "{steps:#?}");
}

#[test]
fn few_plans_are_kept_and_roomy_steps_need_none() {
    let layers: Vec<u64> = (8..16).flat_map(|layers| [layers; 3]).collect();
    let mut stepper = stepper(Options { remembered: 2, ..Options::default() });
    let (numbers, steps) = train(14 * 1024, &layers, &mut stepper, 512);
    assert_eq!(numbers, free(&layers));
    assert!(steps.iter().filter(|step| step.planned).count() > 2);
    assert!(stepper.plans().count() <= 2);
    let mut stepper = Stepper::default();
    let (_, steps) = train(1 << 20, &[12; 4], &mut stepper, 512);
    assert!(steps.iter().all(|step| !step.planned && !step.guided && step.recompute_ns == 0));
}

/// A plan from an earlier run, handed over as a graph, a program and a layout, guides the first step.
#[test]
fn a_plan_of_an_earlier_run_guides_the_first_step() {
    let layers = [12; 4];
    let mut stepper = Stepper::default();
    let (_, steps) = train(13 * 1024, &layers, &mut stepper, 512);
    let plan = stepper.plans().next().unwrap();
    assert_eq!(Some(sequence(plan.graph())), steps[0].sequence);
    let limits = Limits { replays_random: true, ..Limits::arena(Bytes(13 * 1024), Bytes(512)) };
    let (graph, program, layout) = (plan.graph().clone(), plan.program().clone(), plan.layout().clone());
    let saved = StepPlan::judge(graph, &limits, program, layout).unwrap();
    let mut stepper = Stepper::default();
    stepper.add(saved);
    let (numbers, again) = train(13 * 1024, &layers, &mut stepper, 512);
    assert_eq!(numbers, free(&layers));
    assert!(again.iter().all(|step| step.guided && step.recompute_ns == steps[3].recompute_ns), "{again:#?}");
}

/// What is kept from step to step, say losses for a plot, makes no other step of it; when a plan finds no room beside it
/// any more, another one is made.
#[test]
fn what_is_kept_beside_the_steps_makes_no_other_step() {
    let budget = 13 * 1024;
    let settings = Settings { align: Bytes(1), ..Settings::new(Bytes(budget)) };
    let mut engine = Engine::new(Numbers::default(), settings).unwrap();
    let mut weight = engine.put(KB, Role::Parameter).unwrap();
    let (mut numbers, mut steps, mut stepper) = (Vec::new(), Vec::new(), Stepper::default());
    for _ in 0..40 {
        stepper.begin(&mut engine).unwrap();
        let (new, number) = step(&mut engine, weight, 12);
        weight = new;
        numbers.push(number);
        engine.put(Bytes(24), Role::Input).unwrap();
        steps.push(stepper.end(&mut engine).unwrap());
        assert!(engine.host.most <= budget);
    }
    assert_eq!(numbers, free(&[12; 40]));
    assert!(steps.iter().all(|step| step.sequence == steps[0].sequence));
    let guided = steps.iter().filter(|step| step.guided).count();
    assert!((30..40).contains(&guided), "{guided}");
    assert!((2..=4).contains(&steps.iter().filter(|step| step.planned).count()));
}

/// A program with a step too few is no plan, however little is missing.
#[test]
fn what_the_judge_refuses_can_not_be_followed() {
    let mut stepper = Stepper::default();
    train(13 * 1024, &[12; 3], &mut stepper, 512);
    let plan = stepper.plans().next().unwrap();
    let limits = Limits { replays_random: true, ..Limits::arena(Bytes(13 * 1024), Bytes(512)) };
    let mut refused = 0;
    for at in 0..plan.program().steps.len() {
        let mut program = plan.program().clone();
        if !matches!(program.steps.remove(at), Step::Compute(_)) {
            continue;
        }
        let judged = StepPlan::judge(plan.graph().clone(), &limits, program, plan.layout().clone());
        assert!(judged.is_err(), "without step {at}");
        refused += 1;
    }
    assert!(refused > 24, "{refused}");
}
