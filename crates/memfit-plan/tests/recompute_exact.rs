//! Small graphs: every schedule there is, by brute force, against what the strategies find and prove.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod order_graphs;

use std::collections::{BTreeMap, BTreeSet};

use memfit_ir::{Bytes, Graph, GraphBuilder, InPlace, Nanos, OpId, OpSpec, ValueId, ValueSpec};
use memfit_plan::Context;
use memfit_plan::families::Named;
use memfit_plan::schedule::{RunList, Task};
use order_graphs::Random;

/// Ops with one output each and up to three inputs.
fn small(seed: u64, ops: usize) -> Graph {
    let random = &mut Random::new(seed);
    let mut b = GraphBuilder::new("small");
    let skip = random.below(3);
    for at in 0..ops {
        let size = Bytes(8 * (1 + random.below(4)) as u64);
        let value = b.value(ValueSpec { size, ..ValueSpec::default() }).unwrap();
        let mut reads: BTreeSet<usize> = BTreeSet::new();
        if at > 0 {
            reads.insert(at - 1);
            for _ in 0..skip {
                reads.insert(random.below(at));
            }
            // As backward does: the mirror image.
            if at > ops / 2 {
                reads.insert(ops - at);
            }
        }
        reads.retain(|&read| read < at);
        let spec = OpSpec {
            reads: reads.into_iter().map(ValueId::at).collect(),
            writes: vec![value],
            time: Some(Nanos(1 + random.below(9) as u64)),
            ..OpSpec::default()
        };
        b.op(spec).unwrap();
    }
    b.finish().unwrap()
}

/// The least time of any schedule within `budget`: Dijkstra over (next op, what is live).
fn brute(graph: &Graph, budget: u64) -> Option<u64> {
    let ops = graph.op_count();
    let size = |at: usize| graph.value(ValueId::at(at)).size.0;
    let bytes = |live: u32| (0..ops).filter(|at| live >> at & 1 == 1).map(size).sum::<u64>();
    let needs =
        |at: usize| graph.op(OpId::at(at)).reads.iter().fold(0u32, |set, value| set | 1 << value.index());
    let mut best: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    let mut queue: BTreeSet<(u64, usize, u32)> = BTreeSet::from([(0, 0, 0)]);
    while let Some((time, next, live)) = queue.pop_first() {
        if next == ops {
            return Some(time);
        }
        if best.get(&(next, live)).is_some_and(|&known| known <= time) {
            continue;
        }
        best.insert((next, live), time);
        for at in 0..=next {
            let set = live | 1 << at;
            if live >> at & 1 == 0 && needs(at) & !live == 0 && bytes(set) <= budget {
                let cost = graph.op(OpId::at(at)).time.unwrap().0;
                queue.insert((time + cost, next + usize::from(at == next), set));
            }
        }
        for at in (0..ops).filter(|at| live >> at & 1 == 1) {
            queue.insert((time, next, live & !(1 << at)));
        }
    }
    None
}

#[test]
fn best_meets_brute_force_and_no_bound_is_above_it() {
    let device = order_graphs::device();
    let context = Context::new(&device);
    let strategy = Named::called("recompute:best").unwrap().scheduler;
    let (mut cells, mut missed, mut proved) = (0, 0, 0);
    for seed in 1..80 {
        let graph = small(seed, 4 + usize::try_from(seed % 6).unwrap());
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::Must, false, &context);
        let peak = RunList::plain(&task).cost(&task).unwrap().peak.0;
        for budget in (task.floor().0.0..=peak).step_by(8) {
            let least = brute(&graph, budget);
            let found = strategy.plan(&task, Bytes(budget), &context);
            let what = format!("seed {seed}, {budget} B of {peak}");
            match (least, found) {
                (Some(least), Ok(front)) => {
                    cells += 1;
                    assert!(front.points[0].cost.time.0 >= least, "{what}");
                    assert!(front.bound.0 <= least, "{what}: bound {} above {least}", front.bound);
                    assert!(!front.proved || front.points[0].cost.time.0 == least, "{what}");
                    if front.points[0].cost.time.0 > least {
                        missed += 1;
                        println!("{what}: {} instead of {least}", front.points[0].cost.time);
                    }
                    proved += usize::from(front.proved);
                }
                (Some(_), Err(_)) => {
                    missed += 1;
                    println!("{what}: nothing found");
                }
                (None, Ok(_)) => panic!("{what}: brute force finds nothing"),
                (None, Err(infeasible)) => assert!(!infeasible.proved, "{what}: not below the floor"),
            }
        }
    }
    assert!(cells > 150 && proved > 50, "{cells} cells, {proved} proved");
    assert!(missed * 20 <= cells, "{missed} of {cells} cells are not optimal");
}

#[test]
fn the_integer_programme_proves_only_what_is_true() {
    let device = order_graphs::device();
    let context = Context::new(&device);
    let strategy = Named::called("recompute:checkmate").unwrap().scheduler;
    let (mut cells, mut proved) = (0, 0);
    for seed in 1..40 {
        let graph = small(seed, 4 + usize::try_from(seed % 5).unwrap());
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::Must, false, &context);
        let peak = RunList::plain(&task).cost(&task).unwrap().peak.0;
        for budget in (task.floor().0.0..peak).step_by(16) {
            let Some(least) = brute(&graph, budget) else { continue };
            let Ok(front) = strategy.plan(&task, Bytes(budget), &context) else { continue };
            let what = format!("seed {seed}, {budget} B of {peak}");
            cells += 1;
            assert!(front.points[0].cost.time.0 >= least, "{what}");
            proved += usize::from(front.proved);
            assert!(!front.proved || front.points[0].cost.time.0 == least, "{what}: {front:?}, {least}");
        }
    }
    assert!(proved * 10 > cells * 9, "{proved} proved of {cells}");
}
