//! `memfit-graph/1`: a graph as JSON, plain or compressed with Zstandard. The schema is in `docs/graph-json.md`.
//!
//! Values and ops go one by one from the text into a [`GraphBuilder`], which checks them. Time and space are
//! linear in the file, apart from ops with thousands of operands.

use std::borrow::Cow;

use memfit_ir::{
    Algorithm, Bytes, Dtype, Effect, Graph, GraphBuilder, MAX_COUNT, Nanos, Need, Op, OpSpec, Phase, Pin,
    Price, Reuse, Role, Value, ValueId, ValueSpec,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::FormatError;
use crate::json::{self, MAX_NAME, Object, for_each, is_default};

const SCHEMA: &str = "memfit-graph/1";
/// The most reads, writes, pairs or algorithms of one op: the builder compares them pairwise.
const MAX_OPERANDS: usize = 1 << 14;
/// The most dimensions of a value.
const MAX_RANK: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    schema: String,
    name: String,
    #[serde(rename = "origin", default)]
    _origin: Option<String>,
    #[serde(default)]
    replays_random: bool,
    #[serde(borrow)]
    values: &'a RawValue,
    #[serde(borrow)]
    ops: &'a RawValue,
    #[serde(borrow)]
    results: &'a RawValue,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ValueJson<'a> {
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    name: Cow<'a, str>,
    bytes: u64,
    #[serde(default, with = "json::dtype", skip_serializing_if = "is_default")]
    dtype: Dtype,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shape: Vec<u64>,
    #[serde(default, with = "json::role", skip_serializing_if = "is_default")]
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    density: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sensitivity: Option<f32>,
    #[serde(default, deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    pin: Option<PinJson>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PinJson {
    bank: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OpJson<'a> {
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    name: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    module: Cow<'a, str>,
    #[serde(default, with = "json::phase", skip_serializing_if = "is_default")]
    phase: Phase,
    #[serde(default, skip_serializing_if = "is_plain_zero")]
    flops: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved: Option<u64>,
    #[serde(default, with = "json::dtype", skip_serializing_if = "is_default")]
    dtype: Dtype,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    workspace: u64,
    #[serde(default, deserialize_with = "json::objects", skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<AlgorithmJson>,
    #[serde(default, with = "json::effect", skip_serializing_if = "is_default")]
    effect: Effect,
    reads: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sign: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shape: Vec<usize>,
    writes: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    must: Vec<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    may: Vec<(u32, u32)>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AlgorithmJson {
    workspace: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved: Option<u64>,
}

impl AlgorithmJson {
    fn read(&self) -> Result<Algorithm, String> {
        let price = match (self.time_ns, self.flops, self.moved) {
            (Some(time), None, None) => Price::Time(Nanos(time)),
            (None, Some(flops), Some(moved)) => Price::Work { flops, moved: Bytes(moved) },
            _ => return Err("an algorithm has either `time_ns`, or `flops` and `moved`".to_owned()),
        };
        Ok(Algorithm { workspace: Bytes(self.workspace), price })
    }

    fn of(algorithm: &Algorithm) -> AlgorithmJson {
        let (time_ns, flops, moved) = match algorithm.price {
            Price::Time(time) => (Some(time.0), None, None),
            Price::Work { flops, moved } => (None, Some(flops), Some(moved.0)),
        };
        AlgorithmJson { workspace: algorithm.workspace.0, time_ns, flops, moved }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_plain_zero(number: &f64) -> bool {
    number.to_bits() == 0 // A negative zero has another digest.
}

/// Reads a graph, plain or compressed.
///
/// # Errors
///
/// If the file is damaged, has an unknown key, exceeds a limit of `docs/graph-json.md`, or its graph is one that
/// [`GraphBuilder`] refuses. The error names the value or op by position, and by name where it could be read.
pub fn read(bytes: &[u8]) -> Result<Graph, FormatError> {
    let text = crate::zst::text(bytes)?;
    let file: File<'_> = json::outermost(&text, SCHEMA)?;
    if file.schema != SCHEMA {
        return Err(json::wrong_schema(&file.schema, SCHEMA));
    }
    if file.name.len() > MAX_NAME {
        return Err(FormatError::new("name", format!("longer than {MAX_NAME} bytes")));
    }
    let mut builder = GraphBuilder::new(file.name);
    builder.replays_random(file.replays_random);
    for_each(&text, file.values.get(), "values", MAX_COUNT, |at, Object(value): Object<ValueJson<'_>>| {
        let spec = value_spec(value).map_err(|(name, message)| refuse("values", at, &name, &message))?;
        builder.value(spec).map_err(|error| FormatError::new(format!("values[{at}]"), error.to_string()))?;
        Ok(())
    })?;
    for_each(&text, file.ops.get(), "ops", MAX_COUNT, |at, Object(op): Object<OpJson<'_>>| {
        let spec = op_spec(op, &builder).map_err(|(name, message)| refuse("ops", at, &name, &message))?;
        builder.op(spec).map_err(|error| FormatError::new(format!("ops[{at}]"), error.to_string()))?;
        Ok(())
    })?;
    let mut seen = std::collections::BTreeSet::new();
    for_each(&text, file.results.get(), "results", MAX_COUNT, |at, value: u32| {
        let refuse = |message: String| Err(FormatError::new(format!("results[{at}]"), message));
        if !seen.insert(value) {
            return refuse(format!("value {value} stands there twice"));
        }
        builder.result(ValueId(value)).or_else(|error| refuse(error.to_string()))
    })?;
    builder.finish().map_err(|error| FormatError::new("", error.to_string()))
}

/// What the builder did not refuse, in its manner: it names values and ops itself.
fn refuse(list: &str, at: usize, name: &str, message: &str) -> FormatError {
    let name: String = name.chars().take(100).collect();
    let what = if list == "ops" { "op" } else { "value" };
    FormatError::new(format!("{list}[{at}]"), format!("{what} `{name}`: {message}"))
}

fn value_spec(value: ValueJson<'_>) -> Result<ValueSpec, (String, String)> {
    let fail = |message: String| (value.name.to_string(), message);
    check_name("name", &value.name).map_err(fail)?;
    if value.shape.len() > MAX_RANK {
        return Err(fail(format!("`shape` has {} dimensions, more than {MAX_RANK}", value.shape.len())));
    }
    let pin = value.pin.map(|pin| Pin { bank: pin.bank, offset: pin.offset.map(Bytes) });
    Ok(ValueSpec {
        name: value.name.into_owned(),
        size: Bytes(value.bytes),
        dtype: value.dtype,
        shape: value.shape,
        role: value.role,
        density: value.density,
        sensitivity: value.sensitivity,
        pin,
    })
}

fn op_spec(op: OpJson<'_>, builder: &GraphBuilder) -> Result<OpSpec, (String, String)> {
    let fail = |message: String| (op.name.to_string(), message);
    for (key, name) in [("name", &op.name), ("kind", &op.kind), ("module", &op.module)] {
        check_name(key, name).map_err(fail)?;
    }
    if let Some(attributes) = &op.attributes {
        check_name("attributes", attributes).map_err(fail)?;
    }
    let lists = [
        ("reads", op.reads.len()),
        ("sign", op.sign.len()),
        ("shape", op.shape.len()),
        ("writes", op.writes.len()),
        ("must", op.must.len()),
        ("may", op.may.len()),
        ("algorithms", op.algorithms.len()),
    ];
    if let Some((key, count)) = lists.into_iter().find(|&(_, count)| count > MAX_OPERANDS) {
        return Err(fail(format!("`{key}` has {count} elements, more than {MAX_OPERANDS}")));
    }
    let needs = needs(&op).map_err(fail)?;
    let ids = |list: Vec<u32>| list.into_iter().map(ValueId).collect::<Vec<_>>();
    let (reads, writes) = (ids(op.reads), ids(op.writes));
    let operands = reads.iter().chain(&writes).filter_map(|&value| builder.size_of(value)).sum();
    let pairs = |list: Vec<(u32, u32)>, must| {
        list.into_iter().map(move |(input, output)| Reuse {
            input: ValueId(input),
            output: ValueId(output),
            must,
        })
    };
    let algorithms: Result<Vec<Algorithm>, String> = op.algorithms.iter().map(AlgorithmJson::read).collect();
    let algorithms = algorithms.map_err(fail)?;
    Ok(OpSpec {
        name: op.name.into_owned(),
        kind: op.kind.into_owned(),
        attributes: op.attributes.map(Cow::into_owned),
        module: op.module.into_owned(),
        phase: op.phase,
        flops: op.flops,
        moved: op.moved.map_or(operands, Bytes),
        dtype: op.dtype,
        time: op.time_ns.map(Nanos),
        workspace: Bytes(op.workspace),
        effect: op.effect,
        reads,
        needs,
        writes,
        reuses: pairs(op.must, true).chain(pairs(op.may, false)).collect(),
        algorithms,
    })
}

/// What an op reads of each operand; empty if that is everything.
fn needs(op: &OpJson<'_>) -> Result<Vec<Need>, String> {
    let mut needs = Vec::new();
    for (key, list, need) in [("sign", &op.sign, Need::Sign), ("shape", &op.shape, Need::Shape)] {
        for &at in list {
            needs.resize(op.reads.len(), Need::Value);
            match needs.get_mut(at) {
                Some(other) if *other == Need::Value => *other = need,
                Some(_) => return Err(format!("`{key}`: operand {at} stands there twice")),
                None => return Err(format!("`{key}`: there is no operand {at} of {}", op.reads.len())),
            }
        }
    }
    Ok(needs)
}

fn check_name(key: &str, name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME {
        return Err(format!("`{key}` is longer than {MAX_NAME} bytes"));
    }
    Ok(())
}

/// Writes a graph: one value or op a line, keys in the order of `docs/graph-json.md`, defaults left out, so equal
/// graphs give equal bytes. [`read`] gives back a graph of the same digest. Not compressed: see [`crate::compress`].
#[must_use]
pub fn write(graph: &Graph) -> Vec<u8> {
    let mut out = Vec::with_capacity(graph.op_count() * 160 + graph.value_count() * 80);
    json::put_key(&mut out, "schema", &SCHEMA);
    json::put_key(&mut out, "name", &graph.name());
    if graph.replays_random() {
        json::put_key(&mut out, "replays_random", &true);
    }
    json::put_lines(&mut out, "values", graph.value_ids().map(|id| value_json(graph.value(id))));
    json::put_lines(&mut out, "ops", graph.op_ids().map(|id| op_json(graph, graph.op(id))));
    json::put_key(&mut out, "results", &numbers(graph.results()));
    out.extend_from_slice(b"\n}\n");
    out
}

fn numbers(values: &[ValueId]) -> Vec<u32> {
    values.iter().map(|value| value.0).collect()
}

fn value_json(value: Value<'_>) -> ValueJson<'_> {
    ValueJson {
        name: value.name.into(),
        bytes: value.size.0,
        dtype: value.dtype,
        shape: value.shape.to_vec(),
        role: value.role,
        density: value.density,
        sensitivity: value.sensitivity,
        pin: value.pin.map(|pin| PinJson { bank: pin.bank, offset: pin.offset.map(|offset| offset.0) }),
    }
}

fn op_json<'g>(graph: &Graph, op: Op<'g>) -> OpJson<'g> {
    let operands: Bytes = op.reads.iter().chain(op.writes).map(|&value| graph.value(value).size).sum();
    let pairs = |must| {
        op.reuses
            .iter()
            .filter(|pair| pair.must == must)
            .map(|pair| (pair.input.0, pair.output.0))
            .collect::<Vec<_>>()
    };
    let needing = |need| {
        let all = op.needs.iter().enumerate().filter(|(_, other)| **other == need);
        all.map(|(at, _)| at).collect::<Vec<_>>()
    };
    OpJson {
        name: op.name.into(),
        kind: op.kind.into(),
        attributes: op.attributes.map(Cow::Borrowed),
        module: op.module.into(),
        phase: op.phase,
        flops: op.flops,
        moved: (op.moved != operands).then_some(op.moved.0),
        dtype: op.dtype,
        time_ns: op.time.map(|time| time.0),
        workspace: op.workspace.0,
        algorithms: op.algorithms.iter().map(AlgorithmJson::of).collect(),
        effect: op.effect,
        reads: numbers(op.reads),
        sign: needing(Need::Sign),
        shape: needing(Need::Shape),
        writes: numbers(op.writes),
        must: pairs(true),
        may: pairs(false),
    }
}
