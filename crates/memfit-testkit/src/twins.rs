//! Graphs with something to simplify: ops twice, dead ops, transposes and casts there and back, factors of one, views.
//!
//! Made from a [`sketch()`] by giving its pure ops attributes of a few kinds, and putting ops between its own that compute what
//! is there already. Readers take the one or the other.

use memfit_ir::{Bytes, Effect, Graph, OpSpec, Role, ValueId, ValueSpec};

use crate::{Rng, Sketch, sketch};

/// A graph of which a part can be had for less.
#[must_use]
pub fn twins(seed: u64) -> Graph {
    let mut rng = Rng::new(seed ^ 0x7769_6e73);
    let plain = sketch(seed);
    let mut made = Sketch { values: plain.values.clone(), ops: Vec::new(), results: plain.results.clone() };
    // By value of the sketch: what holds the same bytes.
    let mut others: Vec<Vec<ValueId>> = vec![Vec::new(); plain.values.len()];
    for op in &plain.ops {
        let mut op = op.clone();
        if op.effect == Effect::Pure && rng.chance(80) {
            op.attributes = Some(format!("a={}", rng.below(2)));
        }
        let taken = |value: ValueId| op.reuses.iter().any(|pair| pair.must && pair.input == value);
        let swaps: Vec<(ValueId, ValueId)> = (op.reads.iter())
            .filter(|&&value| !taken(value))
            .filter_map(|&value| Some((value, rng.pick(&others[value.index()]).filter(|_| rng.chance(50))?)))
            .collect();
        for (from, to) in swaps {
            op.reads.iter_mut().filter(|read| **read == from).for_each(|read| *read = to);
            op.reuses.iter_mut().filter(|pair| pair.input == from).for_each(|pair| pair.input = to);
        }
        made.ops.push(op.clone());
        let is_free = op.reuses.iter().all(|pair| !pair.must) && op.effect == Effect::Pure;
        if is_free && !op.writes.is_empty() && rng.chance(40) {
            let twin = again(&mut made, &op);
            for (value, twin) in op.writes.iter().zip(&twin.writes) {
                others[value.index()].push(*twin);
                if rng.chance(10) {
                    made.results.push(*twin);
                }
            }
            made.ops.push(twin);
        }
        for &value in &op.writes {
            if rng.chance(40) {
                let same = around(&mut made, &mut rng, value);
                others[value.index()].extend(same);
            }
            if rng.chance(15) {
                let size = made.size(value);
                let out = like(&mut made, value, size);
                made.ops.push(spec("unused", "a=0".to_owned(), value, out));
            }
        }
    }
    // What is overwritten is no result.
    let over = |value: &ValueId| {
        made.ops.iter().any(|op| op.reuses.iter().any(|pair| pair.must && pair.input == *value))
    };
    let results: Vec<ValueId> = made.results.iter().copied().filter(|value| !over(value)).collect();
    Sketch { results, ..made }.build()
}

/// The same op with outputs of its own.
fn again(made: &mut Sketch, op: &OpSpec) -> OpSpec {
    let writes: Vec<ValueId> = op.writes.iter().map(|&value| copy(made, value)).collect();
    let mut twin = OpSpec { name: format!("{}'", op.name), ..op.clone() };
    for pair in &mut twin.reuses {
        let at = op.writes.iter().position(|&value| value == pair.output).unwrap_or_default();
        pair.output = writes[at];
    }
    OpSpec { writes, ..twin }
}

fn copy(made: &mut Sketch, value: ValueId) -> ValueId {
    let role = match made.values[value.index()].role {
        Role::Gradient => Role::Gradient,
        _ => Role::Activation,
    };
    let id = ValueId::at(made.values.len());
    let spec = ValueSpec { role, pin: None, ..made.values[value.index()].clone() };
    made.values.push(spec);
    id
}

fn like(made: &mut Sketch, value: ValueId, size: Bytes) -> ValueId {
    let id = copy(made, value);
    let spec = &mut made.values[id.index()];
    (spec.size, spec.density, spec.role) = (size, None, Role::Activation);
    id
}

fn spec(kind: &str, attributes: String, from: ValueId, to: ValueId) -> OpSpec {
    OpSpec {
        name: kind.to_lowercase(),
        kind: kind.to_owned(),
        attributes: Some(attributes),
        reads: vec![from],
        writes: vec![to],
        flops: 1.0,
        ..OpSpec::default()
    }
}

/// Ops that lead from `value` to values of the same bytes, which are returned.
fn around(made: &mut Sketch, rng: &mut Rng, value: ValueId) -> Vec<ValueId> {
    let size = made.size(value);
    let (n, wide) = (size.0, Bytes(size.0 * 2));
    let mut put = |kind: &str, attributes: String, from: ValueId, size: Bytes| {
        let out = like(made, value, size);
        made.ops.push(spec(kind, attributes, from, out));
        out
    };
    match rng.below(5) {
        0 => {
            let cols = if n % 2 == 0 { 2 } else { 1 };
            let (a, b) = (format!("[{},{cols}]", n / cols), format!("[{cols},{}]", n / cols));
            let turned = put("Transpose", format!("0=$0:uint8{a};perm=1,0;out0=uint8{b}"), value, size);
            vec![put("Transpose", format!("0=$0:uint8{b};perm=1,0;out0=uint8{a}"), turned, size)]
        }
        1 => {
            let cast = put("Cast", format!("0=$0:uint8[{n}];out0=int16[{n}]"), value, wide);
            vec![put("Cast", format!("0=$0:int16[{n}];out0=uint8[{n}]"), cast, size)]
        }
        2 => vec![put("Mul", format!("0=$0:uint8[{n}];1=1;out0=uint8[{n}]"), value, size)],
        3 => {
            let flat = put("Reshape", format!("0=$0:uint8[{n}];out0=uint8[{n},1]"), value, size);
            let back = put("Flatten", format!("0=$0:uint8[{n},1];out0=uint8[{n}]"), flat, size);
            vec![flat, back]
        }
        _ => {
            // Looks like an identity and is none.
            let off = put("Add", format!("0=$0:uint8[{n}];1=1;out0=uint8[{n}]"), value, size);
            let _ = put("Transpose", format!("0=$0:uint8[{n},1];perm=0,1;out0=uint8[{n},1]"), off, size);
            Vec::new()
        }
    }
}
