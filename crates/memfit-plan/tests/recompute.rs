//! Every recomputation strategy, on every random graph: the judge accepts, the bytes are right, budgets are
//! monotone, nothing that must run once runs twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod order_graphs;

use memfit_ir::{Bytes, Device, Effect, Graph, InPlace, Limits, Nanos, OpId, Plan, Program, Step};
use memfit_plan::Context;
use memfit_plan::dependencies::Dependencies;
use memfit_plan::liveness::Profile;
use memfit_plan::order::ORDERS;
use memfit_plan::place::{PLACERS, Problem};
use memfit_plan::schedule::recompute::RECOMPUTES;
use memfit_plan::schedule::{RunList, Scheduler, Task, early, fit};
use memfit_testkit::bytes::{Truth, check};
use memfit_verify::verify;

fn given(graph: &Graph) -> Vec<OpId> {
    graph.op_ids().collect()
}

fn judged(graph: &Graph, truth: Option<&Truth>, limits: &Limits, program: Program, what: &str) -> Plan {
    let problem = Problem::of(graph, &program, limits);
    let device = order_graphs::device();
    let placed = PLACERS[0].place(&problem.0, &Context::new(&device)).unwrap();
    let layout = Problem::layout(&placed.places, &problem.1);
    let plan = Plan { graph: graph.digest(), program, layout };
    let mut limits = limits.clone();
    limits.banks[0].capacity = Bytes::MAX;
    if let Err(rejected) = verify(graph, &limits, plan.clone()) {
        panic!("{what}: {rejected}");
    }
    if let Some(Err(fault)) = truth.map(|truth| check(truth, graph, &limits, &plan)) {
        panic!("{what}: {fault:?}");
    }
    plan
}

#[test]
fn the_plain_schedule_is_the_program_in_order() {
    let device = order_graphs::device();
    let context = Context::new(&device);
    for (seed, ops) in (1..2000).zip((0..60).cycle()) {
        let graph = order_graphs::random(seed, ops);
        for in_place in [InPlace::Must, InPlace::May] {
            for order in [given(&graph), ORDERS[1].order(&graph, &context)] {
                let task = Task::new(&graph, &order, in_place, false, &context);
                let plain = RunList::plain(&task);
                let early = early(&graph, &order, in_place, device.align);
                assert!(Dependencies::of(&graph).allow(&early), "seed {seed}");
                let program = Program::in_order(&graph, &early, in_place);
                let given = Program::in_order(&graph, &order, in_place);
                let peak = |program: &Program| Profile::of(program, device.align).peak().0;
                assert!(peak(&program) <= peak(&given), "seed {seed}");
                assert_eq!(plain.program(&task), Some(program.clone()), "seed {seed}");
                let cost = plain.cost(&task).unwrap();
                assert_eq!(cost.peak, Profile::of(&program, device.align).peak().0, "seed {seed}");
                assert_eq!(cost.time, task.base_time(), "seed {seed}");
                assert!(task.floor().0 <= cost.peak, "seed {seed}");
            }
        }
    }
}

/// Five budgets from the floor to the peak.
fn budgets(task: &Task<'_>) -> Vec<Bytes> {
    let peak = RunList::plain(task).cost(task).unwrap().peak;
    let floor = task.floor().0;
    (0..5).map(|k| Bytes(floor.0 + (peak.0 - floor.0) * k / 4)).collect()
}

fn hammer(strategy: &dyn Scheduler, device: &Device, graph: &Graph, what: &str) -> usize {
    let context = Context::new(device);
    let name = strategy.info().name;
    let truth = Truth::of(graph);
    let mut fitted = 0;
    for replays_random in [false, true] {
        let task = Task::new(graph, &given(graph), InPlace::May, replays_random, &context);
        let mut last: Option<Nanos> = None;
        for budget in budgets(&task) {
            let what = format!("{name}, {what}, replays {replays_random}, {budget:?}");
            let front = match strategy.plan(&task, budget, &context) {
                Ok(front) => front,
                Err(infeasible) => {
                    assert!(last.is_none(), "{what}: a smaller budget was enough");
                    assert!(!infeasible.proved || budget < task.floor().0, "{what}");
                    assert!(infeasible.needed > budget, "{what}: {infeasible:?}");
                    continue;
                }
            };
            fitted += 1;
            let first = &front.points[0];
            assert!(front.bound <= first.cost.time && front.bound >= task.least_time(), "{what}");
            assert!(last.is_none_or(|time| first.cost.time <= time), "{what}: slower with more");
            last = Some(first.cost.time);
            for point in &front.points {
                assert!(point.cost.peak <= budget, "{what}");
                assert_eq!(point.schedule.cost(&task), Some(point.cost), "{what}");
            }
            let program = first.program(&task).unwrap();
            assert_eq!(Profile::of(&program, device.align).peak().0, first.cost.peak, "{what}");
            let mut limits = Limits::arena(Bytes::MAX, device.align);
            limits.replays_random = replays_random;
            judged(graph, Some(&truth), &limits, program.clone(), &what);
            let mut runs = vec![0; graph.op_count()];
            for step in &program.steps {
                if let Step::Compute(compute) = step {
                    runs[compute.op.index()] += 1;
                }
            }
            for id in graph.op_ids().filter(|id| runs[id.index()] > 1) {
                let effect = graph.op(id).effect;
                assert!(effect == Effect::Pure || (effect == Effect::Seeded && replays_random), "{what}");
            }
        }
    }
    fitted
}

#[test]
fn every_strategy_survives_the_judge_and_real_bytes() {
    let device = order_graphs::device();
    for strategy in RECOMPUTES {
        let mut fitted = 0;
        for (seed, ops) in (1..40).zip((0..20).cycle()) {
            let graph = order_graphs::random(seed, ops);
            fitted += hammer(*strategy, &device, &graph, &format!("seed {seed}"));
        }
        for seed in 0..20 {
            let graph = memfit_testkit::graph(seed);
            fitted += hammer(*strategy, &device, &graph, &format!("testkit seed {seed}"));
        }
        assert!(fitted > 60, "{}: {fitted}", strategy.info().name);
    }
}

#[test]
fn what_fits_is_placed_within_the_budget_and_monotone() {
    let device = order_graphs::device();
    let context = Context::new(&device);
    for strategy in RECOMPUTES {
        for (seed, ops) in (1..20).zip((5..24).cycle()) {
            let graph = order_graphs::random(seed, ops);
            let task = Task::new(&graph, &given(&graph), InPlace::May, false, &context);
            let mut last: Option<Nanos> = None;
            for budget in budgets(&task) {
                let limits = Limits::arena(budget, device.align);
                let fitted = fit(*strategy, &task, budget, &context, |program| {
                    let (problem, _) = Problem::of(&graph, program, &limits);
                    PLACERS.last().unwrap().place(&problem, &context).ok().map(|placed| (placed.height, ()))
                });
                match fitted {
                    Ok(done) => {
                        let name = strategy.info().name;
                        assert!(last.is_none_or(|time| done.cost.time <= time), "{name} on seed {seed}");
                        last = Some(done.cost.time);
                    }
                    Err(_) => assert!(last.is_none(), "seed {seed}"),
                }
            }
        }
    }
}
