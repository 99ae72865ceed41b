//! The floor: what no plan that keeps persistent storages on the device can go below; and what none can that moves them.

use memfit_ir::{Bytes, Graph, OpId, ValueId};

use crate::failure::Witness;

/// Persistent bytes plus the largest single-op working set, and the op that has it.
///
/// That is what `floor+60%` counts from, whatever means are allowed. Where persistent storages may be at home elsewhere, plans
/// go below: [`Floor::below`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Bytes, each buffer rounded up to the alignment.
    pub bytes: Bytes,
    /// Bytes of the persistent storages alone that are on the device with the op.
    pub persistent: Bytes,
    /// The op, unless what must be there at the end needs more than any op.
    pub op: Option<OpId>,
}

impl Floor {
    /// The floor of `graph` with buffers aligned to `align`. Time O(operands log operands).
    #[must_use]
    pub fn of(graph: &Graph, align: Bytes) -> Floor {
        Floor::below(graph, align, Bytes::ZERO)
    }

    /// The same where up to `elsewhere` bytes of persistent storages that an op does not touch are in other memory while it runs:
    /// then [`Floor::persistent`] is what stays on the device beside what the op touches. Never more than the floor.
    #[must_use]
    pub fn below(graph: &Graph, align: Bytes, elsewhere: Bytes) -> Floor {
        let size = |value: ValueId| graph.value(value).size.round_up(align);
        // A persistent storage has one version in memory at a time.
        let mut source: Vec<Option<ValueId>> = vec![None; graph.value_count()];
        let (mut persistent, mut raw) = (Bytes::ZERO, Bytes::ZERO);
        for id in graph.value_ids() {
            let value = graph.value(id);
            if value.producer.is_none() && value.role.is_persistent() {
                source[id.index()] = Some(id);
                persistent += size(id);
                raw += value.size;
            }
        }
        for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
            source[pair.output.index()] = source[pair.output.index()].or(source[pair.input.index()]);
        }
        let lasting: Vec<bool> = source.iter().map(Option::is_some).collect();
        // Of `rounded` bytes, `raw` before they were rounded up, what no memory elsewhere takes.
        let stays = |rounded: Bytes, raw: Bytes| match elsewhere {
            Bytes::ZERO => rounded,
            room => rounded.min(raw.saturating_sub(room)),
        };
        let mut largest = (Bytes::ZERO, None, Bytes::ZERO);
        for id in graph.op_ids() {
            let mut touched: Vec<ValueId> =
                graph.op(id).reads.iter().filter_map(|value| source[value.index()]).collect();
            touched.sort_unstable();
            touched.dedup();
            let there: Bytes = touched.iter().map(|&value| size(value)).sum();
            let exact: Bytes = touched.iter().map(|&value| graph.value(value).size).sum();
            let beside = stays(persistent.saturating_sub(there), raw.saturating_sub(exact));
            let set = working_set(graph, id, align, &lasting) + there + beside;
            if set > largest.0 || largest.1.is_none() {
                largest = (set, Some(id), there + beside);
            }
        }
        let kept: Bytes =
            graph.results().iter().filter(|value| !lasting[value.index()]).map(|&value| size(value)).sum();
        let held = stays(persistent, raw);
        if largest.1.is_none() || kept + held > largest.0 {
            return Floor { bytes: kept + held, persistent: held, op: None };
        }
        Floor { bytes: largest.0, persistent: largest.2, op: largest.1 }
    }

    /// The op that forces the floor, with its operands.
    #[must_use]
    pub fn witness(&self, graph: &Graph) -> Option<Witness> {
        let id = self.op?;
        let op = graph.op(id);
        let named = |values: &[ValueId]| -> Vec<(String, Bytes)> {
            let mut seen: Vec<ValueId> = Vec::new();
            for &value in values {
                if !seen.contains(&value) {
                    seen.push(value);
                }
            }
            seen.iter().map(|&v| (label(graph, v), graph.value(v).size)).collect()
        };
        let touched: Bytes = op
            .reads
            .iter()
            .enumerate()
            .filter(|(at, value)| {
                graph.value(**value).role.is_persistent() && !op.reads[..*at].contains(value)
            })
            .map(|(_, value)| graph.value(*value).size)
            .sum();
        Some(Witness {
            op: id.0,
            name: op.name.to_owned(),
            kind: op.kind.to_owned(),
            reads: named(op.reads),
            writes: named(op.writes),
            workspace: op.workspace,
            resident: self.persistent.saturating_sub(touched),
        })
    }
}

/// A value's name, or its id where it has none.
pub(crate) fn label(graph: &Graph, value: ValueId) -> String {
    let name = graph.value(value).name;
    if name.is_empty() { value.to_string() } else { name.to_owned() }
}

/// Bytes that op `id` needs beside the persistent storages: its other operands, an output that may go over an
/// input counted once, and the least workspace of its algorithms.
fn working_set(graph: &Graph, id: OpId, align: Bytes, lasting: &[bool]) -> Bytes {
    let op = graph.op(id);
    let mut values: Vec<ValueId> = op.reads.iter().chain(op.writes).copied().collect();
    values.sort_unstable();
    values.dedup();
    let size = |value: ValueId| graph.value(value).size.round_up(align);
    let all: Bytes = values.iter().filter(|value| !lasting[value.index()]).map(|&value| size(value)).sum();
    let mut shared = Bytes::ZERO;
    for &output in op.writes {
        // One input serves one output; which is taken by which changes nothing in sizes, pair by pair equal,
        // so counting each output that has any pair is a bound from below.
        let own = |value: ValueId| !lasting[value.index()];
        let value = graph.value(output);
        if own(output) && value.may_over.iter().copied().chain(value.over).any(own) {
            shared += size(output);
        }
    }
    let scratch = op.algorithms.iter().map(|a| a.workspace).chain([op.workspace]).min().unwrap_or_default();
    all.saturating_sub(shared) + scratch.round_up(align)
}
