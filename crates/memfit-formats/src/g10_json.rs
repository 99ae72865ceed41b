//! Kernel traces of G10 as JSON: tensors with bytes, kernels with ns, inputs and outputs, in the order they ran.
//!
//! Source: Zhang et al., "G10" (MICRO 2023), converted from its artifact. A tensor that a kernel reads and writes is
//! overwritten in place; one that is written again without being read gets a new version. What is read before it is
//! written is a source: a parameter if it is a weight, else an input. Kernels whose outputs nothing reads run for their
//! effect (`once`); the trace demands no results but the weights. Time and space are linear in the file.

use std::collections::BTreeMap;

use memfit_ir::{
    Bytes, Effect, Graph, GraphBuilder, MAX_COUNT, Nanos, OpSpec, Phase, Reuse, Role, ValueId, ValueSpec,
};
use serde::Deserialize;

use crate::FormatError;
use crate::json::{MAX_NAME, Object};

/// The most operands of one kernel: the builder compares them pairwise.
const MAX_OPERANDS: usize = 1 << 14;

#[derive(Deserialize)]
struct File {
    name: String,
    tensors: BTreeMap<String, Tensor>,
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Tensor {
    bytes: u64,
    weight: bool,
}

#[derive(Deserialize)]
struct Kernel {
    op: String,
    ns: u64,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

/// Whether plain JSON looks like a kernel trace of this form: it has its keys at the top.
#[must_use]
pub fn is_like(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| crate::json::has_keys(text, &["tensors", "kernels"]))
}

/// Reads a trace, plain or compressed with Zstandard.
///
/// # Errors
///
/// If a kernel names a tensor that is not listed, or writes one twice, or the graph is one that [`GraphBuilder`] refuses.
pub fn read(bytes: &[u8]) -> Result<Graph, FormatError> {
    let text = crate::zst::text(bytes)?;
    let Object(file): Object<File> =
        serde_json::from_str(&text).map_err(|error| FormatError::new("", error.to_string()))?;
    if file.kernels.len() >= MAX_COUNT || file.tensors.len() >= MAX_COUNT {
        return Err(FormatError::new("", format!("more than {MAX_COUNT} kernels or tensors")));
    }
    let long = |name: &String| name.len() > MAX_NAME;
    if long(&file.name) || file.tensors.keys().any(long) || file.kernels.iter().any(|kernel| long(&kernel.op))
    {
        return Err(FormatError::new("", format!("a name is longer than {MAX_NAME} bytes")));
    }
    let mut builder = GraphBuilder::new(file.name.clone());
    let mut current: BTreeMap<&str, ValueId> = BTreeMap::new();
    let read_later = last_reads(&file);
    let mut is_backward = false;
    for (at, kernel) in file.kernels.iter().enumerate() {
        let refuse = |message: String| FormatError::new(format!("kernels[{at}]"), message);
        if kernel.inputs.len().max(kernel.outputs.len()) > MAX_OPERANDS {
            return Err(refuse(format!("more than {MAX_OPERANDS} operands")));
        }
        let phase = match kernel.op.as_str() {
            op if op.contains("Backward") || op == "makeLoss" => Phase::Backward,
            op if op.contains("Apply_Grad") => Phase::Update,
            // What loads the first input is no layer, and still before the loss.
            op if op.ends_with("Forward") || !is_backward => Phase::Forward,
            _ => Phase::Update,
        };
        is_backward |= phase != Phase::Forward;
        let mut reads = Vec::with_capacity(kernel.inputs.len());
        for name in &kernel.inputs {
            let tensor = file.tensors.get(name).ok_or_else(|| refuse(unknown(name)))?;
            let value = match current.get(name.as_str()) {
                Some(&value) => value,
                None => {
                    let role = if tensor.weight { Role::Parameter } else { Role::Input };
                    let value =
                        builder.value(spec(name, tensor, role)).map_err(|error| refuse(error.to_string()))?;
                    current.insert(name, value);
                    value
                }
            };
            reads.push(value);
        }
        let (mut writes, mut reuses, mut needed) = (Vec::new(), Vec::new(), false);
        for (position, name) in kernel.outputs.iter().enumerate() {
            if kernel.outputs[..position].contains(name) {
                return Err(refuse(format!("writes `{name}` twice")));
            }
            let tensor = file.tensors.get(name).ok_or_else(|| refuse(unknown(name)))?;
            let role = match (tensor.weight, phase) {
                (true, _) => Role::Parameter,
                (false, Phase::Forward) => Role::Activation,
                (false, _) => Role::Gradient,
            };
            let value = builder.value(spec(name, tensor, role)).map_err(|error| refuse(error.to_string()))?;
            if kernel.inputs.contains(name)
                && let Some(input) = current.get(name.as_str()).copied()
            {
                reuses.push(Reuse { input, output: value, must: true });
            }
            needed |= tensor.weight || read_later.get(name.as_str()).is_some_and(|&last| last > at);
            current.insert(name, value);
            writes.push(value);
        }
        let op = OpSpec {
            name: format!("{}.{at}", kernel.op),
            kind: kernel.op.clone(),
            phase,
            time: Some(Nanos(kernel.ns)),
            effect: if needed { Effect::Pure } else { Effect::Once },
            reads,
            writes,
            reuses,
            ..OpSpec::default()
        };
        builder.op(op).map_err(|error| refuse(error.to_string()))?;
    }
    builder.finish().map_err(|error| FormatError::new("", error.to_string()))
}

/// For each tensor the last kernel that reads it.
fn last_reads(file: &File) -> BTreeMap<&str, usize> {
    let reads = file.kernels.iter().enumerate();
    reads.flat_map(|(at, kernel)| kernel.inputs.iter().map(move |name| (name.as_str(), at))).collect()
}

fn spec(name: &str, tensor: &Tensor, role: Role) -> ValueSpec {
    ValueSpec { name: name.to_owned(), size: Bytes(tensor.bytes), role, ..ValueSpec::default() }
}

fn unknown(name: &str) -> String {
    format!("there is no tensor `{}`", name.chars().take(100).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_updated_in_place() {
        let graph = read(
            br#"{"name": "n", "tensors": {"w": {"bytes": 4, "weight": true}, "x": {"bytes": 8, "weight": false}},
                "kernels": [{"id": 0, "op": "Conv_Forward", "ns": 5, "inputs": ["w"], "outputs": ["x"]},
                            {"id": 1, "op": "Apply", "ns": 6, "inputs": ["x", "w"], "outputs": ["w"]},
                            {"id": 2, "op": "Log", "ns": 7, "inputs": ["w"], "outputs": ["x"]}]}"#,
        )
        .unwrap();
        let op = |at| graph.op(memfit_ir::OpId(at));
        assert_eq!(op(1).reuses, [Reuse { input: ValueId(0), output: ValueId(2), must: true }]);
        assert_eq!(
            (graph.results(), op(0).effect, op(2).effect),
            (&[ValueId(2)][..], Effect::Pure, Effect::Once)
        );
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        let kernel = r#"{"op": "k", "ns": 1, "inputs": [], "outputs": ["x", "x"]}"#;
        let text =
            |tensors: &str| format!(r#"{{"name": "n", "tensors": {{{tensors}}}, "kernels": [{kernel}]}}"#);
        for (text, message) in [
            (text(""), "kernels[0]: there is no tensor `x`"),
            (text(r#""x": {"bytes": 4, "weight": false}"#), "kernels[0]: writes `x` twice"),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err().to_string(), message);
        }
        for text in ["", "[]", "{}", r#"{"name": 3}"#] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_shared_traces_are_read() {
        for (file, ops) in [("bert-base-256", 1369), ("resnet152-1280", 1299)] {
            let path = format!("{}/../../../shared/data/g10/{file}.json", env!("CARGO_MANIFEST_DIR"));
            match std::fs::read(path) {
                Ok(bytes) => assert_eq!(read(&bytes).unwrap().op_count(), ops, "{file}"),
                Err(_) => println!("SKIPPED: `shared/data/g10/{file}.json` is not there"),
            }
        }
    }
}
