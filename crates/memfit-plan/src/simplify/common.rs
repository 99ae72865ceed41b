//! Common subexpressions: of ops of the same kind, attributes and operands the first computes for all.
//!
//! Source: Cocke, "Global Common Subexpression Elimination" (1970), by value numbers: Alpern, Wegman and Zadeck (1988). Merging an op can keep its
//! operands or its result alive for longer, so [`super::guard`] takes back what raises the peak. Ties go to the earlier op.
//! Ops with an effect or without attributes, and what is overwritten, stay as they are. Time O(operands log ops).

use std::collections::BTreeMap;

use memfit_ir::{Dtype, Effect, Graph, Need, OpId, Value, Why};

use super::Change;
use super::parts::may_go;

/// What tells ops apart: kind, attributes, arithmetic, what is read of operands, their numbers.
type Key<'g> = (&'g str, &'g str, Dtype, &'g [Need], Vec<usize>);

/// For each later op of those that compute the same: that its outputs are read from the first.
pub(super) fn propose(graph: &Graph) -> Vec<Change> {
    let mut number: Vec<usize> = (0..graph.value_count()).collect();
    let mut known: BTreeMap<Key<'_>, OpId> = BTreeMap::new();
    let mut changes = Vec::new();
    for id in graph.op_ids() {
        let op = graph.op(id);
        let Some(attributes) = op.attributes.filter(|_| op.effect == Effect::Pure) else { continue };
        if op.writes.is_empty() || op.reuses.iter().any(|pair| pair.must) {
            continue;
        }
        let operands = op.reads.iter().map(|value| number[value.index()]).collect();
        let first = *known.entry((op.kind, attributes, op.dtype, op.needs, operands)).or_insert(id);
        let others = graph.op(first).writes;
        let pairs = || op.writes.iter().copied().zip(others.iter().copied());
        let is_alike = pairs().all(|(value, by)| alike(&graph.value(value), &graph.value(by)));
        if first == id || others.len() != op.writes.len() || !is_alike {
            continue;
        }
        pairs().for_each(|(value, by)| number[value.index()] = number[by.index()]);
        if pairs().all(|(value, by)| may_go(graph, value, by)) {
            changes.extend(pairs().map(|(value, by)| Change::Read { value, by, why: Why::Common }));
        }
    }
    changes
}

fn alike(a: &Value<'_>, b: &Value<'_>) -> bool {
    (a.size, a.dtype, a.shape) == (b.size, b.dtype, b.shape)
}
