//! Algebraic identities that keep every bit: what an op computes is there already.
//!
//! | identity | where |
//! |---|---|
//! | copy of x, laid out as x, is x | [`COPIES`] |
//! | transpose of a transpose by the inverse permutation is what was transposed | `Transpose` |
//! | a cast back to x, of casts none of which loses anything, is x | [`CASTS`], [`lossless`] |
//! | x · 1, x ÷ 1, x − 0, and x + 0 of integers, x + (−0) of floats | [`NEUTRAL`] |
//!
//! x + 0 of floats is none of them: −0 + 0 is 0. A signalling NaN would become a quiet one by an arithmetic op or a cast; ops make
//! none. Chains resolve to their root in one go. Time O(ops × length of a chain of casts).

use memfit_ir::{Graph, OpId, ValueId, Why};

use super::Change;
use super::attributes::{Attributes, Tensor, split};
use super::parts::{may_go, plain};

/// Kinds of op that copy their first operand.
pub const COPIES: [&str; 4] = ["Identity", "Cast", "aten.clone.default", "aten._to_copy.default"];

/// Kinds of op that change the element type of their first operand and nothing else.
pub const CASTS: [&str; 2] = ["Cast", "aten._to_copy.default"];

/// Kinds of op, which argument is neutral, and what it must be: of integers, of floats.
pub const NEUTRAL: [(&str, &str, f64, f64); 11] = [
    ("Mul", "1", 1.0, 1.0),
    ("Mul", "0", 1.0, 1.0),
    ("Div", "1", 1.0, 1.0),
    ("Sub", "1", 0.0, 0.0),
    ("Add", "1", 0.0, -0.0),
    ("Add", "0", 0.0, -0.0),
    ("aten.mul.Tensor", "1", 1.0, 1.0),
    ("aten.mul.Scalar", "1", 1.0, 1.0),
    ("aten.div.Tensor", "1", 1.0, 1.0),
    ("aten.sub.Tensor", "1", 0.0, 0.0),
    ("aten.add.Tensor", "1", 0.0, -0.0),
];

/// Element types by the names of ONNX and PyTorch, with those that hold each of their numbers exactly.
const WIDER: [(&str, &[&str]); 8] = [
    (
        "uint8",
        &[
            "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", F32[0], F32[1],
            F64[0], F64[1],
        ],
    ),
    ("int8", &["int16", "int32", "int64", "float16", "bfloat16", F32[0], F32[1], F64[0], F64[1]]),
    ("int16", &["int32", "int64", F32[0], F32[1], F64[0], F64[1]]),
    ("uint16", &["int32", "int64", "uint32", "uint64", F32[0], F32[1], F64[0], F64[1]]),
    ("int32", &["int64", F64[0], F64[1]]),
    ("uint32", &["int64", "uint64", F64[0], F64[1]]),
    ("float16", &[F32[0], F32[1], F64[0], F64[1]]),
    ("bfloat16", &[F32[0], F32[1], F64[0], F64[1]]),
];
const F32: [&str; 2] = ["float", "float32"];
const F64: [&str; 2] = ["double", "float64"];

/// Whether every number of element type `from` is one of `to`, bit by bit there and back.
#[must_use]
pub fn lossless(from: &str, to: &str) -> bool {
    let listed = || WIDER.iter().any(|(narrow, wide)| *narrow == from && wide.contains(&to));
    listed() || (F32.contains(&from) && F64.contains(&to))
}

/// For each op whose output is there already: that it is read from there.
pub(super) fn propose(graph: &Graph) -> Vec<Change> {
    let mut root: Vec<ValueId> = graph.value_ids().collect();
    let mut changes = Vec::new();
    for id in graph.op_ids() {
        let Some((attributes, out)) = plain(graph, id) else { continue };
        let Some(same) = same(graph, id, attributes, &root) else { continue };
        if may_go(graph, out, same) {
            root[out.index()] = same;
            changes.push(Change::Read { value: out, by: same, why: Why::Identity });
        }
    }
    changes
}

