//! Optimizer state that waits in eight bits: judged, right on real bytes, below the floor of what keeps it plain.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_ir::{Bytes, Codec, Content, Graph, InPlace, Limits, OpId, Plan, Role};
use memfit_plan::Context;
use memfit_plan::place::{Problem, by_name};
use memfit_plan::schedule::compress::QuantisedState;
use memfit_plan::schedule::{Scheduler, Task};
use memfit_sim::simulate;
use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::{device, trained};
use memfit_verify::{Rule, verify};

/// Bytes of `graph`'s state.
fn state(graph: &Graph) -> Bytes {
    let is_state = |value: &memfit_ir::Value<'_>| value.role == Role::State && value.producer.is_none();
    graph.value_ids().map(|id| graph.value(id)).filter(is_state).map(|value| value.size).sum()
}

#[test]
fn state_is_at_home_in_eight_bits() {
    let device = device();
    let (mut found, mut below, mut none, mut saved) = (0, 0, 0, 0);
    for seed in 0..30 {
        let graph = trained(2 + usize::try_from(seed % 7).unwrap(), 64, seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed % 2).unwrap()];
        let context = Context { lossy: &[Codec::State8], ..Context::new(&device) };
        let task = Task::new(&graph, &order, in_place, true, &context);
        let (floor, peak) = (task.floor().0, task.reference());
        let plain = Context::new(&device);
        let refused = QuantisedState.plan(&task, peak, &plain).unwrap_err();
        assert!(refused.why.unwrap().contains("`state8` is not allowed"));
        for budget in [peak, floor, Bytes(floor.0 - state(&graph).0 / 4), Bytes(floor.0 / 2)] {
            let what = format!("seed {seed}, {budget}");
            let Ok(front) = QuantisedState.plan(&task, budget, &context) else {
                none += 1;
                continue;
            };
            let point = &front.points[0];
            assert!(point.cost.peak <= budget, "{what}");
            let program = point.program(&task).unwrap();
            let timeline = simulate(&graph, &program, None, &device);
            assert_eq!((timeline.time, timeline.recomputes), (point.cost.time, 0), "{what}");
            let (problem, item_of) = Problem::of(&graph, &program, &Limits::arena(Bytes::MAX, device.align));
            let placement = by_name("dive").unwrap().place(&problem, &context).unwrap();
            let layout = Problem::layout(&placement.places, &item_of);
            let homes = program.resident.iter().map(|buffer| program.buffers[buffer.index()].content);
            let encoded =
                homes.filter(|content| matches!(content, Content::Encoded(_, Codec::State8))).count();
            assert!(encoded > 0, "{what}");
            let plan = Plan { graph: graph.digest(), program, layout };
            let limits =
                Limits { lossy: vec![Codec::State8], ..Limits::arena(placement.height, device.align) };
            if let Err(rejected) = verify(&graph, &limits, plan.clone()) {
                panic!("{what}: {rejected}");
            }
            if let Err(fault) = check(&Truth::of(&graph), &graph, &limits, &plan) {
                panic!("{what}: wrong bytes: {fault:?}");
            }
            // Who has not allowed it is not given it, and each violation says so by name.
            let limits = Limits { lossy: Vec::new(), ..limits };
            let rejected = verify(&graph, &limits, plan).unwrap_err();
            assert!(rejected.violations.iter().all(|violation| violation.rule == Rule::Lossy), "{what}");
            found += 1;
            below += usize::from(budget < floor);
            saved += usize::from(point.cost.peak < floor);
        }
    }
    println!(
        "{found} plans, {below} with budgets below the floor, {saved} that go below it; {none} not found"
    );
    assert!(found > 40 && below > 5 && none > 5);
}
