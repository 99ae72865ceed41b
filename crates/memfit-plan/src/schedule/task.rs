//! A graph in a fixed order of first runs, reduced to what schedules need: who defines and reads what, how
//! large, how long, and what may run again.

use memfit_ir::{Bytes, Codec, Csr, Device, Effect, Graph, InPlace, Nanos, OpId, Program, Reuse, ValueId};

use crate::Context;
use crate::liveness::Profile;
use crate::order::Model;
use crate::problem::{Problem, bytes, signed};

use super::early::early_of;
use super::homes::Homes;
use super::ids::{NodeId, earlier};
use super::memo::Memo;

use memfit_sim::Costs;

/// How a snapshot of a small persistent storage is held. Lossless, and a buffer of its own.
pub(super) const SNAPSHOT: Codec = Codec::Zvc;

/// Snapshots are taken of storages that are at least this many times smaller than what the op makes.
const SMALL: i64 = 16;

/// An algorithm of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Scratch bytes, rounded up to the alignment.
    pub(super) workspace: i64,
    /// Run time in ns.
    pub(super) time: u64,
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
    /// Which pairs programs take up: `SoleReader` counts as `Must` here.
    pub(super) in_place: InPlace,
    /// By node: run time in ns.
    pub(super) cost: Vec<u64>,
    /// By node: scratch bytes.
    pub(super) workspace: Vec<i64>,
    /// By node: how it can run, by number of the algorithm; nothing where it has but one.
    pub(super) ways: Csr<Way>,
    /// By node: values read, each once.
    pub(super) reads: Csr<ValueId>,
    /// By node: values defined.
    pub(super) writes: Csr<ValueId>,
    /// By node: takeovers in the order in which they are tried, demanded ones first.
    pub(super) reuses: Csr<Reuse>,
    /// By node: what a run reads and defines that is not the first: without what comes from snapshots.
    pub(super) later_reads: Csr<ValueId>,
    pub(super) later_writes: Csr<ValueId>,
    /// By node: `(input, output)` of the persistent storages it mutates, if it may run again on snapshots.
    pub(super) snapped: Csr<(ValueId, ValueId)>,
    /// By node: bytes of its snapshots.
    pub(super) snapshot: Vec<i64>,
    /// By node: scratch bytes of a later run.
    pub(super) later_workspace: Vec<i64>,
    /// By node: time of a later run, snapshots unpacked.
    pub(super) later_cost: Vec<u64>,
    /// Bytes of all snapshots that may be taken.
    pub(super) snapshots: i64,
    /// By node: whether it may run more than once.
    pub(super) recomputable: Vec<bool>,
    /// By value: bytes that come and go with it; 0 where it is resident.
    pub(super) size: Vec<i64>,
    /// By value: bytes, resident or not.
    pub(super) bytes: Vec<i64>,
    /// By value: whether it is a version of a storage that is there for the whole step unless it is moved: `constant`
    /// counts it.
    resident: Vec<bool>,
    /// By value: the node that defines it.
    pub(super) producer: Vec<Option<NodeId>>,
    /// By value: whether it must be there at the end.
    pub(super) live_out: Vec<bool>,
    /// What must be there at the end beside the graph's results.
    pub(super) held: Vec<ValueId>,
    /// By value: the node that mutates it, after whose run it is gone.
    pub(super) mutator: Vec<Option<NodeId>>,
    /// By value: the nodes that read it, ascending.
    pub(super) readers: Csr<NodeId>,
    /// By node: it can't run again once this node has run, which mutates what it reads for good.
    pub(super) deadline: Vec<Option<NodeId>>,
    /// Bytes of the storages that are always there.
    pub(super) constant: i64,
    /// Bytes of the other sources, which are all there before the first step.
    pub(super) sources: i64,
    /// What 100 % of the peak means to people: the live peak of the graph as it was given.
    pub(super) reference: Bytes,
    /// Whether a host issues the ops, which moves only what it could also compute again.
    pub(super) issued: bool,
    /// Storages that are at home in another tier: no part of `constant`, and scratch bytes of the runs that use them.
    pub(super) homes: Homes,
    /// No schedule in this order needs fewer bytes, whatever is moved.
    pub(super) least: i64,
    /// Schedules to begin with, from elsewhere: ops in the order in which they run.
    pub(super) starts: Vec<Vec<OpId>>,
    /// What has been found for it so far.
    pub(super) memo: Memo,
}

