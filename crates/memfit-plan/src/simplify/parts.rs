//! What several passes ask of a graph.

use memfit_ir::{Bytes, Device, Effect, Graph, Nanos, Op, OpId, OpSpec, Reuse, ValueId};

use super::Finding;
use super::attributes::Attributes;

/// Whether the readers of `value` may read `by`, which holds the same bytes, instead: nobody else must find those bytes in
/// a place of their own, and whoever overwrites `by` comes after them.
pub(super) fn may_go(graph: &Graph, value: ValueId, by: ValueId) -> bool {
    let (old, new) = (graph.value(value), graph.value(by));
    let last = old.readers.last();
    value != by
        && old.size == new.size
        && !graph.is_result(value)
        && old.mutator.is_none()
        && old.pin.is_none()
        && new.mutator.is_none_or(|mutator| last.is_none_or(|&last| last < mutator))
}

/// The attributes of an op that only computes its one output.
pub(super) fn plain(graph: &Graph, id: OpId) -> Option<(Attributes<'_>, ValueId)> {
    let op = graph.op(id);
    let &[out] = op.writes else { return None };
    let is_plain = op.effect == Effect::Pure && op.reuses.iter().all(|pair| !pair.must);
    Some((Attributes(op.attributes.filter(|_| is_plain)?), out))
}

/// What ops come to when they are run as one, or ahead. `ops` are ascending, and not empty.
pub(super) fn finding(graph: &Graph, device: &Device, ops: Vec<OpId>) -> Finding {
    let is_member = |op: &OpId| ops.binary_search(op).is_ok();
    let is_inner = |value: &ValueId| {
        let readers = graph.value(*value).readers;
        !graph.is_result(*value) && !readers.is_empty() && readers.iter().all(is_member)
    };
    let mut made: Vec<ValueId> = ops.iter().flat_map(|&op| graph.op(op).writes).copied().collect();
    made.sort_unstable();
    let (inner, results): (Vec<ValueId>, Vec<ValueId>) = made.into_iter().partition(is_inner);
    let moved: Bytes = inner
        .iter()
        .map(|&id| {
            let value = graph.value(id);
            let times = value.readers.len() as u64 + 1;
            Bytes(value.size.0.saturating_mul(times))
        })
        .sum();
    let all = || ops.iter().map(|&op| graph.op(op));
    let apart: Nanos = all().map(|op| device.time(&op)).fold(Nanos::ZERO, |sum, time| sum + time);
    // A measured time says nothing of what it would be without the intermediates.
    let whole = all().next_back().filter(|_| all().all(|op| op.time.is_none())).map(|sink| Op {
        flops: all().map(|op| op.flops).sum(),
        moved: all().map(|op| op.moved).sum::<Bytes>().saturating_sub(moved),
        ..sink
    });
    let together = whole.map_or(apart, |whole| device.time(&whole));
    Finding { time: Nanos(apart.0.saturating_sub(together.0)), inner, results, moved, ops }
}

/// The op over values that have other ids now. What has none is no value of the new graph, and the builder says so.
pub(super) fn renamed(spec: OpSpec, new: &[Option<ValueId>]) -> OpSpec {
    let find = |value: ValueId| new[value.index()].unwrap_or(ValueId(u32::MAX));
    let ids = |list: Vec<ValueId>| list.into_iter().map(find).collect();
    let pair = |pair: Reuse| Reuse { input: find(pair.input), output: find(pair.output), ..pair };
    OpSpec {
        reads: ids(spec.reads),
        writes: ids(spec.writes),
        reuses: spec.reuses.into_iter().map(pair).collect(),
        ..spec
    }
}

/// The sets of `ops` that are connected by values of which `links` says so; each ascending, by their first ops.
pub(super) fn joined(graph: &Graph, ops: &[OpId], links: impl Fn(ValueId) -> bool) -> Vec<Vec<OpId>> {
    let mut set: Vec<usize> = (0..graph.op_count()).collect();
    fn root(set: &mut [usize], mut at: usize) -> usize {
        while set[at] != at {
            set[at] = set[set[at]];
            at = set[at];
        }
        at
    }
    for &id in ops {
        for &value in graph.op(id).reads.iter().filter(|&&value| links(value)) {
            let Some(before) = graph.value(value).producer else { continue };
            let (a, b) = (root(&mut set, before.index()), root(&mut set, id.index()));
            set[a.max(b)] = a.min(b);
        }
    }
    let mut sets: Vec<Vec<OpId>> = vec![Vec::new(); graph.op_count()];
    for &id in ops {
        let root = root(&mut set, id.index());
        sets[root].push(id);
    }
    sets.into_iter().filter(|ops| !ops.is_empty()).collect()
}
