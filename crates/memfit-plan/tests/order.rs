//! Every order, on every random graph, keeps the constraints; the evaluator equals a full recount.

mod order_graphs;

use memfit_ir::{Bytes, Graph, InPlace, OpId, Program};
use memfit_plan::Context;
use memfit_plan::dependencies::Dependencies;
use memfit_plan::liveness::Profile;
use memfit_plan::order::{Ledger, Model, ORDERS, lower_bound, peak};
use order_graphs::device;

fn recount(graph: &Graph, order: &[OpId], align: Bytes, in_place: InPlace) -> Bytes {
    Profile::of(&Program::in_order(graph, order, in_place), align).peak().0
}

#[test]
fn the_evaluator_equals_a_full_recount() {
    for (seed, ops) in (1..3000).zip((1..41).cycle()) {
        let graph = order_graphs::random(seed, ops);
        for in_place in [InPlace::Must, InPlace::May] {
            for align in [Bytes(1), Bytes(8), Bytes(512)] {
                let order = order_graphs::random_order(&graph, seed);
                let fast = peak(&graph, &order, align, in_place);
                assert_eq!(
                    fast,
                    recount(&graph, &order, align, in_place),
                    "seed {seed} {in_place:?} {align}"
                );
            }
        }
    }
}

#[test]
fn what_is_taken_back_was_as_it_was_run() {
    for seed in 1..500 {
        let graph = order_graphs::random(seed, 30);
        let model = Model::new(&graph, Bytes(8), InPlace::May);
        let mut ledger = Ledger::new(&model);
        let mut costs = Vec::new();
        for op in order_graphs::random_order(&graph, seed) {
            costs.push((op, ledger.needs(op), ledger.leaves(op), ledger.live()));
            ledger.run(op);
        }
        assert_eq!(ledger.live(), Ledger::finished(&model).live());
        let mut finished = Ledger::finished(&model);
        for &(op, needs, leaves, live) in costs.iter().rev() {
            for ledger in [&mut ledger, &mut finished] {
                assert_eq!(ledger.last(op), (needs, leaves), "seed {seed} {op}");
                ledger.unrun(op);
                assert_eq!(ledger.live(), live, "seed {seed} {op}");
            }
        }
    }
}

#[test]
fn every_order_keeps_the_constraints_and_makes_all_results() {
    let device = device();
    let context = Context::new(&device);
    for (seed, ops) in (1..1500).zip((0..60).cycle()) {
        let graph = order_graphs::random(seed, ops);
        let deps = Dependencies::of(&graph);
        let bound = lower_bound(&graph, device.align);
        let mut least = Bytes::MAX;
        for order in ORDERS {
            let name = order.info().name;
            let chosen = order.order(&graph, &context);
            assert!(deps.allow(&chosen), "{name} on seed {seed}: {chosen:?}");
            let program = Program::in_order(&graph, &chosen, InPlace::May);
            let steps = program.steps.iter().filter(|step| matches!(step, memfit_ir::Step::Compute(_)));
            assert_eq!(steps.count(), graph.op_count(), "{name} on seed {seed}");
            let peak = Profile::of(&program, device.align).peak().0;
            assert!(peak >= bound, "{name} on seed {seed}: {peak} under the bound {bound}");
            least = least.min(peak);
            if name == "best" {
                assert_eq!(peak, least, "seed {seed}: `best` is worse than another order");
            }
            assert_eq!(order.order(&graph, &context), chosen, "{name} on seed {seed} is not deterministic");
        }
    }
}

/// The reference that `lpmf` is: a scan of the whole ready set at every turn, every account made anew.
#[test]
fn lpmf_equals_its_definition() {
    let device = device();
    for (seed, ops) in (1..400).zip((0..40).cycle()) {
        let graph = order_graphs::random(seed, ops);
        let model = Model::new(&graph, device.align, InPlace::May);
        let deps = model.dependencies();
        let mut ledger = Ledger::new(&model);
        let sources = graph.value_ids().filter(|&value| graph.value(value).producer.is_none());
        let size = |value: memfit_ir::ValueId| graph.value(value).size.round_up(device.align);
        let (start, end): (Bytes, Bytes) =
            (sources.map(size).sum(), graph.results().iter().copied().map(size).sum());
        let mut peak = start.max(end);
        let mut order: Vec<OpId> = Vec::new();
        while order.len() < graph.op_count() {
            let ready = graph.op_ids().filter(|op| !order.contains(op));
            let ready: Vec<OpId> =
                ready.filter(|&op| deps.preds(op).iter().all(|before| order.contains(before))).collect();
            let ready = ready.iter().copied();
            let room = i64::try_from(peak.0).unwrap() - ledger.live();
            let next = if ready.clone().any(|op| ledger.needs(op) <= room) {
                ready.filter(|&op| ledger.needs(op) <= room).min_by_key(|&op| (ledger.leaves(op), op))
            } else {
                ready.min_by_key(|&op| (ledger.needs(op), ledger.leaves(op), op))
            };
            let next = next.unwrap();
            let hill = ledger.run(next);
            peak = peak.max(Bytes(u64::try_from(hill).unwrap()));
            order.push(next);
        }
        let lpmf = memfit_plan::order::by_name("lpmf").unwrap();
        assert_eq!(lpmf.order(&graph, &Context::new(&device)), order, "seed {seed}");
    }
}
