//! A graph in a fixed order of first runs, reduced to what recomputation needs: who makes and reads what, how
//! large, how long, and what may run again.

use memfit_ir::{Bytes, Codec, Csr, Device, Effect, Graph, InPlace, Nanos, OpId, Program, ValueId};

use crate::Context;
use crate::liveness::Profile;
use crate::order::{Ledger, Model};

use memfit_sim::Costs;

/// How a snapshot of a small persistent storage is held. Lossless, and a buffer of its own.
pub(super) const SNAPSHOT: Codec = Codec::Zvc;

/// Snapshots are taken of storages that are at least this many times smaller than what the op makes.
const SMALL: i64 = 16;

/// No node: of values that nothing makes or eats.
pub(super) const NONE: u32 = u32::MAX;

/// An output that takes over an input's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Take {
    pub(super) output: u32,
    pub(super) input: u32,
    pub(super) must: bool,
}

/// The question that every strategy of this family answers: which ops run again, and when.
///
/// A *node* is an op, numbered by its place in the order of first runs. Bytes are those of buffers rounded up
/// to the alignment. Storages that live from before the first step to after the last are counted once, as a
/// constant, whatever their versions. Made once, shared by all strategies. Flat arrays; O(ops + operands).
///
/// An op that mutates a small persistent storage beside what it makes (batch norm and its running statistics)
/// may run again too: on a *snapshot*, encoded without loss before its first run, so that the storage itself
/// is mutated once and all bytes come out the same.
#[derive(Clone, Debug)]
pub struct Task<'g> {
    pub(super) graph: &'g Graph,
    pub(super) order: Vec<OpId>,
    /// By node: run time in ns.
    pub(super) cost: Vec<u64>,
    /// By node: scratch bytes.
    pub(super) work: Vec<i64>,
    /// By node: values read, each once.
    pub(super) reads: Csr<u32>,
    /// By node: values defined.
    pub(super) writes: Csr<u32>,
    /// By node: takeovers in the order in which they are tried, demanded ones first.
    pub(super) takes: Csr<Take>,
    /// By node: what a run reads and defines that is not the first: without what comes from snapshots.
    pub(super) reads_again: Csr<u32>,
    pub(super) writes_again: Csr<u32>,
    /// By node: `(input, output)` of the persistent storages it mutates, if it may run again on snapshots.
    pub(super) snapped: Csr<(u32, u32)>,
    /// By node: bytes of its snapshots.
    pub(super) snapshot: Vec<i64>,
    /// By node: scratch bytes of a later run.
    pub(super) work_again: Vec<i64>,
    /// By node: time of a later run, snapshots unpacked.
    pub(super) cost_again: Vec<u64>,
    /// Bytes of all snapshots that may be taken.
    pub(super) snapshots: i64,
    /// By node: whether it may run more than once.
    pub(super) repeats: Vec<bool>,
    /// By value: bytes; 0 for those in `constant`.
    pub(super) size: Vec<i64>,
    /// By value: the node that defines it.
    pub(super) maker: Vec<u32>,
    /// By value: whether it must be there at the end.
    pub(super) kept: Vec<bool>,
    /// By value: the node that mutates it, after whose run it is gone.
    pub(super) eater: Vec<u32>,
    /// By value: the nodes that read it, ascending.
    pub(super) readers: Csr<u32>,
    /// By node: it can't run again once this node has run, which mutates what it reads for good.
    pub(super) deadline: Vec<u32>,
    /// Bytes of the storages that are always there.
    pub(super) constant: i64,
    /// Bytes of the other sources, which are all there before the first step.
    pub(super) sources: i64,
    /// What 100 % of the peak means to people: the live peak of the graph as it was given.
    pub(super) reference: Bytes,
}

