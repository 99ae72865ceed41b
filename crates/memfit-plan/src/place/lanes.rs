//! Parallel lanes: which items must not share bytes, lest ops the graph leaves unordered get an order.
//!
//! Two items of disjoint lifetimes may share bytes without a new dependency exactly if every op that touches
//! the earlier one comes, in the graph, before the op that defines the later one. [`Keep::Reachable`] keeps
//! apart exactly the others. [`Keep::Colours`] is the heuristic of MXNet's note on memory (NNVM
//! `graph_algorithm.h`): colour the ops of the longest path, then of the longest path in what is left, and
//! share only from an op to an op of its colour; it refuses shares that would be harmless, and one reader of
//! many may still get a new dependency. Source of the example: "Optimizing Memory Consumption in Deep
//! Learning", section on parallel operations.
//!
//! Only compute steps count: transfers run in the order of the program and are awaited. Time
//! O(definers · (ops + accesses) ÷ 64) for reachability, O(k · edges) for k colours; space O(ops) besides
//! the pairs kept apart.

use memfit_ir::{BufferId, Bytes, Csr, Device, Graph, Nanos, OpId, Place, Program, Step};

use memfit_sim::Costs;

use super::problem::{Lanes, Problem};
use crate::dependencies::Dependencies;

/// How ops on parallel lanes are kept unordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Exactly: no placement adds a dependency.
    Reachable,
    /// By so many longest paths: most placements add few.
    Colours(u16),
}

/// The compute ops that touch each item, in the order of the program, and whether the first one defines it.
struct Accesses {
    ops: Csr<OpId>,
    definer: Vec<Option<OpId>>,
}

impl Accesses {
    fn of(program: &Program, item_of: &[usize], items: usize) -> Accesses {
        let mut pairs: Vec<(usize, OpId)> = Vec::new();
        let mut definer = vec![None; items];
        let mut born = vec![false; items];
        for buffer in &program.resident {
            born[item_of[buffer.index()]] = true;
        }
        for step in &program.steps {
            let Step::Compute(compute) = step else { continue };
            let item = |buffer: &BufferId| item_of[buffer.index()];
            let written = program.writes(compute).iter().chain(&compute.workspace).map(item);
            for item in written.clone() {
                if !std::mem::replace(&mut born[item], true) {
                    definer[item] = Some(compute.op);
                }
            }
            pairs.extend(
                program.reads(compute).iter().map(item).chain(written).map(|item| (item, compute.op)),
            );
        }
        Accesses { ops: Csr::from_pairs(items, pairs.into_iter()), definer }
    }
}

/// Fills in `problem.lanes` for the items of `program`, which `item_of` maps buffers to, as
/// [`Problem::of`] does.
pub fn restrict(problem: &mut Problem, graph: &Graph, program: &Program, item_of: &[usize], keep: Keep) {
    let accesses = Accesses::of(program, item_of, problem.items.len());
    let dependencies = Dependencies::of(graph);
    problem.lanes = match keep {
        Keep::Reachable => {
            let unordered = unordered(problem, graph, &accesses, &dependencies);
            Lanes { apart: symmetric(problem.items.len(), &unordered), colours: Vec::new() }
        }
        Keep::Colours(paths) => {
            let colours = colours(graph, &dependencies, paths);
            let of = |op: Option<&OpId>| op.map_or(0, |op| colours[op.index()]);
            let items: Vec<(u16, u16)> = (0..problem.items.len())
                .map(|item| (of(accesses.definer[item].as_ref()), of(accesses.ops.row(item).last())))
                .collect();
            let differ = |earlier: usize, later: usize| items[earlier].1 != items[later].0;
            let pairs = disjoint_pairs(problem, differ);
            Lanes { apart: symmetric(problem.items.len(), &pairs), colours: items }
        }
    };
}

