//! What users hand in: graphs in any format memfit reads, devices by name.

use std::collections::BTreeMap;

use memfit_formats::csv::CsvBuffer;
use memfit_formats::onnx::OnnxOptions;
use memfit_formats::plan_json::PlanFile;
use memfit_formats::tflite::{self, TfliteOptions};
use memfit_formats::{
    FormatError, checkmate_json, csv, device_toml, g10_json, graph_json, is_packed, snapshot, unpack, xla,
};
use memfit_ir::text::Document;
use memfit_ir::{Bytes, Device, Graph, text};

use crate::{Failure, bodies, replaying};

/// How to read a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Sizes of open dimensions of ONNX and TensorFlow Lite models: `batch` → 8.
    pub dims: BTreeMap<String, u64>,
    /// The branch or body of an ONNX model that is read in place of the model: `node/then_branch`, `node/body`.
    pub body: Option<String>,
}

/// Reads a graph, plain or compressed with Zstandard: `memfit-graph/1` JSON, JSON as Checkmate and G10 write it, a log of the
/// DTR simulator, the text form (`.mfg`), a TensorFlow Lite model or an ONNX model. The format is found from the bytes.
///
/// # Errors
///
/// [`Failure::Input`] names the place in the file.
pub fn graph(bytes: &[u8], options: &Options) -> Result<Graph, Failure> {
    // A plain model may be larger than what a compressed file may unpack to: weights are skipped, not read.
    let unpacked = if is_packed(bytes) { unpack(bytes)? } else { bytes.into() };
    let bytes = &*unpacked;
    let start = bytes.trim_ascii_start();
    let is_json = start.starts_with(b"{");
    let is_text = [&b"graph"[..], b"limits", b";"].iter().any(|word| start.starts_with(word));
    if let Some(body) = options.body.as_ref().filter(|_| is_json || is_text) {
        let message = format!("`--body {body}` is for ONNX models");
        return Err(Failure::usage(message, "this graph has no branches or bodies: leave it out"));
    }
    if (is_json || is_text) && !options.dims.is_empty() {
        return Err(Failure::usage(
            "`--dim` is for ONNX and TensorFlow Lite models",
            "this graph has its sizes already: leave it out",
        ));
    }
    if is_text {
        return document(bytes)?.graph.ok_or_else(|| no_section("graph").into());
    }
    if is_json && replaying::is_log(bytes) {
        return replaying::graph_of_log(bytes);
    }
    if is_json {
        // Our own form says which it is; the others are told by what they have. What is neither is reported as ours.
        return Ok(match () {
            () if contains(&bytes[..bytes.len().min(HEAD)], b"\"memfit-") => graph_json::read(bytes)?,
            () if checkmate_json::is_like(bytes) => checkmate_json::read(bytes)?,
            () if g10_json::is_like(bytes) => g10_json::read(bytes)?,
            () => graph_json::read(bytes)?,
        });
    }
    if tflite::is_like(bytes) {
        return Ok(tflite::read(bytes, &TfliteOptions { dims: options.dims.clone() })?.graph);
    }
    if let Some(error) = mistaken(bytes) {
        return Err(error.into());
    }
    bodies::read(bytes, &OnnxOptions { dims: options.dims.clone() }, options.body.as_deref())
}

/// The TensorFlow Lite model in `model` with the offsets of `plan` in it, as `OfflineMemoryAllocation`. The plan must be one that
/// [`check`](crate::check()) has accepted for this model.
///
/// # Errors
///
/// [`Failure::Input`] if the file is no such model, or the plan is one that offsets alone cannot say.
pub fn with_offsets(model: &[u8], options: &Options, plan: &PlanFile) -> Result<Vec<u8>, Failure> {
    if !tflite::is_like(model) {
        let message = "offsets are written into TensorFlow Lite models, and this is none";
        return Err(FormatError::new("", message).into());
    }
    let read = tflite::read(model, &TfliteOptions { dims: options.dims.clone() })?;
    Ok(tflite::with_offsets(model, &tflite::offsets(plan, &read)?)?)
}