/// The value that holds what op `id` computes, if one does.
fn same(graph: &Graph, id: OpId, attributes: Attributes<'_>, root: &[ValueId]) -> Option<ValueId> {
    let op = graph.op(id);
    let out = attributes.out()?;
    let read = |tensor: Tensor<'_>| op.reads.get(tensor.read).map(|value| root[value.index()]);
    let first = attributes.tensor("0");
    if let Some(tensor) = first.filter(|tensor| COPIES.contains(&op.kind) && tensor.seen == out) {
        return read(tensor);
    }
    if op.kind == "Transpose" {
        return turned(graph, read(first?)?, attributes, root);
    }
    if CASTS.contains(&op.kind) {
        return cast(graph, read(first?)?, first?, out, root);
    }
    let (_, neutral, ..) = NEUTRAL.iter().find(|row| is_neutral(row, op.kind, attributes, out))?;
    let other = if *neutral == "0" { "1" } else { "0" };
    read(attributes.tensor(other).filter(|tensor| tensor.seen == out)?)
}

/// Whether this row of [`NEUTRAL`] applies.
fn is_neutral(row: &(&str, &str, f64, f64), kind: &str, attributes: Attributes<'_>, out: &str) -> bool {
    let &(name, argument, of_int, of_float) = row;
    // A factor of the second operand could turn the sign of a zero.
    let is_named = name == kind && attributes.get("alpha").is_none();
    let Some(number) = attributes.number(argument).filter(|_| is_named) else { return false };
    let elem = split(out).map_or("", |(elem, _)| elem);
    match elem.trim_start_matches('u').starts_with("int") {
        true => number == of_int,
        false => number.to_bits() == of_float.to_bits() && !elem.starts_with("complex") && elem != "bool",
    }
}

/// What was transposed, if `value` is that transposed the other way.
fn turned(graph: &Graph, value: ValueId, attributes: Attributes<'_>, root: &[ValueId]) -> Option<ValueId> {
    let before = graph.value(value).producer.filter(|&id| graph.op(id).kind == "Transpose")?;
    let (inner, _) = plain(graph, before)?;
    let tensor = inner.tensor("0")?;
    let (outer, inner_perm) = (permutation(attributes)?, permutation(inner)?);
    let is_back = outer.len() == inner_perm.len()
        && outer.iter().enumerate().all(|(at, &axis)| inner_perm.get(axis) == Some(&at));
    let is_plain = attributes.out() == Some(tensor.seen) && attributes.tensor("0")?.seen == inner.out()?;
    let from = graph.op(before).reads.get(tensor.read).filter(|_| is_back && is_plain)?;
    Some(root[from.index()])
}

fn permutation(attributes: Attributes<'_>) -> Option<Vec<usize>> {
    attributes.get("perm")?.split(',').map(|axis| axis.parse().ok()).collect()
}

/// What was cast without loss to what is now cast back, along a chain of such casts.
fn cast(graph: &Graph, value: ValueId, seen: Tensor<'_>, out: &str, root: &[ValueId]) -> Option<ValueId> {
    let (target, place) = split(out)?;
    let (mut value, mut seen) = (value, seen.seen);
    loop {
        let before = graph.value(value).producer.filter(|&id| CASTS.contains(&graph.op(id).kind))?;
        let (inner, _) = plain(graph, before)?;
        let tensor = inner.tensor("0")?;
        let ((from, there), (to, here)) = (split(tensor.seen)?, split(seen)?);
        if there != here || here != place || inner.out()? != seen || !lossless(from, to) {
            return None;
        }
        value = root[graph.op(before).reads.get(tensor.read)?.index()];
        seen = tensor.seen;
        if from == target {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::lossless;

    #[test]
    fn casts_lose_nothing_where_that_is_said() {
        assert!(
            lossless("float16", "float32") && lossless("float", "double") && lossless("uint8", "bfloat16")
        );
        for (from, to) in
            [("int32", "float"), ("float", "float16"), ("uint8", "int8"), ("int64", "double"), ("x", "x")]
        {
            assert!(!lossless(from, to), "{from} {to}");
        }
    }
}