/// Pairs of items, the earlier one first, whose lifetimes do not meet and for which `keep` holds.
fn disjoint_pairs(problem: &Problem, keep: impl Fn(usize, usize) -> bool) -> Vec<(u32, u32)> {
    let items = super::arena::ids(problem.items.len());
    let mut pairs = Vec::new();
    for &later in &items {
        for &earlier in &items {
            let (a, b) = (&problem.items[earlier as usize], &problem.items[later as usize]);
            let living = a.from < a.until && b.from < b.until && a.size > Bytes::ZERO && b.size > Bytes::ZERO;
            if living && a.until <= b.from && keep(earlier as usize, later as usize) {
                pairs.push((earlier, later));
            }
        }
    }
    pairs
}

/// Both directions of `pairs` as rows, ascending.
fn symmetric(items: usize, pairs: &[(u32, u32)]) -> Csr<u32> {
    let mut both: Vec<(usize, u32)> =
        pairs.iter().flat_map(|&(a, b)| [(a as usize, b), (b as usize, a)]).collect();
    if both.is_empty() {
        return Csr::default();
    }
    both.sort_unstable();
    Csr::from_pairs(items, both.into_iter())
}

/// Pairs of items, the earlier one first, of disjoint lifetimes, of which some op that touches the earlier
/// one is not before the op that defines the later one.
fn unordered(
    problem: &Problem,
    graph: &Graph,
    accesses: &Accesses,
    dependencies: &Dependencies,
) -> Vec<(u32, u32)> {
    let mut definers: Vec<OpId> = accesses.definer.iter().flatten().copied().collect();
    definers.sort_unstable();
    definers.dedup();
    let mut by_definer: Vec<(OpId, u32)> =
        accesses.definer.iter().zip(0u32..).filter_map(|(op, item)| Some(((*op)?, item))).collect();
    by_definer.sort_unstable();
    let mut pairs = Vec::new();
    let mut reach = vec![0u64; graph.op_count()];
    for block in definers.chunks(64) {
        // Bit k of an op: it comes before definer k. The graph's order is a valid one.
        reach.fill(0);
        for (bit, definer) in block.iter().enumerate() {
            reach[definer.index()] |= 1 << bit;
        }
        for op in (0..graph.op_count()).rev().map(OpId::at) {
            for after in dependencies.succs(op) {
                reach[op.index()] |= reach[after.index()];
            }
        }
        for (earlier, item) in (0u32..).zip(&problem.items) {
            let ops = accesses.ops.row(earlier as usize);
            for (bit, definer) in block.iter().enumerate() {
                let ordered = ops.iter().all(|op| op != definer && reach[op.index()] >> bit & 1 == 1);
                if ordered {
                    continue;
                }
                let from = by_definer.partition_point(|&(op, _)| op < *definer);
                for &(_, later) in by_definer[from..].iter().take_while(|&&(op, _)| op == *definer) {
                    let other = &problem.items[later as usize];
                    let living = item.from < item.until && other.from < other.until;
                    if living
                        && item.until <= other.from
                        && item.size > Bytes::ZERO
                        && other.size > Bytes::ZERO
                    {
                        pairs.push((earlier, later));
                    }
                }
            }
        }
    }
    pairs
}

/// The colour of each op: 1 for the ops of the longest path, 2 for those of the longest path through what
/// has no colour yet, and so on; what is left after `paths` − 1 has the last colour. Fewer than two paths:
/// all alike.
#[must_use]
pub fn colours(graph: &Graph, dependencies: &Dependencies, paths: u16) -> Vec<u16> {
    let ops = graph.op_count();
    let mut colours = vec![0u16; ops];
    for colour in 1..paths {
        // Most uncoloured ops on a path from each op on, and where that path goes.
        let mut best: Vec<(u32, Option<OpId>)> = vec![(0, None); ops];
        for op in (0..ops).rev().map(OpId::at) {
            let next = dependencies.succs(op).iter().map(|&after| (best[after.index()].0, after));
            let next = next.max_by_key(|&(reward, after)| (reward, std::cmp::Reverse(after)));
            let own = u32::from(colours[op.index()] == 0);
            best[op.index()] = (own + next.map_or(0, |(reward, _)| reward), next.map(|(_, after)| after));
        }
        let start = (0..ops).map(OpId::at).max_by_key(|op| (best[op.index()].0, std::cmp::Reverse(*op)));
        let Some(mut op) = start.filter(|op| best[op.index()].0 > 0) else { break };
        loop {
            if colours[op.index()] == 0 {
                colours[op.index()] = colour;
            }
            match best[op.index()].1 {
                Some(next) => op = next,
                None => break,
            }
        }
    }
    colours.iter_mut().filter(|colour| **colour == 0).for_each(|colour| *colour = paths.max(1));
    colours
}

