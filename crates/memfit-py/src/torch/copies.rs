//! Copies of operands whose memory belongs to somebody outside: a batch that a worker process has made, an array.
//!
//! Its content may change without an op, so what reads it could not be computed again, and would stay. Where the results are
//! much larger than the operand, the recipe reads a copy instead. It has the operand's bytes of this moment, whatever
//! becomes of them, and goes with the last recipe that reads it.

use memfit::engine::{Fault, TensorId};
use memfit::ir::{Bytes, Role};
use pyo3::prelude::*;

use super::dispatch::Inner;
use super::operands::Operand;
use super::storages::Slot;

/// A copy is worth making if an op makes so many times its bytes.
const WORTH: u64 = 2;

impl Inner {
    /// Puts copies in the place of the exposed `operands` among `reads`; false if not all of them have one.
    pub(super) fn read_copies(
        &mut self,
        py: Python<'_>,
        operands: &[Operand<'_>],
        reads: &mut [TensorId],
        made: u64,
    ) -> PyResult<bool> {
        let mut outside = Vec::new();
        let mut bytes = 0_u64;
        for (at, operand) in operands.iter().enumerate() {
            let Some(entry) = self.entries.get(&operand.address()).filter(|entry| entry.exposed || entry.raw)
            else {
                continue;
            };
            if !entry.outside || entry.raw || operand.written {
                return Ok(false);
            }
            if !outside.iter().any(|&other: &usize| operands[other].address() == operand.address()) {
                bytes = bytes.saturating_add(entry.bytes);
            }
            outside.push(at);
        }
        if outside.is_empty() || made < bytes.saturating_mul(WORTH) {
            return Ok(false);
        }
        for at in outside {
            let Some(copy) = self.copy_of(py, &operands[at])? else { return Ok(false) };
            reads[at] = copy;
        }
        Ok(true)
    }

    /// The copy with the content that the operand has now; `None` if there is no room for it.
    fn copy_of(&mut self, py: Python<'_>, operand: &Operand<'_>) -> PyResult<Option<TensorId>> {
        let Some(entry) = self.entries.get(&operand.address()) else { return Ok(None) };
        let (old, bytes) = (entry.copy, entry.bytes);
        let is_same = self.engine.host.glue.is_same.bind(py);
        if let Some(old) = old
            && let Some(storage_id) = self.engine.storage_of(old)
            && let Some(copy) = self.engine.host.slots.get(storage_id).and_then(|slot| slot.bytes(py))
            && is_same.call1((&copy, &operand.storage))?.is_truthy()?
        {
            return Ok(Some(old));
        }
        let copy = match self.engine.put(Bytes(bytes), Role::Input) {
            Ok(copy) => copy,
            Err(Fault::NoRoom(_)) => return Ok(None),
            Err(fault) => return Err(self.fault(py, fault)),
        };
        let own = self.engine.host.glue.copy.bind(py).call1((&operand.storage,))?;
        if let Some(storage_id) = self.engine.storage_of(copy) {
            *self.engine.host.slots.at(storage_id) = Slot { own: Some(own.unbind()), ..Slot::default() };
        }
        if let Some(entry) = self.entries.get_mut(&operand.address()) {
            entry.copy = Some(copy);
        }
        self.give_up(py, old)?;
        Ok(Some(copy))
    }

    /// Whether the recipe of an op that has read the storage at `address` reads a copy instead.
    pub(super) fn is_copied(&self, address: usize) -> bool {
        self.entries.get(&address).is_some_and(|entry| entry.copy.is_some())
    }
}
