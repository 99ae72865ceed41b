//! Reading the section `graph`.

use super::ParseError;
use super::cursor::{Cursor, Parsed};
use crate::{
    Algorithm, Dtype, Effect, Graph, GraphBuilder, Nanos, Need, OpSpec, Phase, Pin, Price, Reuse, Role,
    ValueId, ValueSpec,
};

/// A graph that is being read.
pub(super) struct GraphReader {
    builder: GraphBuilder,
    values: usize,
    ops: usize,
}

impl GraphReader {
    /// After `graph "name"`.
    pub(super) fn new(cursor: &mut Cursor<'_>) -> Parsed<GraphReader> {
        cursor.word();
        let name = cursor.string()?.unwrap_or_default();
        Ok(GraphReader { builder: GraphBuilder::new(name), values: 0, ops: 0 })
    }

    pub(super) fn finish(self, last: u32) -> Parsed<Graph> {
        self.builder.finish().map_err(|error| ParseError {
            line: last,
            column: 1,
            message: error.to_string(),
        })
    }

    pub(super) fn statement(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let line = cursor.line();
        let refused = |error: crate::GraphError| ParseError { line, column: 1, message: error.to_string() };
        let word = cursor.peek_word();
        if cursor.eat_word("result") {
            while !cursor.is_done() {
                let value = value_id(cursor)?;
                self.builder.result(value).map_err(refused)?;
            }
        } else if cursor.eat_word("replays-random") {
            self.builder.replays_random(true);
        } else if word == format!("v{}", self.values) {
            cursor.word();
            cursor.expect("=")?;
            let spec = value(cursor)?;
            self.builder.value(spec).map_err(refused)?;
            self.values += 1;
        } else if word == format!("op{}", self.ops) {
            cursor.word();
            cursor.expect("=")?;
            let spec = op(cursor)?;
            self.builder.op(spec).map_err(refused)?;
            self.ops += 1;
        } else {
            return cursor.expected(&format!("`v{}`, `op{}` or `result`", self.values, self.ops));
        }
        Ok(())
    }
}

fn value_id(cursor: &mut Cursor<'_>) -> Parsed<ValueId> {
    cursor.id("v", "a value such as `v0`").map(ValueId)
}

/// `parameter 64 "w" f32[4,4] density=0.5 sensitivity=2 pin=0@128`
fn value(cursor: &mut Cursor<'_>) -> Parsed<ValueSpec> {
    let role = cursor.read("a role", Role::by_name)?;
    let size = cursor.bytes()?;
    let name = cursor.string()?.unwrap_or_default();
    let mut spec = ValueSpec { name, size, role, ..ValueSpec::default() };
    if let Some(dtype) = Dtype::by_name(cursor.peek_word()) {
        cursor.word();
        spec.dtype = dtype;
        cursor.expect("[")?;
        while !cursor.eat("]") {
            if !spec.shape.is_empty() {
                cursor.expect(",")?;
            }
            spec.shape.push(cursor.number("a dimension")?);
        }
    }
    if cursor.eat_word("density") {
        cursor.expect("=")?;
        spec.density = Some(cursor.number("a fraction between 0 and 1")?);
    }
    if cursor.eat_word("sensitivity") {
        cursor.expect("=")?;
        spec.sensitivity = Some(cursor.number("a number from 0 on")?);
    }
    if cursor.eat_word("pin") {
        cursor.expect("=")?;
        let bank = cursor.number("a bank")?;
        let offset = cursor.eat("@").then(|| cursor.bytes()).transpose()?;
        spec.pin = Some(Pin { bank, offset });
    }
    Ok(spec)
}

/// `forward conv(v0, v1) -> v2 "layer1" flops=100 workspace=64 must=v0>v2`
fn op(cursor: &mut Cursor<'_>) -> Parsed<OpSpec> {
    let mut spec = OpSpec::default();
    match cursor.string()? {
        Some(kind) => spec.kind = kind,
        None => {
            let word = cursor.word();
            if cursor.touches('(') && !word.is_empty() {
                word.clone_into(&mut spec.kind);
            } else if let Some(phase) = Phase::by_name(word) {
                spec.phase = phase;
                match cursor.string()? {
                    Some(kind) => spec.kind = kind,
                    None => cursor.word().clone_into(&mut spec.kind),
                }
            } else {
                return cursor.expected("a phase or a kind of op before this,");
            }
        }
    }
    cursor.expect("(")?;
    while !cursor.eat(")") {
        if !spec.reads.is_empty() {
            cursor.expect(",")?;
        }
        spec.reads.push(value_id(cursor)?);
    }
    if cursor.eat("->") {
        spec.writes.push(value_id(cursor)?);
        while cursor.eat(",") {
            spec.writes.push(value_id(cursor)?);
        }
    }
    spec.name = cursor.string()?.unwrap_or_default();
    while !cursor.is_done() {
        attribute(&mut spec, cursor)?;
    }
    Ok(spec)
}

fn attribute(spec: &mut OpSpec, cursor: &mut Cursor<'_>) -> Parsed<()> {
    if let Some(effect) = Effect::by_name(cursor.peek_word()) {
        cursor.word();
        spec.effect = effect;
        return Ok(());
    }
    const KEYS: [&str; 12] = [
        "attributes",
        "module",
        "flops",
        "moved",
        "dtype",
        "time",
        "workspace",
        "algorithm",
        "sign",
        "shape",
        "must",
        "may",
    ];
    let key = cursor.peek_word();
    if !KEYS.contains(&key) {
        return cursor.expected("an effect, `attributes=`, `module=`, `flops=`, `moved=`, `dtype=`, `time=`, `workspace=`, `algorithm=`, `sign=`, `shape=`, `must=` or `may=`");
    }
    cursor.word();
    cursor.expect("=")?;
    match key {
        "attributes" => match cursor.string()? {
            Some(attributes) => spec.attributes = Some(attributes),
            None => return cursor.expected("a text in quotes"),
        },
        "module" => match cursor.string()? {
            Some(module) => spec.module = module,
            None => return cursor.expected("a name in quotes"),
        },
        "flops" => spec.flops = cursor.number("a number of operations")?,
        "moved" => spec.moved = cursor.bytes()?,
        "dtype" => spec.dtype = cursor.read("a dtype", Dtype::by_name)?,
        "time" => spec.time = Some(Nanos(cursor.number("a number of nanoseconds")?)),
        "workspace" => spec.workspace = cursor.bytes()?,
        "algorithm" => {
            let workspace = cursor.bytes()?;
            cursor.expect(":")?;
            let first = cursor.number("a number of nanoseconds, or of operations")?;
            let price = match cursor.eat("/") {
                true => Price::Work { flops: first, moved: cursor.bytes()? },
                false => Price::Time(Nanos(first)),
            };
            if spec.algorithms.len() >= usize::from(u16::MAX) {
                return cursor.fail("more than 65535 algorithms");
            }
            spec.algorithms.push(Algorithm { workspace, price });
        }
        "sign" | "shape" => {
            let at: usize = cursor.number("the position of an operand")?;
            spec.needs.resize(spec.reads.len(), Need::Value);
            match spec.needs.get_mut(at) {
                Some(need) => *need = Need::by_name(key).unwrap_or_default(),
                None => return cursor.fail(format!("there is no operand {at}: the first one is 0")),
            }
        }
        _ => {
            let input = value_id(cursor)?;
            cursor.expect(">")?;
            let output = value_id(cursor)?;
            spec.reuses.push(Reuse { input, output, must: key == "must" });
        }
    }
    Ok(())
}
