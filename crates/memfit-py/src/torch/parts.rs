//! Tensors that kernels read without an op that names them.
//!
//! Those that are more than a window on one storage, sparse, nested and quantised ones, are also written so: the storages
//! inside are counted and stay, and so does what reads them. Lengths and offsets are read by their addresses, and the states
//! of generators: small tensors of whole numbers stay.

use memfit::engine::kit::OpProfile;
use memfit::ir::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::dispatch::Inner;
use super::glue::{Glue, size};
use super::operands::Found;

/// The most bytes of a tensor of whole numbers that stays: lengths of eight thousand rows.
const READ_BY_NATIVE: u64 = 1 << 16;

impl Inner {
    /// Brings `parts` back for good.
    pub(super) fn hold_parts<'py>(&mut self, py: Python<'py>, parts: &[Bound<'py, PyAny>]) -> PyResult<()> {
        for part in parts {
            let tensor = self.source(part)?;
            self.retry(py, |engine| engine.expose(tensor))?;
            self.expose(part.as_ptr().addr());
        }
        Ok(())
    }

    /// Small tensors of whole numbers in `result` stay.
    pub(super) fn keep_read(&mut self, result: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.engine.host.glue.read_by_native.is_empty() {
            return Ok(());
        }
        if let Ok(several) = result.cast::<PyTuple>() {
            return several.iter().try_for_each(|element| self.keep_read(&element));
        }
        let py = result.py();
        let glue = &self.engine.host.glue;
        if !result.get_type().is(glue.tensor.bind(py)) {
            return Ok(());
        }
        let dtype = result.getattr(intern!(py, "dtype"))?;
        if !glue.read_by_native.iter().any(|known| known.is(&dtype)) {
            return Ok(());
        }
        let storage = result.call_method0(intern!(py, "untyped_storage"))?;
        match self.entries.get(&storage.as_ptr().addr()) {
            Some(entry) if entry.bytes <= READ_BY_NATIVE => {
                let tensor = entry.tensor;
                self.retry(py, |engine| engine.keep_resident(tensor))
            }
            _ => Ok(()),
        }
    }

    /// Holds the parts of such tensors in `result`.
    pub(super) fn hold_parts_of(&mut self, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut parts = Vec::new();
        collect(result, &self.engine.host.glue, &mut parts)?;
        self.hold_parts(result.py(), &parts)
    }
}

fn collect<'py>(result: &Bound<'py, PyAny>, glue: &Glue, parts: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    if let Ok(several) = result.cast::<PyTuple>() {
        return several.iter().try_for_each(|element| collect(&element, glue, parts));
    }
    if let Ok(several) = result.cast::<PyList>() {
        return several.iter().try_for_each(|element| collect(&element, glue, parts));
    }
    match result.is_instance(glue.tensor.bind(result.py()))? {
        true => glue.parts(result, parts),
        false => Ok(()),
    }
}

/// What is foreseen of an op with such operands: results of unknown sizes, and scratch memory of twice what it reads.
pub(super) fn unknown(found: &Found<'_>) -> PyResult<OpProfile> {
    let operands = found.operands.iter().map(|operand| &operand.storage);
    let mut read = 0_u64;
    for storage in operands.chain(&found.parts) {
        read = read.saturating_add(size(storage)?);
    }
    let workspace = read.saturating_mul(2).min(Bytes(1 << 62).0);
    Ok(OpProfile { fresh: None, workspace, guessed: true, ..OpProfile::default() })
}