impl<'g> Task<'g> {
    /// The task of running `graph` with first runs in `order`, a permutation of its ops that its dependencies allow,
    /// with ops that give back more than they make brought forward ([`early`](super::early())). In-place pairs are taken up as
    /// `in_place` says; seeded ops run again only where the host replays generator state. Costs and alignment come
    /// from the context's device.
    #[must_use]
    pub fn new(
        graph: &'g Graph,
        order: &[OpId],
        in_place: InPlace,
        replays_random: bool,
        context: &Context<'_>,
    ) -> Task<'g> {
        let model = Model::new(graph, context.device.align, in_place);
        let order = early_of(&model, order);
        Task::build(graph, (model.problem, order), in_place, (replays_random, true), context)
    }

    /// The task of a step that a host issues op by op: first runs in the graph's own order, as the program calls them,
    /// only demanded in-place pairs, and no snapshots, which no call of the host's would take.
    #[must_use]
    pub fn issued(graph: &'g Graph, replays_random: bool, context: &Context<'_>) -> Task<'g> {
        let problem = Problem::of(graph, context.device.align, InPlace::Must);
        let order = graph.op_ids().collect();
        Task::build(graph, (problem, order), InPlace::Must, (replays_random, false), context)
    }

    /// The same task, with the schedules that run the ops of each of `starts` in that order beside those that searches
    /// begin with. What is no schedule of this task is passed over.
    #[must_use]
    pub fn with_starts(self, starts: Vec<Vec<OpId>>) -> Task<'g> {
        Task { starts, memo: Memo::default(), ..self }
    }

    /// The same task, with `values` there at the end as well, as results are.
    #[must_use]
    pub fn holding(mut self, values: Vec<ValueId>) -> Task<'g> {
        for &value in &values {
            self.live_out[value.index()] = true;
        }
        self.held = values;
        self.memo = Memo::default();
        self
    }

    /// The same task with first runs in `order`, which dependencies allow, as it is.
    pub(super) fn reordered(&self, order: &[OpId], context: &Context<'_>) -> Task<'g> {
        let problem = Problem::of(self.graph, context.device.align, self.in_place);
        let how = (true, !self.issued);
        let task = Task::build(self.graph, (problem, order.to_vec()), self.in_place, how, context);
        task.holding(self.held.clone())
    }

    /// Whether a host issues the ops, in an order that is its own.
    pub(super) fn is_issued(&self) -> bool {
        self.issued
    }

    /// `problem` seen through `order`. Whether the host replays generators, and whether snapshots may be taken.
    fn build(
        graph: &'g Graph,
        (problem, order): (Problem, Vec<OpId>),
        in_place: InPlace,
        (replays_random, snapshots): (bool, bool),
        context: &Context<'_>,
    ) -> Task<'g> {
        let device = context.device;
        let node_of = nodes_of(order.len(), &order);
        let nodes =
            |ops: &[Option<OpId>]| ops.iter().map(|op| op.and_then(|op| node_of[op.index()])).collect();
        let first_runs = order.iter().enumerate().flat_map(|(node, op)| {
            let reads = problem.reads.row(op.index()).iter();
            reads.map(move |value| (value.index(), NodeId::at(node)))
        });
        let is_source = |value: usize| problem.producer[value].is_none();
        let size = |value: usize| if problem.resident[value] { 0 } else { problem.bytes[value] };
        let costs = Costs::of(graph, device);
        let cost: Vec<u64> = order.iter().map(|&op| costs.time(op).0).collect();
        let workspace: Vec<i64> = order.iter().map(|op| problem.workspace[op.index()]).collect();
        let mut ways = Csr::default();
        for (&op, (&workspace, &time)) in order.iter().zip(workspace.iter().zip(&cost)) {
            let others = graph.op(op).algorithms.iter().zip(costs.others(op));
            let other = others.map(|(other, time)| Way {
                workspace: signed(other.workspace.round_up(device.align)),
                time: time.0,
            });
            let first = other.len().min(1);
            ways.push(std::iter::repeat_n(Way { workspace, time }, first).chain(other));
        }
        let mut task = Task {
            graph,
            ways,
            in_place: if in_place == InPlace::May { InPlace::May } else { InPlace::Must },
            later_cost: cost.clone(),
            cost,
            later_workspace: workspace.clone(),
            workspace,
            later_reads: Csr::default(),
            later_writes: Csr::default(),
            snapped: Csr::default(),
            snapshot: vec![0; order.len()],
            snapshots: 0,
            reads: by_node(&problem.reads, &order),
            writes: by_node(&problem.writes, &order),
            reuses: by_node(&problem.reuses, &order),
            readers: Csr::from_pairs(problem.value_count(), first_runs),
            producer: nodes(&problem.producer),
            mutator: nodes(&problem.mutator),
            recomputable: Vec::new(),
            size: (0..problem.value_count()).map(size).collect(),
            held: Vec::new(),
            deadline: Vec::new(),
            constant: problem.sum(|value| is_source(value) && problem.resident[value]),
            sources: problem.sum(|value| is_source(value) && !problem.resident[value]),
            bytes: problem.bytes,
            resident: problem.resident,
            live_out: problem.live_out,
            reference: Profile::of(&Program::eager(graph), device.align).peak().0,
            order,
            issued: !snapshots,
            homes: Homes::default(),
            least: i64::MAX,
            starts: Vec::new(),
            memo: Memo::default(),
        };
        for node in 0..task.nodes() {
            task.find_later_runs(node, (replays_random, snapshots), device);
        }
        task.least = task.least_with(device);
        task
    }

    /// Appends to the tables what a later run of `node` is: whether there may be one, until when, and on what
    /// snapshots.
    fn find_later_runs(&mut self, node: usize, (replays_random, snapshots): (bool, bool), device: &Device) {
        let graph = self.graph;
        let mut recomputable = match graph.op(self.order[node]).effect {
            Effect::Pure => true,
            Effect::Seeded => replays_random,
            Effect::Once | Effect::Collective => false,
        };
        // Persistent storages that it mutates: small ones can be kept as they were.
        let must =
            self.reuses.row(node).iter().filter(|pair| pair.must && self.resident[pair.output.index()]);
        let mut snapped: Vec<(ValueId, ValueId)> = must.map(|pair| (pair.input, pair.output)).collect();
        let packed = |value: ValueId| SNAPSHOT.room(&graph.value(value));
        let held = |value: ValueId| signed(packed(value).round_up(device.align));
        let snapshot: i64 = snapped.iter().map(|&(input, _)| held(input)).sum();
        let made: i64 = self.writes.row(node).iter().map(|&value| self.size[value.index()]).sum();
        if !recomputable || !snapshots || snapped.is_empty() || snapshot > made / SMALL {
            recomputable &= snapped.is_empty();
            snapped.clear();
        } else {
            for &(input, _) in &snapped {
                let (_, time) = device.codec_times(SNAPSHOT, graph.value(input).size);
                self.later_workspace[node] += self.bytes[input.index()];
                self.later_cost[node] = self.later_cost[node].saturating_add(time.0.min(1 << 40));
            }
            self.snapshot[node] = snapshot;
            self.snapshots += snapshot;
        }
        let own =
            |value: &ValueId| !snapped.iter().any(|&(input, output)| *value == input || *value == output);
        let reads: Vec<ValueId> = self.reads.row(node).iter().copied().filter(own).collect();
        let mut deadline = None;
        for &value in reads.iter().filter(|&&value| !self.is_recomputable(value)) {
            let mutator = self.mutator[value.index()];
            recomputable &= mutator != Some(NodeId::at(node));
            deadline = earlier(deadline, mutator);
        }
        self.later_reads.push(reads);
        self.later_writes.push(self.writes.row(node).iter().copied().filter(own));
        self.snapped.push(snapped);
        self.recomputable.push(recomputable);
        self.deadline.push(deadline);
    }

    /// Bytes of `value`, rounded up to the alignment, whether or not it is resident.
    #[must_use]
    pub fn bytes_of(&self, value: ValueId) -> Bytes {
        bytes(self.bytes[value.index()])
    }

    /// Whether the storage that `value` is a version of is there before the first step and after the last: it takes its
    /// bytes for the whole step, unless it is moved.
    #[must_use]
    pub fn is_resident(&self, value: ValueId) -> bool {
        self.resident[value.index()]
    }

    /// Whether `value` may wait elsewhere between two of its uses.
    pub(super) fn may_move(&self, value: ValueId) -> bool {
        !self.resident[value.index()] && (!self.issued || self.is_recomputable(value))
    }

    /// What a run of `node` reads.
    pub(super) fn reads_of(&self, node: NodeId, first: bool) -> &[ValueId] {
        if first { self.reads.row(node.index()) } else { self.later_reads.row(node.index()) }
    }

    /// What a run of `node` defines.
    pub(super) fn writes_of(&self, node: NodeId, first: bool) -> &[ValueId] {
        if first { self.writes.row(node.index()) } else { self.later_writes.row(node.index()) }
    }

    /// Scratch bytes of a run of `node`.
    pub(super) fn workspace_of(&self, node: NodeId, first: bool) -> i64 {
        if first { self.workspace[node.index()] } else { self.later_workspace[node.index()] }
    }

    /// Number of ops.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.order.len()
    }

    /// Its nodes, in order.
    pub(super) fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes()).map(NodeId::at)
    }

    /// The end of the step: one beyond all nodes.
    pub(super) fn end(&self) -> NodeId {
        NodeId::at(self.nodes())
    }

    /// Its values.
    pub(super) fn value_ids(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (0..self.size.len()).map(ValueId::at)
    }

    /// Time of running every op once.
    #[must_use]
    pub fn base_time(&self) -> Nanos {
        self.cost.iter().map(|&cost| Nanos(cost)).sum()
    }

    /// The least time of running every op once, each by its fastest algorithm.
    #[must_use]
    pub fn least_time(&self) -> Nanos {
        (0..self.nodes()).map(|node| Nanos(self.least_cost(node))).sum()
    }

    /// Ns of a first run of `node` by its fastest algorithm.
    pub(super) fn least_cost(&self, node: usize) -> u64 {
        let least = self.ways.row(node).iter().map(|way| way.time).min();
        least.unwrap_or(self.cost[node]).min(self.cost[node])
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
        let ends: i64 = (0..self.size.len()).filter(|&v| self.live_out[v]).map(|v| self.size[v]).sum();
        if self.nodes() == 0 {
            let steps = self.value_ids().any(|value| self.is_unused(value));
            return (if steps { bytes(self.constant + self.sources) } else { Bytes::ZERO }, None);
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

    /// Whether `value` is a source that nothing reads or keeps: it is freed before the first run.
    pub(super) fn is_unused(&self, value: ValueId) -> bool {
        let at = value.index();
        self.producer[at].is_none() && !self.live_out[at] && self.readers.row(at).is_empty()
    }

    /// The least bytes beside `constant` with which `node` can run: its operands and scratch, an output over
    /// an input wherever a pair permits.
    pub(super) fn alone(&self, node: usize) -> i64 {
        let sum = |values: &[ValueId]| -> i64 { values.iter().map(|&value| self.size[value.index()]).sum() };
        let taken =
            self.taken(node, |value| !self.live_out[value.index()] || self.mutator[value.index()].is_some());
        let scratch = self.ways.row(node).iter().map(|way| way.workspace).min();
        sum(self.reads.row(node)) + sum(self.writes.row(node)) + scratch.unwrap_or(self.workspace[node])
            - taken
    }

    /// Bytes that outputs of `node` take over, if those inputs end with it of which `dies` says so. Allocates
    /// nothing where there is at most one pair.
    pub(super) fn taken(&self, node: usize, dies: impl Fn(ValueId) -> bool) -> i64 {
        let pairs = self.reuses.row(node);
        match pairs {
            [] => 0,
            [pair] => {
                if pair.must || dies(pair.input) {
                    self.size[pair.output.index()]
                } else {
                    0
                }
            }
            _ => {
                let mut sum = 0;
                self.each_reuse(node, dies, |pair| sum += self.size[pair.output.index()]);
                sum
            }
        }
    }

    /// Calls `found` for each takeover that happens, in order.
    pub(super) fn each_reuse(
        &self,
        node: usize,
        dies: impl Fn(ValueId) -> bool,
        mut found: impl FnMut(Reuse),
    ) {
        let mut gone: Vec<ValueId> = Vec::new();
        let mut served = None;
        for &pair in self.reuses.row(node) {
            let free = || served != Some(pair.output) && !gone.contains(&pair.input) && dies(pair.input);
            if pair.must || free() {
                served = Some(pair.output);
                gone.push(pair.input);
                found(pair);
            }
        }
    }

    /// Whether `value` can be made again by running an op again.
    pub(super) fn is_recomputable(&self, value: ValueId) -> bool {
        self.producer[value.index()].is_some_and(|producer| self.recomputable[producer.index()])
    }
}

/// `rows`, which are by op, by its place in `order`.
fn by_node<T: Copy>(rows: &Csr<T>, order: &[OpId]) -> Csr<T> {
    let mut by_node = Csr::default();
    order.iter().for_each(|op| by_node.push(rows.row(op.index()).iter().copied()));
    by_node
}

/// By op, of so many: its place in `order`.
pub(super) fn nodes_of(ops: usize, order: &[OpId]) -> Vec<Option<NodeId>> {
    let mut node_of = vec![None; ops];
    for (node, op) in order.iter().enumerate() {
        node_of[op.index()] = Some(NodeId::at(node));
    }
    node_of
}
