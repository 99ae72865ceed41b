//! ONNX models: an inference graph with the sizes that its operators imply.
//!
//! Shapes are inferred from those of the inputs; what the file declares of values in between is believed only
//! where a shape depends on data. Small constants are followed through the graph, as exporters compute shapes
//! in it. Views (`Reshape`, `Squeeze`, `Identity`, `Dropout` without training) are no values of their own, and
//! what is computed from constants alone is a constant.
//!
//! | file | holds |
//! |---|---|
//! | `onnx.proto`, `proto.rs` | the file format, and the code generated from it |
//! | `strip.rs` | drops weights before they are decoded |
//! | `elem.rs`, `tensor.rs`, `symbols.rs` | element types, tensors, symbolic dimensions |
//! | `operators.rs`, `infer/`, `call.rs`, `fold.rs` | the table of operators and what they do to shapes |
//! | `lower.rs`, `lower/control.rs`, `emit.rs` | nodes to tasks, branches and bodies to one task each, tasks to the graph |
//!
//! **Architecture Invariant:** no file but the given bytes is read. Weights may lie in files that a model names;
//! their shape stands in the model, and nothing else of them is needed.

mod call;
mod elem;
mod emit;
mod fold;
mod infer;
mod lower;
mod operators;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod proto;
mod strip;
mod symbols;
mod tensor;

use std::borrow::Cow;
use std::collections::BTreeMap;

use memfit_ir::{Bytes, Graph};
use prost::Message;

use crate::{FormatError, is_obeyed, is_packed, unpack};

/// Bytes of the arena in which a branch or body is placed. Values of no bytes in it lie around it.
pub type Plan<'a> = &'a dyn Fn(&Graph) -> Result<Bytes, String>;

/// What a model leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnnxOptions {
    /// Numbers for symbolic dimensions, as `--dim batch=8` gives them. A dimension that has no name is called
    /// `input[axis]`; one that only a run can tell, of whatever a node makes, `value[axis]`: its number is the most that it may be. An
    /// input that is one integer takes its content by its name.
    pub dims: BTreeMap<String, u64>,
}

/// Reads an ONNX model as an inference graph. Zstandard around the file is undone. Values of branches and bodies (`If`, `Loop`,
/// `Scan`) share no bytes: see [`read_planned`].
///
/// ```
/// use memfit_formats::onnx::{OnnxOptions, read};
/// let error = read(b"{}", &OnnxOptions::default()).unwrap_err();
/// assert!(error.to_string().contains("not an ONNX model"));
/// ```
///
/// # Errors
///
/// If the bytes are not an ONNX model; if a node has an unknown operator, a missing operand, or
/// shapes that don't fit; if a dimension is symbolic without a bound, negative, or overflows; if a shape depends
/// on data and no bound is given or declared. The place is the node, input or initializer.
pub fn read(bytes: &[u8], options: &OnnxOptions) -> Result<Graph, FormatError> {
    read_planned(bytes, options, &|body| {
        let own = body.value_ids().map(|id| body.value(id).size);
        Ok(own.chain(body.op_ids().map(|id| body.op(id).workspace)).sum())
    })
}

/// As [`read`], but `plan` says how many bytes a branch or body takes: the workspace of its op is what the worst one needs.
///
/// # Errors
///
/// As [`read`]; and what `plan` says, with the node in front.
pub fn read_planned(bytes: &[u8], options: &OnnxOptions, plan: Plan<'_>) -> Result<Graph, FormatError> {
    graph(bytes, options, plan).map_err(|error| FormatError {
        place: shown(&error.place),
        message: shown(&error.message),
        hint: error.hint.as_deref().map(shown),
    })
}

fn graph(bytes: &[u8], options: &OnnxOptions, plan: Plan<'_>) -> Result<Graph, FormatError> {
    // Uncompressed, a model may be as long as it likes: its weights are not copied.
    let bytes = if is_packed(bytes) { unpack(bytes)? } else { Cow::Borrowed(bytes) };
    let slim = strip::strip(&bytes)?;
    let model = proto::ModelProto::decode(slim.as_slice()).map_err(|error| {
        FormatError::new("", format!("not an ONNX model, or a damaged one: {error}"))
            .hint("export the model again, or fetch it again")
    })?;
    let name = model.graph.as_ref().map_or("", |graph| graph.name()).to_owned();
    emit::emit(lower::lower(&model, &options.dims, plan)?, &name)
}

/// `text` for a terminal: names in files may be megabytes long and hold control characters.
fn shown(text: &str) -> String {
    const ENDS: usize = 300;
    let clean = |c: char| if is_obeyed(c) { '\u{fffd}' } else { c };
    let length = text.chars().count();
    if length <= 2 * ENDS {
        return text.chars().map(clean).collect();
    }
    let (head, tail) = (text.chars().take(ENDS), text.chars().skip(length - ENDS));
    head.chain(['…']).chain(tail).map(clean).collect()
}