/// The dependencies that sharing adds: pairs of ops, the first of which must now be over before the second
/// starts although the graph leaves them unordered. Ascending, each once.
#[must_use]
pub fn added(
    problem: &Problem,
    graph: &Graph,
    program: &Program,
    item_of: &[usize],
    places: &[Place],
) -> Vec<(OpId, OpId)> {
    let accesses = Accesses::of(program, item_of, problem.items.len());
    let dependencies = Dependencies::of(graph);
    let end = |item: u32| places[item as usize].offset + problem.items[item as usize].size;
    let shares = |a: u32, b: u32| {
        let (one, other) = (places[a as usize], places[b as usize]);
        one.bank == other.bank && one.offset < end(b) && other.offset < end(a)
    };
    let mut added = Vec::new();
    let mut before = vec![0u64; graph.op_count()];
    let mut pairs = unordered(problem, graph, &accesses, &dependencies);
    pairs.retain(|&(earlier, later)| shares(earlier, later));
    pairs.sort_by_key(|&(_, later)| accesses.definer[later as usize]);
    let mut marked: Option<OpId> = None;
    for (earlier, later) in pairs {
        let Some(definer) = accesses.definer[later as usize] else { continue };
        if marked != Some(definer) {
            before.fill(0);
            before[definer.index()] = 1;
            for op in (0..graph.op_count()).rev().map(OpId::at) {
                let reaches = dependencies.succs(op).iter().any(|after| before[after.index()] == 1);
                before[op.index()] |= u64::from(reaches);
            }
            marked = Some(definer);
        }
        let ops = accesses.ops.row(earlier as usize).iter();
        added.extend(ops.filter(|op| before[op.index()] == 0).map(|&op| (op, definer)));
    }
    added.sort_unstable();
    added.dedup();
    added
}

/// Which lane each op runs on, and when the last one is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Indexed by op; 0 for ops that the program does not run.
    pub lane: Vec<u16>,
    /// Predicted step time.
    pub time: Nanos,
}

/// The graph's ops on `lanes` lanes under its dependencies and `added` ones: a list schedule in the order of the
/// program, each op on the lane that is free first, ties to the lower one. Source: Graham, "Bounds on
/// multiprocessing timing anomalies", 1969.
#[must_use]
pub fn schedule(
    graph: &Graph,
    program: &Program,
    added: &[(OpId, OpId)],
    lanes: u16,
    device: &Device,
) -> Schedule {
    let dependencies = Dependencies::of(graph);
    let after = Csr::from_pairs(graph.op_count(), added.iter().map(|&(first, then)| (then.index(), first)));
    let mut lane_of = vec![0; graph.op_count()];
    let mut done = vec![Nanos::ZERO; graph.op_count()];
    let mut free = vec![Nanos::ZERO; usize::from(lanes.max(1))];
    let costs = Costs::of(graph, device);
    for step in &program.steps {
        let Step::Compute(compute) = step else { continue };
        let before = dependencies.preds(compute.op).iter().chain(after.row(compute.op.index()));
        let ready = before.map(|op| done[op.index()]).max().unwrap_or_default();
        let at = |lane: u16| free[usize::from(lane)].max(ready);
        let lane = (0..lanes.max(1)).min_by_key(|&lane| at(lane)).unwrap_or(0);
        let end = at(lane) + costs.time(compute.op);
        (free[usize::from(lane)], done[compute.op.index()], lane_of[compute.op.index()]) = (end, end, lane);
    }
    Schedule { lane: lane_of, time: free.into_iter().max().unwrap_or_default() }
}

/// Predicted time of the graph's ops on `lanes` lanes, see [`schedule`].
#[must_use]
pub fn step_time(
    graph: &Graph,
    program: &Program,
    added: &[(OpId, OpId)],
    lanes: u16,
    device: &Device,
) -> Nanos {
    schedule(graph, program, added, lanes, device).time
}
