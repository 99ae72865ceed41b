//! Readers and writers of files: graphs, plans, devices, lists of buffers.
//!
//! From and to bytes only: this crate opens no file, reads no clock and prints nothing. What it reads may be
//! hostile: every count, length and size is bounded and checked, and a file that is refused says where and why
//! ([`FormatError`]). Reading never panics.

#![forbid(unsafe_code)]

pub mod checkmate_json;
pub mod csv;
pub mod device_toml;
mod error;
pub mod g10_json;
pub mod graph_json;
mod json;
pub mod offsets;
pub mod onnx;
mod pickle;
pub mod plan_json;
pub mod report;
pub mod simrd;
pub mod snapshot;
pub mod svg;
pub mod tensors;
pub mod tflite;
pub mod xla;
mod zst;

pub use error::{FormatError, brief, is_obeyed};
pub use zst::{MAX_BYTES, compress, is_packed, unpack};