/// Bytes within which a file of ours names its schema.
const HEAD: usize = 4096;

/// What a file is that is often handed in for a graph, and what would do.
fn mistaken(bytes: &[u8]) -> Option<FormatError> {
    let export = "write a graph: `python -m memfit.torch.export MODEL -o graph.json`, or `torch.onnx.export`";
    let (message, hint) = if bytes.is_empty() {
        ("the file is empty", export)
    } else if bytes.starts_with(b"PK\x03\x04") {
        (
            "this is a zip archive, such as `torch.save` writes: weights without the steps that use them",
            export,
        )
    } else if snapshot::is_snapshot(bytes) {
        (
            "this is a pickle, not a graph",
            "of a CUDA memory snapshot: `memfit explain FILE`; of a model: export a graph",
        )
    } else if std::str::from_utf8(bytes)
        .is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
    {
        ("this is text, and neither JSON nor memfit's text form", export)
    } else {
        return None;
    };
    Some(FormatError::new("", message).hint(hint))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Reads a list of buffers to place, by what is in the file: CSV; XLA's dump of a buffer assignment, with its live ranges in `ranges` or
/// after it; or a TensorFlow Lite model, whose tensors are listed as its runtime for microcontrollers sees them. Beside the
/// buffers what XLA assigned to them.
///
/// # Errors
///
/// [`Failure::Input`] names the place in the file; [`Failure::Usage`] live ranges without a dump of XLA's, and sizes of dimensions
/// without a model.
pub fn buffers(
    bytes: &[u8],
    options: &Options,
    ranges: Option<&[u8]>,
) -> Result<(Vec<CsvBuffer>, Option<Bytes>), Failure> {
    let is_assignment = xla::is_like(bytes);
    if ranges.is_some() && !is_assignment {
        let message = "`--live-ranges` belongs to a buffer assignment of XLA's";
        return Err(Failure::usage(message, "in CSV, each row says from when to when it is live"));
    }
    if tflite::is_like(bytes) {
        return Ok((tflite::buffers(bytes, &TfliteOptions { dims: options.dims.clone() })?, None));
    }
    if !options.dims.is_empty() {
        let hint = "a list of buffers has its sizes already: leave it out";
        return Err(Failure::usage("`--dim` is for models", hint));
    }
    if is_assignment {
        let assignment = xla::read(bytes, ranges)?;
        return Ok((assignment.buffers, Some(assignment.taken)));
    }
    Ok((csv::read(bytes)?, None))
}

/// Whether a file, plain or compressed, is a pickle: a snapshot of PyTorch's CUDA memory and no graph.
#[must_use]
pub fn is_snapshot(bytes: &[u8]) -> bool {
    let unpacked = if is_packed(bytes) { unpack(bytes).unwrap_or_default() } else { bytes.into() };
    snapshot::is_snapshot(&unpacked)
}

/// Reads a document in text form.
pub(crate) fn document(bytes: &[u8]) -> Result<Document, FormatError> {
    text::parse(bytes).map_err(|error| {
        FormatError::new(format!("line {}, column {}", error.line, error.column), error.message)
    })
}

/// What is wrong with a document in text form that lacks a section.
pub(crate) fn no_section(name: &str) -> FormatError {
    FormatError::new("", format!("no `{name}` section"))
}

/// The preset called `name`, in any case.
///
/// # Errors
///
/// [`Failure::Usage`] lists the names there are.
pub fn device(name: &str) -> Result<Device, Failure> {
    device_toml::preset(name).ok_or_else(|| {
        let known: Vec<String> =
            device_toml::presets().iter().map(|preset| preset.device.name.clone()).collect();
        let hint = format!("known: {}; or a file: `--device my.toml`", known.join(", "));
        Failure::usage(format!("there is no device `{name}`"), hint)
    })
}

/// Reads a device from the text of a TOML file.
///
/// # Errors
///
/// [`Failure::Input`] names the key.
pub fn device_file(text: &str) -> Result<Device, Failure> {
    Ok(device_toml::read(text)?)
}
