//! Writes that no dispatch mode sees: those of other threads, of blocks without modes, through another tensor over the same
//! bytes.
//!
//! PyTorch counts the writes to a tensor and its views, whoever makes them. The count is compared where it matters: before
//! an op reads, before bytes are evicted, and before something is computed again from them. What can be read from a tensor
//! that was written to unseen is right, so it's kept; what was computed from it before, and is gone, can't be had again.

use memfit::engine::{Block, TensorId};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakref, PyWeakrefMethods, PyWeakrefReference};

use super::dispatch::Inner;
use super::glue::{Glue, size};
use super::operands::Operand;
use super::storages::{Slot, Token};

/// The count of the writes to a storage.
#[derive(Default)]
pub(super) struct Version {
    /// The tensor that it's read from, and the address of its storage: a tensor can be given another one.
    tensor: Option<Py<PyWeakref>>,
    storage: usize,
    count: u64,
    /// Writes that were seen, and that autograd counts when the op has returned.
    owed: u64,
    /// Whether there was a write that was not seen.
    moved: bool,
}

impl Version {
    /// Begins to count with `tensor`, which is over `storage`. Tensors of inference mode have no count.
    pub(super) fn follow(&mut self, tensor: &Bound<'_, PyAny>, storage: &Bound<'_, PyAny>) {
        if let (Ok(count), Ok(reference)) = (count(tensor), PyWeakrefReference::new(tensor)) {
            let tensor = reference.into_any().cast_into::<PyWeakref>().ok().map(Bound::unbind);
            let storage = storage.as_ptr().addr();
            *self = Version { tensor, storage, count, owed: 0, moved: self.moved };
        }
    }

    fn now(&self, py: Python<'_>) -> Option<u64> {
        let tensor = self.tensor.as_ref()?.bind(py).upgrade()?;
        count(&tensor).ok()
    }

    /// Whether there was a write that was not seen; none if nobody counts.
    fn look(&mut self, py: Python<'_>) -> Option<bool> {
        let now = self.now(py)?;
        if now > self.count + self.owed && !self.moved {
            let tensor = self.tensor.as_ref()?.bind(py).upgrade()?;
            if storage_of(&tensor).ok() != Some(self.storage) {
                self.tensor = None; // It counts the writes to another storage now.
                return None;
            }
            self.moved = true;
        }
        Some(self.moved)
    }

    /// Whether there was a write that was not seen.
    pub(super) fn has_moved(&mut self, py: Python<'_>) -> bool {
        self.moved || self.look(py) == Some(true)
    }

    /// The bytes were written to, which autograd is about to count `times`.
    fn wrote(&mut self, py: Python<'_>, times: u64) {
        if let Some(now) = self.now(py) {
            self.count = now;
        }
        self.owed = times;
    }

    /// Autograd has counted what was seen.
    fn settle(&mut self, py: Python<'_>) {
        if self.has_moved(py) {
            return;
        }
        if let Some(now) = self.now(py) {
            self.count = now;
        }
        self.owed = 0;
    }
}

fn storage_of(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(tensor.call_method0(intern!(tensor.py(), "untyped_storage"))?.as_ptr().addr())
}

fn count(tensor: &Bound<'_, PyAny>) -> PyResult<u64> {
    tensor.getattr(intern!(tensor.py(), "_version"))?.extract()
}

impl Slot {
    /// The bytes may be elsewhere, by our own doing.
    pub(super) fn find_again(&mut self, py: Python<'_>, glue: &Glue) {
        if self.pointer.is_some() {
            self.pointer = self.owned(py).and_then(|owned| glue.pointer_of(&owned));
        }
    }

    /// Whether the bytes are not those that were there when an op last wrote to `block`, as far as can be told.
    pub(super) fn has_changed(&mut self, py: Python<'_>, block: Block, glue: &Glue) -> bool {
        if self.version.has_moved(py) {
            return true;
        }
        if self.own.is_some() {
            return false;
        }
        let Some(storage) = self.owned(py) else { return false };
        let elsewhere = self.pointer.is_some_and(|pointer| glue.pointer_of(&storage) != Some(pointer));
        elsewhere || size(&storage).is_ok_and(|bytes| bytes != block.size.0)
    }
}