impl<'g> Task<'g> {
    /// The task of running `graph` with first runs in `order`, a permutation of its ops that its dependencies
    /// allow, with ops that give back more than they make brought forward ([`early`]). In-place pairs are taken up as `in_place` says; seeded ops run again only where the host
    /// replays generator state. Costs and alignment come from the context's device.
    #[must_use]
    pub fn new(
        graph: &'g Graph,
        order: &[OpId],
        in_place: InPlace,
        replays_random: bool,
        context: &Context<'_>,
    ) -> Task<'g> {
        let device = context.device;
        let order = &early(graph, order, in_place, device.align);
        let rounded = |bytes: Bytes| i64::try_from(bytes.round_up(device.align).0).unwrap_or(i64::MAX >> 1);
        let mut node_of = vec![NONE; graph.op_count()];
        for (node, op) in order.iter().enumerate() {
            node_of[op.index()] = narrow(node);
        }
        let count = graph.value_count();
        let lasting = lasting(graph);
        let mut size: Vec<i64> = graph.value_ids().map(|value| rounded(graph.value(value).size)).collect();
        let is_source = |value: ValueId| graph.value(value).producer.is_none();
        let (mut constant, mut sources) = (0i64, 0i64);
        for value in graph.value_ids() {
            if is_source(value) {
                let total = if lasting[value.index()] { &mut constant } else { &mut sources };
                *total += size[value.index()];
            }
        }
        let maker: Vec<u32> = graph
            .value_ids()
            .map(|value| graph.value(value).producer.map_or(NONE, |op| node_of[op.index()]))
            .collect();
        let (mut reads, mut writes, mut takes) = (Csr::default(), Csr::default(), Csr::default());
        let mut eater = vec![NONE; count];
        let mut pairs: Vec<(usize, u32)> = Vec::new();
        let mut seen = vec![NONE; count];
        for (node, &id) in order.iter().enumerate() {
            let op = graph.op(id);
            let node = narrow(node);
            let from = pairs.len();
            let fresh = |value: &&ValueId| std::mem::replace(&mut seen[value.index()], node) != node;
            pairs.extend(op.reads.iter().filter(fresh).map(|value| (value.index(), node)));
            reads.push(pairs[from..].iter().map(|&(value, _)| narrow(value)));
            writes.push(op.writes.iter().map(|value| value.0));
            let must = op.reuses.iter().filter(|pair| pair.must);
            let demanded = |input| op.reuses.iter().any(|pair| pair.must && pair.input == input);
            let forced = |output| op.reuses.iter().any(|pair| pair.must && pair.output == output);
            for pair in must.clone() {
                eater[pair.input.index()] = node;
            }
            let must = must.map(|pair| Take { output: pair.output.0, input: pair.input.0, must: true });
            let outputs = op.writes.iter().filter(|&&output| in_place == InPlace::May && !forced(output));
            let may =
                outputs.flat_map(|&output| {
                    let pairs = op.reuses.iter().filter(move |pair| pair.output == output);
                    pairs
                        .filter(|pair| !demanded(pair.input) && !lasting[pair.input.index()])
                        .map(|pair| Take { output: pair.output.0, input: pair.input.0, must: false })
                });
            takes.push(must.chain(may));
        }
        for value in (0..count).filter(|&value| lasting[value]) {
            size[value] = 0;
        }
        let costs = Costs::of(graph, device);
        let cost: Vec<u64> = order.iter().map(|&op| costs.time(op).0).collect();
        let work: Vec<i64> = order.iter().map(|&op| rounded(graph.op(op).workspace)).collect();
        let mut task = Task {
            graph,
            order: order.to_vec(),
            cost_again: cost.clone(),
            cost,
            work_again: work.clone(),
            work,
            reads_again: Csr::default(),
            writes_again: Csr::default(),
            snapped: Csr::default(),
            snapshot: vec![0; order.len()],
            snapshots: 0,
            readers: Csr::from_pairs(count, pairs.iter().copied()),
            reads,
            writes,
            takes,
            repeats: Vec::new(),
            size,
            maker,
            kept: graph.value_ids().map(|value| graph.is_result(value)).collect(),
            eater,
            deadline: Vec::new(),
            constant,
            sources,
            reference: Profile::of(&Program::eager(graph), device.align).peak().0,
        };
        task.find_repeatable(replays_random, &lasting, device);
        task
    }

    /// Fills `repeats`, `deadline` and all about snapshots.
    fn find_repeatable(&mut self, replays_random: bool, lasting: &[bool], device: &Device) {
        let graph = self.graph;
        let rounded = |bytes: Bytes| signed(bytes.round_up(device.align));
        let size = |value: u32| graph.value(ValueId(value)).size;
        for node in 0..self.order.len() {
            let effect = graph.op(self.order[node]).effect;
            let mut repeats = match effect {
                Effect::Pure => true,
                Effect::Seeded => replays_random,
                Effect::Once | Effect::Collective => false,
            };
            // Persistent storages that it mutates: small ones can be kept as they were.
            let must = self.takes.row(node).iter().filter(|take| take.must && lasting[take.output as usize]);
            let mut snapped: Vec<(u32, u32)> = must.map(|take| (take.input, take.output)).collect();
            let held = |value: u32| rounded(SNAPSHOT.bound(size(value)));
            let snapshot: i64 = snapped.iter().map(|&(input, _)| held(input)).sum();
            let made: i64 = self.writes.row(node).iter().map(|&value| self.size[value as usize]).sum();
            if !repeats || snapped.is_empty() || snapshot > made / SMALL {
                repeats &= snapped.is_empty();
                snapped.clear();
            } else {
                let moved = |value: u32| size(value).0 + SNAPSHOT.bound(size(value)).0;
                let rate = device.bandwidth * device.efficiency.1;
                for &(input, _) in &snapped {
                    let time = Nanos::from_secs_f64(moved(input) as f64 / rate).max(device.launch);
                    self.work_again[node] += rounded(size(input));
                    self.cost_again[node] = self.cost_again[node].saturating_add(time.0.min(1 << 40));
                }
                self.snapshot[node] = snapshot;
                self.snapshots += snapshot;
            }
            let kept =
                |value: &u32| !snapped.iter().any(|&(input, output)| *value == input || *value == output);
            let reads: Vec<u32> = self.reads.row(node).iter().copied().filter(kept).collect();
            let mut deadline = NONE;
            for &value in &reads {
                let eater = self.eater[value as usize];
                if eater != NONE && !self.again(value) {
                    repeats &= eater as usize != node;
                    deadline = deadline.min(eater);
                }
            }
            self.reads_again.push(reads);
            self.writes_again.push(self.writes.row(node).iter().copied().filter(kept));
            self.snapped.push(snapped);
            self.repeats.push(repeats);
            self.deadline.push(deadline);
        }
    }

    /// What a run of `node` reads.
    pub(super) fn reads_of(&self, node: u32, first: bool) -> &[u32] {
        if first { self.reads.row(node as usize) } else { self.reads_again.row(node as usize) }
    }

    /// What a run of `node` defines.
    pub(super) fn writes_of(&self, node: u32, first: bool) -> &[u32] {
        if first { self.writes.row(node as usize) } else { self.writes_again.row(node as usize) }
    }

    /// Scratch bytes of a run of `node`.
    pub(super) fn work_of(&self, node: u32, first: bool) -> i64 {
        if first { self.work[node as usize] } else { self.work_again[node as usize] }
    }

    /// Number of ops.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.order.len()
    }

    /// Time of running every op once.
    #[must_use]
    pub fn base_time(&self) -> Nanos {
        self.cost.iter().map(|&cost| Nanos(cost)).sum()
    }

    /// The live peak of the graph as it was given: every op once, in its own order, in place only where it must.
    #[must_use]
    pub fn reference(&self) -> Bytes {
        self.reference
    }

    /// No schedule in this order needs fewer bytes, and the op that forces it: the always-resident storages
    /// plus the largest working set of one op, all sources at the start, all results at the end. `None`
    /// where the start or the end forces it.
    #[must_use]
    pub fn floor(&self) -> (Bytes, Option<OpId>) {
        let ends: i64 = (0..self.size.len()).filter(|&v| self.kept[v]).map(|v| self.size[v]).sum();
        if self.nodes() == 0 {
            return (super::Schedule::plain(self).cost(self).map_or(Bytes::ZERO, |cost| cost.peak), None);
        }
        let mut floor = (self.sources.max(ends), None);
        for node in 0..self.nodes() {
            let alone = self.alone(node);
            if alone > floor.0 {
                floor = (alone, Some(self.order[node]));
            }
        }
        (bytes(self.constant + floor.0), floor.1)
    }

    /// The least bytes beside `constant` with which `node` can run: its operands and scratch, an output over
    /// an input wherever a pair permits.
    pub(super) fn alone(&self, node: usize) -> i64 {
        let sum = |values: &[u32]| -> i64 { values.iter().map(|&value| self.size[value as usize]).sum() };
        let taken =
            self.taken(node, |value| !self.kept[value as usize] || self.eater[value as usize] != NONE);
        sum(self.reads.row(node)) + sum(self.writes.row(node)) + self.work[node] - taken
    }

    /// Bytes that outputs of `node` take over, if those inputs end with it of which `dies` says so. Allocates
    /// nothing where there is at most one pair.
    pub(super) fn taken(&self, node: usize, dies: impl Fn(u32) -> bool) -> i64 {
        let takes = self.takes.row(node);
        match takes {
            [] => 0,
            [take] => {
                if take.must || dies(take.input) {
                    self.size[take.output as usize]
                } else {
                    0
                }
            }
            _ => {
                let mut sum = 0;
                self.each_taken(node, dies, |take| sum += self.size[take.output as usize]);
                sum
            }
        }
    }

    /// Calls `found` for each takeover that happens, in order.
    pub(super) fn each_taken(&self, node: usize, dies: impl Fn(u32) -> bool, mut found: impl FnMut(Take)) {
        let mut gone: Vec<u32> = Vec::new();
        let mut served = NONE;
        for &take in self.takes.row(node) {
            if take.must || (served != take.output && !gone.contains(&take.input) && dies(take.input)) {
                served = take.output;
                gone.push(take.input);
                found(take);
            }
        }
    }

    /// Whether `value` can be made again by running an op again.
    pub(super) fn again(&self, value: u32) -> bool {
        let maker = self.maker[value as usize];
        maker != NONE && self.repeats[maker as usize]
    }
}

