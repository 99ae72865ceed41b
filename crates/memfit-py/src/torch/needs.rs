//! What an op needs beside what its shapes say: sizes that its operands' content decides, and states of generators.

use std::sync::Arc;

use memfit::engine::TensorId;
use memfit::engine::kit::OpProfile;
use memfit::ir::{Bytes, Effect, Role};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::dispatch::Inner;
use super::ops::Op;
use super::storages::Slot;

/// Bytes of two complex numbers. PyTorch makes tensors of numbers among an op's operands before the op is seen. Each op has room
/// for them, so after each there is room for those of the next.
const NUMBERS: u64 = 32;

impl Inner {
    /// Looks at the operands for what the shapes leave open.
    pub(super) fn by_data(
        &mut self,
        known: &mut OpProfile,
        op: &Op,
        reads: &[TensorId],
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let py = args.py();
        let mut pinned = Vec::with_capacity(reads.len());
        let mut ready = Ok(());
        for &read in reads {
            ready = self.retry(py, |engine| engine.pin(read));
            if ready.is_err() {
                break;
            }
            pinned.push(read);
        }
        let told = ready.and_then(|()| self.engine.host.glue.sizes.bind(py).call1((&op.func, args, kwargs)));
        for read in pinned {
            self.engine.unpin(read).map_err(|fault| self.fault(py, fault))?;
        }
        let needs: Option<(Option<Vec<u64>>, u64)> = told?.extract()?;
        if let Some((fresh, workspace)) = needs {
            (known.fresh, known.workspace, known.guessed) = (fresh.map(Arc::from), workspace, false);
        }
        Ok(())
    }

    /// The host's own reference to `tensor` goes.
    pub(super) fn give_up(&mut self, py: Python<'_>, tensor: Option<TensorId>) -> PyResult<()> {
        tensor.map_or(Ok(()), |tensor| self.engine.del(tensor).map_err(|fault| self.fault(py, fault)))
    }

    /// Room for the state of a generator, which lives as long as the recipe that reads it.
    pub(super) fn put_state(&mut self, py: Python<'_>) -> PyResult<TensorId> {
        self.put_bytes(py, self.engine.host.glue.state_bytes)
    }

    /// Bytes taken beside the op's own: by numbers, and by a repetition for the generator's present state, which is put back
    /// afterwards.
    pub(super) fn put_aside(&self, effect: Effect) -> u64 {
        let glue = &self.engine.host.glue;
        let state = if effect == Effect::Seeded { glue.state_bytes } else { 0 };
        // Numbers are tensors of the CPU.
        if glue.is_limited { state.saturating_add(NUMBERS) } else { state }
    }

    /// Room for bytes that are in no storage.
    pub(super) fn put_bytes(&mut self, py: Python<'_>, bytes: u64) -> PyResult<TensorId> {
        let tensor = self.retry(py, |engine| engine.put(Bytes(bytes), Role::Constant))?;
        self.engine.stay(tensor);
        if let Some(storage) = self.engine.storage_of(tensor) {
            *self.engine.host.slots.at(storage) = Slot::default();
        }
        Ok(tensor)
    }
}
