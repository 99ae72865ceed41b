//! `best` against the exhaustive optimum.

mod order_graphs;

use memfit_ir::{Bytes, Device, Graph, InPlace, OpId, Program};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::order::{Ledger, Model, Ordered, best, by_name, lower_bound};

/// The smallest peak over all orders: for each set of ops, in ascending numbers, the best way to run it.
fn optimum(graph: &Graph, align: Bytes) -> Bytes {
    let model = Model::new(graph, align, InPlace::May);
    let ops = graph.op_count();
    let preds =
        |op: usize| model.dependencies().preds(OpId::at(op)).iter().fold(0usize, |all, op| all | 1 << op.0);
    let preds: Vec<usize> = (0..ops).map(preds).collect();
    let mut peak = vec![i64::MAX; 1 << ops];
    peak[0] = 0;
    for set in 0..1usize << ops {
        if peak[set] == i64::MAX {
            continue;
        }
        let mut ledger = Ledger::new(&model);
        (0..ops).filter(|op| set >> op & 1 == 1).for_each(|op| {
            ledger.run(OpId::at(op));
        });
        for op in (0..ops).filter(|&op| set >> op & 1 == 0 && preds[op] & !set == 0) {
            let hill = ledger.live() + ledger.needs(OpId::at(op));
            peak[set | 1 << op] = peak[set | 1 << op].min(peak[set].max(hill));
        }
    }
    Bytes(u64::try_from(peak[(1 << ops) - 1]).unwrap_or(0)).max(model.peak(&[]))
}

#[test]
fn best_equals_the_exhaustive_optimum() {
    let align = Bytes(8);
    let device = Device { align, ..order_graphs::device() };
    let (mut at_bound, mut better) = (0, 0);
    for (seed, ops) in (1..=10_000).zip((1..=12).cycle()) {
        let graph = order_graphs::random(seed, ops);
        let model = Model::new(&graph, align, InPlace::May);
        let Ordered { order, peak: counted, bound: proved } = best(&model, &Context::new(&device));
        let peak = Profile::of(&Program::in_order(&graph, &order, InPlace::May), align).peak().0;
        let optimum = optimum(&graph, align);
        assert_eq!((peak, counted, proved), (optimum, optimum, optimum), "seed {seed}");
        let bound = lower_bound(&graph, align).max(model.bound_around(&order));
        assert!(bound <= optimum, "seed {seed}: the bound {bound} is above {optimum}");
        at_bound += u32::from(bound == optimum);
        let given: Vec<OpId> = graph.op_ids().collect();
        better += u32::from(optimum < Model::new(&graph, align, InPlace::May).peak(&given));
    }
    println!("bound met {at_bound}, better than given {better} of 10000");
}

#[test]
fn series_parallel_is_optimal_on_trees_and_series_parallel_graphs() {
    let device = order_graphs::device();
    let order = by_name("series-parallel").unwrap();
    for seed in 1..1500 {
        let ops = 3 + usize::try_from(seed % 10).unwrap();
        for graph in [
            order_graphs::tree(ops, seed, true),
            order_graphs::tree(ops, seed, false),
            order_graphs::series_parallel(ops, seed),
        ] {
            let chosen = order.order(&graph, &Context::new(&device));
            let peak = Model::new(&graph, device.align, InPlace::May).peak(&chosen);
            if graph.op_count() <= 13 {
                assert_eq!(peak, optimum(&graph, device.align), "{} seed {seed}", graph.name());
            }
        }
    }
}
