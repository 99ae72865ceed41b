//! The arena of a model as TensorFlow Lite Micro sees it: a list of buffers, one for each tensor.
//!
//! Ops run in the order of the file; a tensor lives from the op that makes it to the last that reads it, inputs from the start and
//! outputs to the end. Nothing is shared in place and no view is resolved: that is what its planner is handed, and so what planners
//! of that runtime are to be compared on. Scratch memory that kernels ask for when they are prepared is in no file.
//!
//! Source: `AllocationInfoBuilder` of TensorFlow Lite Micro, `micro_allocation_info.cc`.

use memfit_ir::Bytes;

use super::TfliteOptions;
use super::offsets::ALIGN;
use super::schema::{Kind, Subgraph};
use crate::FormatError;
use crate::csv::CsvBuffer;

/// The buffers of the first subgraph; ids are `index:name`. Sizes are those of tensors, offsets multiples of [`ALIGN`].
///
/// # Errors
///
/// As [`super::read`].
pub fn buffers(bytes: &[u8], options: &TfliteOptions) -> Result<Vec<CsvBuffer>, FormatError> {
    let subgraph = Subgraph::first(bytes)?;
    // The whole is checked, so that both say the same of a file.
    super::lower::lower(&subgraph, options)?;
    let count = subgraph.tensors.len();
    let mut spans: Vec<Option<(u64, u64)>> = vec![None; count];
    subgraph.inputs.iter().for_each(|&index| spans[index] = Some((0, 1)));
    let mut now = 0u64;
    for operator in &subgraph.operators {
        now += 1;
        for &index in &operator.outputs {
            spans[index].get_or_insert((now, now + 1));
        }
        for &index in operator.inputs.iter().flatten().chain(&operator.outputs) {
            if let Some(span) = &mut spans[index] {
                span.1 = now + 1;
            }
        }
    }
    for &index in &subgraph.outputs {
        if let Some(span) = &mut spans[index] {
            span.1 = now + 1;
        }
    }
    let mut rows = Vec::new();
    for (index, (tensor, span)) in subgraph.tensors.iter().zip(spans).enumerate() {
        let Some((lower, upper)) = span.filter(|_| tensor.kind == Kind::Arena) else { continue };
        let size = tensor.bytes()?;
        if size == 0 {
            continue;
        }
        rows.push(CsvBuffer {
            id: format!("{index}:{}", String::from_utf8_lossy(tensor.name)),
            lower,
            upper,
            size: Bytes(size),
            align: Some(ALIGN),
            pin: None,
        });
    }
    Ok(rows)
}
