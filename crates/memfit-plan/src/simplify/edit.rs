//! Makes the graph anew with the changes that passes propose.

use std::collections::{BTreeMap, BTreeSet};

use memfit_ir::{Graph, GraphBuilder, GraphError, OpId, OpSpec, Reuse, Rewrite, ValueId, Why};

/// One change of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The op goes; nobody reads what it computes.
    Remove(OpId),
    /// The source goes; nobody reads it.
    Forget(ValueId),
    /// Who reads `value` reads `by`; the op that computes `value` goes if nobody needs its outputs any more.
    Read {
        /// What is no longer read.
        value: ValueId,
        /// What holds the same bytes.
        by: ValueId,
        /// By which reason.
        why: Why,
    },
    /// The op may write `output` over `input`.
    InPlace {
        /// The op.
        op: OpId,
        /// What it reads.
        input: ValueId,
        /// What it computes.
        output: ValueId,
    },
}

/// What is to become of a graph.
struct Edit<'g> {
    graph: &'g Graph,
    /// By value: what is read in its place.
    by: Vec<ValueId>,
    /// By op: why it goes.
    gone: Vec<Option<Why>>,
    /// By value: whether it goes without having an op.
    forgotten: Vec<bool>,
    /// By op: pairs that it has from now on.
    pairs: BTreeMap<OpId, Vec<Reuse>>,
}

/// The most operands that one value may stand in for where in-place pairs are kept: each is compared with each pair.
const MOST_MERGED: usize = 64;

/// The graph with all of `changes`. Ids keep their order. Time O((ops + operands) log operands).
///
/// # Errors
///
/// If the changes contradict each other, as when a value were read after it is overwritten.
pub fn apply(graph: &Graph, changes: &[Change]) -> Result<Rewrite, GraphError> {
    let mut edit = Edit {
        graph,
        by: graph.value_ids().collect(),
        gone: vec![None; graph.op_count()],
        forgotten: vec![false; graph.value_count()],
        pairs: BTreeMap::new(),
    };
    for &change in changes {
        match change {
            Change::Remove(op) => edit.gone[op.index()] = Some(Why::Dead),
            Change::Forget(value) => edit.forgotten[value.index()] = true,
            Change::Read { value, by, why } => edit.read(value, by, why),
            Change::InPlace { op, input, output } => {
                edit.pairs.entry(op).or_default().push(Reuse { input, output, must: false });
            }
        }
    }
    edit.sweep();
    edit.build()
}

impl Edit<'_> {
    fn read(&mut self, value: ValueId, by: ValueId, why: Why) {
        self.by[value.index()] = by;
        let Some(op) = self.graph.value(value).producer else { return };
        let done = |value: &ValueId| {
            self.by[value.index()] != *value
                || (self.graph.value(*value).readers.is_empty() && !self.graph.is_result(*value))
        };
        if self.graph.op(op).writes.iter().all(done) {
            self.gone[op.index()] = Some(why);
        }
    }

    /// What is read where the graph reads `value`.
    fn root(&self, mut value: ValueId) -> ValueId {
        // Each step leads to an earlier value of a chain; a circle would be a bug of a pass, and ends at the builder.
        for _ in 0..self.by.len() {
            let next = self.by[value.index()];
            if next == value {
                break;
            }
            value = next;
        }
        value
    }

    /// Resolves chains, so that each value leads to the one that is read.
    fn sweep(&mut self) {
        for at in 0..self.by.len() {
            if self.by[at] != ValueId::at(at) {
                self.by[at] = self.root(ValueId::at(at));
            }
        }
    }

    fn build(self) -> Result<Rewrite, GraphError> {
        let graph = self.graph;
        let mut builder = GraphBuilder::new(graph.name());
        builder.replays_random(graph.replays_random());
        let mut new: Vec<Option<ValueId>> = vec![None; graph.value_count()];
        let mut values = Vec::new();
        let is_gone = |id: ValueId| {
            self.forgotten[id.index()]
                || graph.value(id).producer.is_some_and(|op| self.gone[op.index()].is_some())
        };
        for id in graph.value_ids().filter(|&id| !is_gone(id)) {
            new[id.index()] = Some(builder.value(graph.value(id).to_spec())?);
            values.push(id);
        }
        let (mut ops, mut removed) = (Vec::new(), Vec::new());
        for id in graph.op_ids() {
            match self.gone[id.index()] {
                Some(why) => removed.push((id, why)),
                None => {
                    builder.op(self.op(id, &new))?;
                    ops.push(id);
                }
            }
        }
        for value in graph.results() {
            // A result that is gone would be a bug of a pass: without it the judge refuses what comes out.
            new[value.index()].map_or(Ok(()), |value| builder.result(value))?;
        }
        let replaced = graph.value_ids().map(|id| (id, self.by[id.index()])).filter(|(id, by)| id != by);
        Ok(Rewrite { graph: builder.finish()?, values, ops, removed, replaced: replaced.collect() })
    }

    /// The op over the new values. What is gone and still read is no value of the new graph, and the builder says so.
    fn op(&self, id: OpId, new: &[Option<ValueId>]) -> OpSpec {
        let op = self.graph.op(id);
        let find = |value: ValueId| new[value.index()].unwrap_or(ValueId(u32::MAX));
        let read = |value: ValueId| find(self.by[value.index()]);
        let mut merged: BTreeMap<ValueId, BTreeSet<ValueId>> = BTreeMap::new();
        let changes = op.reads.iter().any(|&read| self.by[read.index()] != read);
        for &value in op.reads.iter().filter(|_| changes) {
            merged.entry(self.by[value.index()]).or_default().insert(value);
        }
        let known: BTreeSet<&Reuse> = op.reuses.iter().collect();
        // What stands in for several operands may be overwritten only where each of them might have been.
        let fits = |pair: &&Reuse| match merged.get(&self.by[pair.input.index()]) {
            Some(all) if !pair.must => {
                all.len() <= MOST_MERGED
                    && all.iter().all(|&input| known.contains(&Reuse { input, ..**pair }))
            }
            _ => true,
        };
        let added = self.pairs.get(&id).into_iter().flatten();
        let pairs = op.reuses.iter().filter(fits).chain(added);
        let mut reuses: Vec<Reuse> = pairs
            .map(|pair| Reuse { input: read(pair.input), output: find(pair.output), must: pair.must })
            .collect();
        let mut seen = BTreeSet::new();
        reuses.retain(|pair| seen.insert(*pair));
        OpSpec {
            reads: op.reads.iter().map(|&value| read(value)).collect(),
            writes: op.writes.iter().map(|&value| find(value)).collect(),
            reuses,
            ..op.to_spec()
        }
    }
}