/// `order`, with every op that leaves fewer bytes live than it found run as soon as it may, as long as that
/// doesn't raise the peak: an optimizer's update right after its gradient instead of after all gradients, which
/// nothing but running the backward pass again could make room for. Time O(ops + operands).
#[must_use]
pub fn early(graph: &Graph, order: &[OpId], in_place: InPlace, align: Bytes) -> Vec<OpId> {
    let model = Model::new(graph, align, in_place);
    let deps = model.dependencies();
    if !deps.allow(order) {
        return order.to_vec();
    }
    let peak = signed(model.peak(order));
    let mut left: Vec<usize> = graph.op_ids().map(|op| deps.preds(op).len()).collect();
    let mut done = vec![false; order.len()];
    let mut ledger = Ledger::new(&model);
    let mut early = Vec::with_capacity(order.len());
    for &next in order {
        let mut todo = vec![next];
        while let Some(op) = todo.pop() {
            let small = || ledger.leaves(op) < 0 && ledger.live().saturating_add(ledger.needs(op)) <= peak;
            if done[op.index()] || left[op.index()] > 0 || (op != next && !small()) {
                continue;
            }
            ledger.run(op);
            done[op.index()] = true;
            early.push(op);
            for &after in deps.succs(op) {
                left[after.index()] -= 1;
            }
            // Whoever may run now, or is the last to read something now; lowest number first.
            let last = graph.op(op).reads.iter().filter_map(|value| ledger.last_reader(value.0));
            let from = todo.len();
            todo.extend(deps.succs(op).iter().copied().chain(last));
            todo[from..].sort_unstable_by_key(|&op| std::cmp::Reverse(op));
        }
    }
    early
}

/// By value: whether it is a version of a storage that is a source and ends in a result.
fn lasting(graph: &Graph) -> Vec<bool> {
    let source = |value: ValueId| graph.value(value).producer.is_none().then_some(value.index());
    let mut root: Vec<Option<usize>> = graph.value_ids().map(source).collect();
    for id in graph.op_ids() {
        for pair in graph.op(id).reuses.iter().filter(|pair| pair.must) {
            root[pair.output.index()] = root[pair.input.index()];
        }
    }
    let mut ends = vec![false; root.len()];
    for &value in graph.results() {
        if let Some(root) = root[value.index()] {
            ends[root] = true;
        }
    }
    root.iter().map(|root| root.is_some_and(|root| ends[root])).collect()
}

/// An index that is known to be in range of a graph's ids.
pub(super) fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A number of bytes that is known not to be negative.
pub(super) fn bytes(amount: i64) -> Bytes {
    Bytes(u64::try_from(amount).unwrap_or(0))
}

/// A number of bytes as it is counted here: budgets beyond measure become a limit that is never met.
pub(super) fn signed(amount: Bytes) -> i64 {
    i64::try_from(amount.0).unwrap_or(i64::MAX >> 1).min(i64::MAX >> 1)
}
