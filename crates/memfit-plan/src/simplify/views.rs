//! Views that stand in a graph as ops: whoever reads the reshaped value reads what was reshaped; where that can't be, in place.
//!
//! Captures resolve views themselves; graphs of compilers may have them as ops. Guarantee: bytes stay what they are, since
//! ONNX's tensors have their elements in one order. A value that is a result, or overwritten, has to be a storage
//! of its own: there a pair is added, so that a plan may leave the bytes where they are. Time O(ops).

use memfit_ir::{Graph, ValueId, Why};

use super::Change;
use super::attributes::split;
use super::parts::{may_go, plain};

/// Kinds of op that leave all bytes of their first operand as they are.
pub const VIEWS: [&str; 5] = ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"];

/// For each view: that it is read through, or may be done in place.
pub(super) fn propose(graph: &Graph) -> Vec<Change> {
    let mut root: Vec<ValueId> = graph.value_ids().collect();
    let mut changes = Vec::new();
    for id in graph.op_ids().filter(|&id| VIEWS.contains(&graph.op(id).kind)) {
        let Some((attributes, out)) = plain(graph, id) else { continue };
        let Some(tensor) = attributes.tensor("0") else { continue };
        let elem = |seen| split(seen).map(|(elem, _)| elem);
        let Some(&input) = graph.op(id).reads.get(tensor.read) else { continue };
        let is_same = elem(tensor.seen).is_some() && elem(tensor.seen) == attributes.out().and_then(elem);
        if !is_same || graph.value(input).size != graph.value(out).size {
            continue;
        }
        let from = root[input.index()];
        if may_go(graph, out, from) {
            root[out.index()] = from;
            changes.push(Change::Read { value: out, by: from, why: Why::View });
        } else if !graph.value(input).role.is_persistent() && !graph.value(out).may_over.contains(&input) {
            changes.push(Change::InPlace { op: id, input, output: out });
        }
    }
    changes
}