impl Inner {
    /// Before `operand`, which is `tensor`, is read: what reads it is kept from now on if it was written to unseen.
    pub(super) fn look_for_writes(
        &mut self,
        py: Python<'_>,
        tensor: TensorId,
        operand: &Operand<'_>,
    ) -> PyResult<()> {
        let Some(storage_id) = self.engine.storage_of(tensor) else { return Ok(()) };
        let slot = self.engine.host.slots.at(storage_id);
        if slot.hollow {
            return Ok(());
        }
        match slot.version.look(py) {
            None => slot.version.follow(&operand.tensor, &operand.storage),
            Some(false) => {}
            Some(true) => {
                if let Some(entry) = self.entries.get_mut(&operand.address())
                    && !std::mem::replace(&mut entry.exposed, true)
                {
                    self.engine.spoil(tensor).map_err(|fault| self.fault(py, fault))?;
                }
            }
        }
        Ok(())
    }

    /// An op has written to the storage at `address`; so often autograd will count that.
    pub(super) fn wrote(&mut self, py: Python<'_>, address: usize, times: usize) {
        let Some(entry) = self.entries.get(&address) else { return };
        let Some(storage_id) = self.engine.storage_of(entry.tensor) else { return };
        self.engine.host.slots.at(storage_id).version.wrote(py, times as u64);
        self.owing.push(storage_id);
    }

    /// An op has changed the shape of a tensor over `storage` in place, which autograd counts as a write.
    pub(super) fn reshaped(&mut self, storage: &Bound<'_, PyAny>) {
        let Some(entry) = self.entries.get(&storage.as_ptr().addr()) else { return };
        let Some(storage_id) = self.engine.storage_of(entry.tensor) else { return };
        self.engine.host.slots.at(storage_id).version.owed += 1;
        self.owing.push(storage_id);
    }

    /// Ops have returned, and autograd has counted what they wrote.
    pub(super) fn settle_versions(&mut self, py: Python<'_>) {
        let mut owing = std::mem::take(&mut self.owing);
        for storage in owing.drain(..) {
            self.engine.host.slots.at(storage).version.settle(py);
        }
        self.owing = owing;
    }

    /// `storage`, whose memory is not PyTorch's, has come in: others over the same bytes can be written to through it.
    pub(super) fn expose_aliases(
        &mut self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
        token: Token,
    ) -> PyResult<()> {
        let py = storage.py();
        let Some(start) = self.engine.host.glue.pointer_of(storage) else { return Ok(()) };
        let end = start.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.foreign.push((start, end, storage.as_ptr().addr(), token));
        let host = &self.engine.host;
        let mut aliases: Vec<(Token, usize, TensorId)> = Vec::new();
        aliases.extend(self.entries.iter().filter_map(|(&address, entry)| {
            let slot = host.slots.get(self.engine.storage_of(entry.tensor)?).filter(|slot| !slot.hollow)?;
            let pointer = host.glue.pointer_of(&slot.owned(py)?)?;
            let meets = pointer < end && start < pointer.saturating_add(usize::try_from(entry.bytes).ok()?);
            (meets && entry.token != token).then_some((entry.token, address, entry.tensor))
        }));
        aliases.sort_unstable_by_key(|&(token, ..)| token);
        for (_, address, tensor) in aliases {
            self.retry(py, |engine| engine.expose(tensor))?;
            if let Some(entry) = self.entries.get_mut(&address) {
                entry.exposed = true;
            }
        }
        Ok(())
    }

    /// Whether memory that is not PyTorch's is at `pointer` or within `bytes` after it.
    pub(super) fn is_alias(&mut self, pointer: Option<usize>, bytes: u64) -> bool {
        if self.foreign.is_empty() {
            return false;
        }
        let entries = &self.entries;
        self.foreign
            .retain(|(_, _, address, token)| entries.get(address).is_some_and(|entry| entry.token == *token));
        let Some(pointer) = pointer else { return false };
        let until = pointer.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.foreign.iter().any(|&(start, end, ..)| pointer < end && start < until)
    }
}
