//! What a graph made of another one computes, in real bytes.
//!
//! An op that has attributes, and no effect, computes by its kind and attributes: transposes, casts, arithmetic with a number, copies and views
//! for real, all others a hash of them and of all bytes they read. Any other op computes by which op of the original it is, and by
//! how often the generator was asked before it, or what acted outside of the graph. No pair of a graph matters.

use std::collections::BTreeMap;

use memfit_ir::{Dtype, Effect, Graph, Op, OpId, ValueId};

use super::kernel::{hash, mix, start, whole, written};

/// Of two steps, one after another, the bytes of each value by the value of the original that it stands for: `values` and `ops` say which
/// that is.
#[must_use]
pub fn evaluate(graph: &Graph, values: &[ValueId], ops: &[OpId]) -> [BTreeMap<ValueId, Vec<u8>>; 2] {
    let mut last: Vec<ValueId> = graph.value_ids().collect();
    for id in graph.op_ids().rev() {
        for pair in graph.op(id).reuses.iter().filter(|pair| pair.must) {
            last[pair.input.index()] = last[pair.output.index()];
        }
    }
    let (mut draws, mut acts) = (0, 0);
    let mut before: Vec<Vec<u8>> = Vec::new();
    [0, 1].map(|step| {
        let mut bytes: Vec<Vec<u8>> = vec![Vec::new(); graph.value_count()];
        for id in graph.value_ids().filter(|&id| graph.value(id).producer.is_none()) {
            let value = graph.value(id);
            bytes[id.index()] = match before.get(last[id.index()].index()) {
                Some(kept) if value.role.is_persistent() => kept.clone(),
                _ => source(values[id.index()], step, value.size.0, value.dtype),
            };
        }
        for (id, from) in graph.op_ids().zip(ops) {
            let op = graph.op(id);
            let salt = match op.effect {
                Effect::Pure => 0,
                Effect::Seeded => count(&mut draws),
                Effect::Once | Effect::Collective => count(&mut acts),
            };
            let known = op.attributes.filter(|_| op.effect == Effect::Pure);
            let real = known.and_then(|text| real(&op, text, &bytes[op.reads.first()?.index()]));
            let key = known
                .map_or(start(from.index(), salt), |text| hash(hash(9, op.kind.as_bytes()), text.as_bytes()));
            let read =
                |state, (at, value): (usize, &ValueId)| whole(state, at, op.need(at), &bytes[value.index()]);
            let state = op.reads.iter().enumerate().fold(key, read);
            for (output, value) in op.writes.iter().enumerate() {
                let size = usize::try_from(graph.value(*value).size.0).unwrap_or(usize::MAX);
                let made = (0..size).map(|at| written(state, output, at)).collect();
                bytes[value.index()] = real.clone().filter(|real| real.len() == size).unwrap_or(made);
            }
        }
        before.clone_from(&bytes);
        values.iter().copied().zip(bytes).collect()
    })
}

fn count(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}

/// Bytes from outside: of floats numbers, zeros of both signs and infinities among them, for a signalling NaN is not kept by arithmetic.
fn source(value: ValueId, step: u64, size: u64, dtype: Dtype) -> Vec<u8> {
    let word = |at: u64| mix(mix(u64::from(value.0) + 77, step), at + 1);
    let number =
        |at: u64| [0.0_f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 8.0, -1.5, 3e7][(word(at) % 6) as usize];
    (0..size)
        .map(|at| match dtype {
            Dtype::F32 => number(at / 4).to_le_bytes()[(at % 4) as usize],
            Dtype::F64 => f64::from(number(at / 8)).to_le_bytes()[(at % 8) as usize],
            _ => word(at).to_be_bytes()[0],
        })
        .collect()
}

/// What an op makes of `bytes` that this knows by its kind and attributes.
fn real(op: &Op<'_>, text: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let items: BTreeMap<&str, &str> = text.split(';').filter_map(|item| item.split_once('=')).collect();
    let seen = items.get("0")?.strip_prefix("$0:")?;
    let (from, dims) = seen.split_once('[')?;
    let out = items.get("out0")?;
    let (to, _) = out.split_once('[')?;
    let dims: Vec<usize> = dims.trim_end_matches(']').split(',').filter_map(|dim| dim.parse().ok()).collect();
    match op.kind {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity" | "aten.clone.default" if from == to => {
            Some(bytes.to_vec())
        }
        "Cast" | "aten._to_copy.default" if seen == *out => Some(bytes.to_vec()),
        "Cast" | "aten._to_copy.default" => {
            let numbers = bytes.chunks_exact(width(from)?).map(|element| decode(from, element));
            Some(numbers.flat_map(|number| encode(to, number)).collect())
        }
        "Transpose" => {
            let perm: Vec<usize> =
                items.get("perm")?.split(',').filter_map(|axis| axis.parse().ok()).collect();
            Some(turned(bytes, width(from)?, &dims, &perm))
        }
        "Mul" | "Add" | "Sub" | "Div" | "aten.mul.Tensor" => {
            let by = items.get("1")?;
            let by: f64 = by.split_once('=').map_or(*by, |(_, all)| all).parse().ok()?;
            let apply = |number: f64| match op.kind {
                "Mul" | "aten.mul.Tensor" => number * by,
                "Add" => number + by,
                "Sub" => number - by,
                _ => number / by,
            };
            let numbers = bytes.chunks_exact(width(from)?).map(|element| decode(from, element));
            Some(numbers.flat_map(|number| encode(to, apply(number))).collect())
        }
        _ => None,
    }
}

/// Bytes of an element that this knows: halves are not among them.
fn width(elem: &str) -> Option<usize> {
    Some(match elem {
        "uint8" | "int8" => 1,
        "int16" | "uint16" => 2,
        "float" | "float32" | "int32" | "uint32" => 4,
        "double" | "float64" | "int64" | "uint64" => 8,
        _ => return None,
    })
}

macro_rules! numbers {
    ($($name:pat => $type:ty),+) => {
        fn decode(elem: &str, bytes: &[u8]) -> f64 {
            match elem { $($name => bytes.try_into().map_or(0.0, |bytes| <$type>::from_le_bytes(bytes) as f64),)+ _ => 0.0 }
        }

        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate, as a kernel's might")]
        fn encode(elem: &str, number: f64) -> Vec<u8> {
            match elem { $($name => (number as $type).to_le_bytes().to_vec(),)+ _ => Vec::new() }
        }
    };
}
numbers!("uint8" => u8, "int8" => i8, "uint16" => u16, "int16" => i16, "uint32" => u32, "int32" => i32, "uint64" => u64,
    "int64" => i64, "float" | "float32" => f32, "double" | "float64" => f64);

/// A tensor of `dims` with its axes in the order `perm`.
fn turned(bytes: &[u8], width: usize, dims: &[usize], perm: &[usize]) -> Vec<u8> {
    let stride = |axis: usize| dims.iter().skip(axis + 1).product::<usize>();
    let out: Vec<usize> = perm.iter().map(|&axis| dims.get(axis).copied().unwrap_or(1)).collect();
    let mut made = Vec::with_capacity(bytes.len());
    for mut at in 0..bytes.len() / width {
        let mut from = 0;
        for (&dim, &axis) in out.iter().zip(perm).rev() {
            from += at % dim.max(1) * stride(axis);
            at /= dim.max(1);
        }
        made.extend(bytes.iter().skip(from * width).take(width));
    }
    made
}
