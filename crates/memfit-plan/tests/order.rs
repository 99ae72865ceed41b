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
fn absurd_alignments_do_not_wrap() {
    let graph = order_graphs::random(3, 50);
    let device = memfit_ir::Device { align: Bytes(1 << 63), ..device() };
    for order in ORDERS {
        assert!(Dependencies::of(&graph).allow(&order.order(&graph, &Context::new(&device))));
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
    for (seed, ops) in (1..600).zip((0..50).cycle()) {
        check(&order_graphs::random(seed, ops), &format!("seed {seed}"));
    }
}

/// Sizes that a quadratic pass or a recursion would not survive.
#[test]
fn every_order_takes_every_shape() {
    let shapes = [
        order_graphs::chain(0),
        order_graphs::chain(1),
        order_graphs::chain(100_000),
        order_graphs::wide(10_000),
        order_graphs::training(1_000),
        order_graphs::tree(10_000, 1, false),
        order_graphs::tree(5_000, 1, true),
        order_graphs::series_parallel(5_000, 1),
        order_graphs::alone(3_000),
        order_graphs::sources_only(),
        order_graphs::random(4, 1_000),
    ];
    for graph in shapes {
        check(&graph, graph.name());
    }
}

fn check(graph: &Graph, what: &str) {
    let device = device();
    let context = Context::new(&device);
    let deps = Dependencies::of(graph);
    let model = Model::new(graph, device.align, InPlace::May);
    let mut least = Bytes::MAX;
    for order in ORDERS {
        let name = order.info().name;
        let chosen = order.order(graph, &context);
        assert!(deps.allow(&chosen), "{name} on {what} breaks a dependency");
        let program = Program::in_order(graph, &chosen, InPlace::May);
        let steps = program.steps.iter().filter(|step| matches!(step, memfit_ir::Step::Compute(_)));
        assert_eq!(steps.count(), graph.op_count(), "{name} on {what}");
        let peak = Profile::of(&program, device.align).peak().0;
        assert_eq!(model.peak(&chosen), peak, "{name} on {what}");
        let bound = lower_bound(graph, device.align).max(model.bound_around(&chosen));
        assert!(peak >= bound, "{name} on {what}: {peak} under the bound {bound}");
        least = least.min(peak);
        if name == "best" {
            assert_eq!(peak, least, "`best` is worse than another order on {what}");
        }
        assert_eq!(order.order(graph, &context), chosen, "{name} on {what} is not deterministic");
    }
}

/// Whenever a time limit ends: a valid order, not above the given one where the order promises that.
#[test]
fn a_stopped_order_is_an_order() {
    let device = device();
    for (seed, ops) in (1..40).zip([5, 30, 90, 1500].into_iter().cycle()) {
        let graph = order_graphs::random(seed, ops);
        let model = Model::new(&graph, device.align, InPlace::May);
        let given: Vec<OpId> = graph.op_ids().collect();
        for polls in [0, 1, 3, 20] {
            for order in ORDERS {
                let left = std::sync::atomic::AtomicUsize::new(polls);
                let stop = || {
                    let relaxed = std::sync::atomic::Ordering::Relaxed;
                    left.fetch_update(relaxed, relaxed, |left| left.checked_sub(1)).is_err()
                };
                let chosen = order.arrange(&model, &Context { stop: &stop, ..Context::new(&device) });
                let name = order.info().name;
                assert!(model.dependencies().allow(&chosen), "{name} on seed {seed} after {polls} polls");
                if name == "best" {
                    assert!(model.peak(&chosen) <= model.peak(&given), "seed {seed} after {polls} polls");
                }
            }
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
