//! What an op has made and overwritten, booked once it has run.

use std::sync::{Arc, PoisonError};

use memfit::engine::{Call, Output, TensorId};
use memfit::ir::{Bytes, Role};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::dispatch::Inner;
use super::glue::{dtype, size};
use super::host::{Made, distinct_storages};
use super::ops::Op;
use super::pending::{Pending, Template};
use super::storages::Slot;

impl Inner {
    /// Starts to watch a storage that an op has made.
    pub(super) fn enter_made(
        &mut self,
        made: &Made<'_>,
        tensor: TensorId,
        bytes: u64,
        by: &Arc<Op>,
    ) -> PyResult<()> {
        self.enter(&made.storage, tensor, bytes, false, Some(by))?;
        if let Some(storage_id) = self.engine.storage_of(tensor) {
            let slot = self.engine.host.slots.at(storage_id);
            slot.version.follow(&made.tensor, &made.storage);
            if self.encodes {
                slot.dtype = Some(dtype(&made.tensor)?);
            }
        }
        Ok(())
    }

    /// Nothing has been written to what is in `result`.
    pub(super) fn mark_raw(&mut self, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut storages = Vec::new();
        distinct_storages(result, &self.engine.host.glue, &|_| false, &mut storages)?;
        for made in storages {
            if let Some(entry) = self.entries.get_mut(&made.storage.as_ptr().addr()) {
                entry.raw = true;
                self.engine.stay(entry.tensor);
            }
        }
        Ok(())
    }

    /// Native code goes on to read `result` by its address.
    pub(super) fn keep_pointed(&mut self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let storage = result.call_method0(pyo3::intern!(py, "untyped_storage"))?;
        match self.known(&storage) {
            Some(tensor) => self.engine.keep_resident(tensor).map_err(|fault| self.fault(py, fault)),
            None => Ok(()),
        }
    }

    /// The storages in `result` that are new, with their bytes.
    fn made_in<'py>(&mut self, result: &Bound<'py, PyAny>) -> PyResult<(Vec<Made<'py>>, Vec<u64>)> {
        self.drain()?;
        let mut storages = Vec::new();
        let known = |storage: &Bound<'py, PyAny>| self.known(storage).is_some();
        distinct_storages(result, &self.engine.host.glue, &known, &mut storages)?;
        let given = storages.iter().map(|made| size(&made.storage)).collect::<PyResult<_>>()?;
        Ok((storages, given))
    }

    /// The tensor of a storage that the engine knows.
    pub(super) fn known(&self, storage: &Bound<'_, PyAny>) -> Option<TensorId> {
        let address = storage.as_ptr().addr();
        let entry = self.entries.get(&address)?;
        let dead = self.engine.host.dead.lock().unwrap_or_else(PoisonError::into_inner);
        // Of another storage that has died, and had this address.
        (!dead.contains(&(address, entry.token))).then_some(entry.tensor)
    }

    /// Books the results of an op that has run, now that their sizes are known.
    pub(super) fn receive_later<'py>(
        &mut self,
        py: Python<'py>,
        op: &Arc<Op>,
        result: &Bound<'py, PyAny>,
        template: Option<Template>,
        switches: u32,
        call: Call<'_>,
    ) -> PyResult<Option<Vec<u64>>> {
        let (storages, given) = self.made_in(result)?;
        let outputs: Vec<Output> = given.iter().map(|&bytes| Output::Fresh(Bytes(bytes))).collect();
        let template = template.map(|template| Template { outputs: outputs.clone(), ..template });
        self.engine.host.pending = Some(Pending {
            op: Arc::clone(op),
            args: PyTuple::empty(py).unbind(),
            kwargs: None,
            template,
            generator: None,
            switches,
            measured: false,
            seen: None,
            timed: false,
            taken: 0,
            held_to: None,
            refused: None,
            started: false,
            state: None,
            result: Some(result.clone().unbind()),
            // It was measured with what it has made.
            workspace: Some(given.iter().fold(call.workspace.0, |rest, &bytes| rest.saturating_sub(bytes))),
            aside: 0,
            time: call.time.0,
        });
        let applied = self.apply(py, Call { outputs: &outputs, workspace: Bytes::ZERO, ..call }, false);
        self.engine.host.pending = None;
        applied?;
        let made = std::mem::take(&mut self.made);
        for ((made, &tensor), bytes) in storages.iter().zip(&made).zip(given) {
            self.enter_made(made, tensor, bytes, op)?;
        }
        self.made = made;
        self.made.clear();
        Ok(None)
    }

    /// Books the results of an op. If they are not what was expected, they are kept, and what they are is returned.
    pub(super) fn receive<'py>(
        &mut self,
        py: Python<'py>,
        op: &Arc<Op>,
        result: &Bound<'py, PyAny>,
        made: &[TensorId],
        sizes: Option<&[u64]>,
    ) -> PyResult<Option<Vec<u64>>> {
        if sizes.is_some_and(<[u64]>::is_empty) && result.is_none() {
            return Ok(None);
        }
        let (storages, given) = self.made_in(result)?;
        if sizes == Some(given.as_slice()) {
            for ((made, &tensor), bytes) in storages.iter().zip(made).zip(given) {
                self.enter_made(made, tensor, bytes, op)?;
            }
            return Ok(None);
        }
        for &tensor in made {
            if let Some(storage_id) = self.engine.storage_of(tensor) {
                *self.engine.host.slots.at(storage_id) = Slot::default();
            }
            self.engine.del(tensor).map_err(|fault| self.fault(py, fault))?;
        }
        for (made, &bytes) in storages.iter().zip(&given) {
            self.bring_in(&made.storage, bytes, false, Role::Input)?;
            if let Some(entry) = self.entries.get_mut(&made.storage.as_ptr().addr()) {
                entry.by = Some(Arc::clone(op));
            }
        }
        Ok(sizes.is_some().then_some(given))
    }

    /// `tensor` is the new version of the storage at `address`.
    pub(super) fn overwritten(&mut self, py: Python<'_>, address: usize, tensor: TensorId) -> PyResult<()> {
        self.look_later();
        let Some(entry) = self.entries.get_mut(&address) else { return Ok(()) };
        let old = std::mem::replace(&mut entry.tensor, tensor);
        let expected = entry.bytes;
        let (before, after) = (self.engine.storage_of(old), self.engine.storage_of(tensor));
        if let (Some(before), Some(after)) = (before, after) {
            let host = &mut self.engine.host;
            let old = host.slots.at(before);
            let (owner, version) = (std::mem::take(&mut old.owner), std::mem::take(&mut old.version));
            let (pointer, dtype) = (old.pointer, old.dtype);
            *host.slots.at(after) = Slot { owner, version, pointer, dtype, ..Slot::default() };
        }
        self.engine.del(old).map_err(|fault| self.fault(py, fault))?;
        let owned = after.and_then(|after| self.engine.host.slots.at(after).owned(py));
        if let Some(owned) = owned
            && size(&owned)? != expected
        {
            self.source(&owned)?;
        }
        Ok(())
    }
}
