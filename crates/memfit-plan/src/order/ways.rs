//! Ways through a graph, joined and merged until none is left that can be.
//!
//! The machinery of `order/series_parallel.rs`, whose head says what it does; `order/best.rs` uses it once more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use memfit_ir::OpId;

use super::segments::{Chain, Segment, Sequence};
use super::{Ledger, Model};
use crate::Context;

/// The order that `order/series_parallel.rs` describes; values die where they die in `base`.
pub(super) fn arrange(model: &Model, base: &[OpId], context: &Context<'_>) -> Vec<OpId> {
    let mut ledger = Ledger::new(model);
    let mut costs = vec![(0, 0); model.op_count()];
    for &op in base {
        costs[op.index()] = (ledger.needs(op), ledger.leaves(op));
        ledger.run(op);
    }
    let mut ways = Ways::new(model, costs);
    ways.reduce(context);
    ways.schedule()
}

/// Sequences between the same two nodes.
struct Way {
    from: usize,
    to: usize,
    all: Vec<Sequence>,
}

/// Ways that end, or begin, at a node: how many, and the exclusive or of their indices: with one, its index.
#[derive(Clone, Copy, Default)]
struct Ends {
    count: usize,
    all: usize,
}

impl Ends {
    fn add(&mut self, way: usize) {
        self.count += 1;
        self.all ^= way;
    }

    fn remove(&mut self, way: usize) {
        self.count -= 1;
        self.all ^= way;
    }
}

/// The graph as nodes and ways. Nodes are the ops and, after them, one before all and one after all.
struct Ways {
    costs: Vec<(i64, i64)>,
    ways: Vec<Way>,
    between: HashMap<(usize, usize), usize>,
    into: Vec<Ends>,
    out: Vec<Ends>,
    chain: Chain,
    /// Ops that have become part of a way.
    gone: Vec<bool>,
}

impl Ways {
    fn new(model: &Model, costs: Vec<(i64, i64)>) -> Ways {
        let ops = model.op_count();
        let mut ways = Ways {
            costs,
            ways: Vec::new(),
            between: HashMap::new(),
            into: vec![Ends::default(); ops + 2],
            out: vec![Ends::default(); ops + 2],
            chain: Chain::new(ops),
            gone: vec![false; ops],
        };
        for op in (0..ops).map(OpId::at) {
            if model.deps.preds(op).is_empty() {
                ways.add(ops, op.index(), Sequence::default());
            }
            if model.deps.succs(op).is_empty() {
                ways.add(op.index(), ops + 1, Sequence::default());
            }
            model.deps.succs(op).iter().for_each(|to| ways.add(op.index(), to.index(), Sequence::default()));
        }
        ways
    }

    fn add(&mut self, from: usize, to: usize, sequence: Sequence) {
        let fresh = self.ways.len();
        let way = *self.between.entry((from, to)).or_insert(fresh);
        if way == fresh {
            self.ways.push(Way { from, to, all: Vec::new() });
            self.out[from].add(way);
            self.into[to].add(way);
        }
        self.ways[way].all.push(sequence);
    }

    /// Takes a way out of the graph; returns the node at its other end and its sequences as one.
    fn remove(&mut self, way: usize) -> (usize, usize, Sequence) {
        let Way { from, to, ref mut all } = self.ways[way];
        let all = std::mem::take(all);
        self.between.remove(&(from, to));
        self.out[from].remove(way);
        self.into[to].remove(way);
        (from, to, Sequence::beside(all, &mut self.chain))
    }

    /// Joins every op that has one way in and one way out, until there is none, or until stopped.
    fn reduce(&mut self, context: &Context<'_>) {
        let ops = self.gone.len();
        let mut open: Vec<usize> = (0..ops).rev().collect();
        let mut turn = 0usize;
        while let Some(op) = open.pop() {
            turn += 1;
            if turn.is_multiple_of(1024) && (context.stop)() {
                return;
            }
            if op >= ops || self.gone[op] || self.into[op].count != 1 || self.out[op].count != 1 {
                continue;
            }
            self.gone[op] = true;
            let (from, _, before) = self.remove(self.into[op].all);
            let (_, to, after) = self.remove(self.out[op].all);
            let middle = Sequence::of(super::model::index(op), self.costs[op]);
            let joined = before.then(middle, &mut self.chain).then(after, &mut self.chain);
            self.add(from, to, joined);
            open.extend([to, from]);
        }
    }

    /// All ops: segments and what was not joined, one by one.
    fn schedule(mut self) -> Vec<OpId> {
        let ops = self.gone.len();
        let mut waiting: Vec<usize> = self.into.iter().map(|ends| ends.count).collect();
        let mut tasks: Vec<Task> = Vec::new();
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); ops + 2]; // The tasks that begin at each node.
        for way in 0..self.ways.len() {
            let Way { from, to, ref mut all } = self.ways[way];
            if !all.is_empty() {
                let all = Sequence::beside(std::mem::take(all), &mut self.chain);
                after[from].push(tasks.len());
                tasks.push(Task { to, left: all.segments().collect() });
            }
        }
        let mut order: Vec<OpId> = Vec::with_capacity(ops);
        let mut ready: BinaryHeap<Reverse<(Rank, usize)>> = BinaryHeap::new();
        let mut done = vec![ops]; // Nodes that are done: at the start the one before all.
        loop {
            while let Some(node) = done.pop() {
                for &task in &after[node] {
                    match tasks[task].left.front() {
                        Some(segment) => ready.push(Reverse((rank(segment), ops + task))),
                        None => arrive(tasks[task].to, &mut waiting, &self.costs, &mut ready),
                    }
                }
            }
            let Some(Reverse((_, at))) = ready.pop() else { return order };
            if at < ops {
                order.push(OpId::at(at));
                done.push(at);
                continue;
            }
            let task = &mut tasks[at - ops];
            let Some(segment) = task.left.pop_front() else { continue };
            order.extend(self.chain.ops(&segment).map(OpId));
            match task.left.front() {
                Some(segment) => ready.push(Reverse((rank(segment), at))),
                None => arrive(task.to, &mut waiting, &self.costs, &mut ready),
            }
        }
    }
}

/// A way that is run segment by segment.
struct Task {
    to: usize,
    left: std::collections::VecDeque<Segment>,
}

/// What goes down comes first, by ascending hill; then what falls most from its hill.
type Rank = (bool, i64);

fn rank(segment: &Segment) -> Rank {
    if segment.net <= 0 { (false, segment.hill) } else { (true, -segment.hill_from_end()) }
}

/// One of the ways into a node is done.
fn arrive(
    node: usize,
    waiting: &mut [usize],
    costs: &[(i64, i64)],
    ready: &mut BinaryHeap<Reverse<(Rank, usize)>>,
) {
    waiting[node] -= 1;
    if let Some(&(needs, leaves)) = costs.get(node).filter(|_| waiting[node] == 0) {
        let rank = if leaves <= 0 { (false, needs) } else { (true, leaves - needs) };
        ready.push(Reverse((rank, node)));
    }
}
