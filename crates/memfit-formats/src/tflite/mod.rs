//! TensorFlow Lite models (`.tflite`, LiteRT): the first subgraph as an inference graph, and offsets back into the model.
//!
//! What is planned is the arena: inputs, outputs and what lies between. Weights stay in the file, where the runtime reads them.
//! Variables (`is_variable`) are persistent. Ops that only see their input in another shape are no ops: input and output are one
//! value. What else may be computed in place is in the table of operators.
//!
//! | file | holds |
//! |---|---|
//! | `flat.rs` | FlatBuffers, every offset checked |
//! | `schema.rs` | models, tensors, operators |
//! | `operators.rs` | names of operators, what they may do in place, what they compute |
//! | `lower.rs` | from operators to the graph |
//! | `buffers.rs` | the arena as TensorFlow Lite Micro sees it: a list of buffers |
//! | `offsets.rs`, `splice.rs` | from a plan to `OfflineMemoryAllocation`, and into the file |

mod buffers;
mod flat;
mod lower;
mod offsets;
mod operators;
mod schema;
mod splice;

use std::collections::BTreeMap;

use memfit_ir::{Graph, ValueId};

pub use buffers::buffers;
pub use offsets::{ALIGN, offsets};
pub use splice::{METADATA, offsets_in, with_offsets};

use crate::FormatError;

/// What a model leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TfliteOptions {
    /// Numbers for the dimensions of inputs that the model leaves open, called `input[axis]`. A model holds the sizes of all its
    /// tensors for one number each, and nothing else is accepted.
    pub dims: BTreeMap<String, u64>,
}

/// A model as a graph.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its first subgraph.
    pub graph: Graph,
    /// For each tensor of that subgraph, the value that holds it; `None` for weights, handles, and what no op uses. Tensors
    /// that are views of each other have one value. For a variable it is the first version.
    pub tensors: Vec<Option<ValueId>>,
    /// How many tensors all other subgraphs have, which initialise variables, say; `None` if one of them needs the arena.
    pub beside: Option<usize>,
}

/// Whether the bytes say that they are a TensorFlow Lite model.
#[must_use]
pub fn is_like(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(&b"TFL3"[..])
}

/// Reads a model.
///
/// ```
/// use memfit_formats::tflite::{TfliteOptions, read};
/// let error = read(b"\x08\0\0\0TFL3", &TfliteOptions::default()).unwrap_err();
/// assert!(error.to_string().contains("lies outside of the file"));
/// ```
///
/// # Errors
///
/// If the bytes are no such model or a damaged one; if an op is control flow, reads what nothing makes or makes what is there
/// already; if a used tensor has a size that only a run can tell; if a dimension of an input is open, and its number is not given
/// or another than the file has sizes for. The place is the tensor or the op.
pub fn read(bytes: &[u8], options: &TfliteOptions) -> Result<Model, FormatError> {
    lower::lower(&schema::Subgraph::first(bytes)?, options)
}
