//! What an op overwrites: all of a memory that held nothing, a part of something, running statistics, and what it had
//! written to when it failed.

use memfit::engine::{Call, Output, TensorId};
use memfit::ir::{Bytes, Effect, Role};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::dispatch::Inner;
use super::operands::{Arg, Operand};
use super::ops::Op;
use super::storages::{Owner, Slot};

/// A memory that held nothing so far, and that an op is about to overwrite as a whole.
pub(super) struct Vacated<'py> {
    tensor: Bound<'py, PyAny>,
    storage: Bound<'py, PyAny>,
    address: usize,
    bytes: u64,
    owner: Owner,
}

impl Inner {
    /// If `op` overwrites all of a memory that nothing was written to so far: that operand.
    pub(super) fn filled(
        &self,
        py: Python<'_>,
        op: &Op,
        operands: &[Operand<'_>],
    ) -> PyResult<Option<(usize, u64)>> {
        if !op.fills {
            return Ok(None);
        }
        let mut written = (0..operands.len()).filter(|&at| operands[at].written);
        let (Some(at), None) = (written.next(), written.next()) else { return Ok(None) };
        let address = operands[at].address();
        let Some(entry) = self.entries.get(&address).filter(|entry| entry.raw && !entry.exposed) else {
            return Ok(None);
        };
        let alone = operands.iter().filter(|operand| operand.address() == address).count() == 1;
        let whole = alone && operands[at].window.is_whole(py, entry.bytes)?;
        Ok(whole.then_some((at, entry.bytes)))
    }

    /// The engine lets go of the memory that is about to be filled: what will be in it takes its room.
    pub(super) fn vacate<'py>(
        &mut self,
        py: Python<'py>,
        operand: &Operand<'py>,
    ) -> PyResult<Option<Vacated<'py>>> {
        self.look_later();
        let address = operand.address();
        let Some(entry) = self.entries.get(&address) else { return Ok(None) };
        let (tensor, bytes) = (entry.tensor, entry.bytes);
        let Some(storage_id) = self.engine.storage_of(tensor) else { return Ok(None) };
        let owner = std::mem::take(&mut self.engine.host.slots.at(storage_id).owner);
        self.engine.del(tensor).map_err(|fault| self.fault(py, fault))?;
        let (tensor, storage) = (operand.tensor.clone(), operand.storage.clone());
        Ok(Some(Vacated { tensor, storage, address, bytes, owner }))
    }

    /// The memory has been filled: `tensor` is what is in it. Without one the op has failed, and it holds nothing.
    pub(super) fn occupy(
        &mut self,
        py: Python<'_>,
        vacated: Vacated<'_>,
        tensor: Option<TensorId>,
    ) -> PyResult<()> {
        let Vacated { tensor: over, storage, address, bytes, owner } = vacated;
        let made = match tensor {
            Some(tensor) => Ok(tensor),
            None => self.retry(py, |engine| engine.put(Bytes(bytes), Role::Input)),
        };
        let tensor_id = match made {
            Ok(tensor) => tensor,
            Err(error) => {
                self.entries.remove(&address);
                return Err(error);
            }
        };
        if let Some(storage_id) = self.engine.storage_of(tensor_id) {
            let slot = self.engine.host.slots.at(storage_id);
            *slot = Slot { owner, ..Slot::default() };
            slot.version.follow(&over, &storage);
        }
        // An op with a result that is given to it may have made that smaller.
        let item: u64 = over.getattr(intern!(py, "itemsize"))?.extract()?;
        let numel: u64 = over.call_method0(intern!(py, "numel"))?.extract()?;
        let raw = tensor.is_none() || numel.checked_mul(item) != Some(bytes);
        if let Some(entry) = self.entries.get_mut(&address) {
            (entry.tensor, entry.raw) = (tensor_id, raw);
        }
        self.wrote(py, address, 1);
        if raw {
            self.engine.keep_resident(tensor_id).map_err(|fault| self.fault(py, fault))?;
        }
        Ok(())
    }

    /// An op has written to the storages at `addresses` as it can't be made to do again.
    pub(super) fn written_once(&mut self, py: Python<'_>, kind: &str, addresses: &[usize]) -> PyResult<()> {
        let known =
            addresses.iter().filter_map(|address| Some((*address, self.entries.get(address)?.tensor)));
        let (addresses, reads): (Vec<usize>, Vec<TensorId>) = known.unzip();
        let outputs: Vec<Output> = (0..reads.len()).map(Output::InPlace).collect();
        let call = Call { kind, reads: &reads, outputs: &outputs, effect: Effect::Once, ..Call::default() };
        self.apply(py, call, false)?;
        let made = std::mem::take(&mut self.made);
        for (&address, &tensor) in addresses.iter().zip(&made) {
            self.overwritten(py, address, tensor)?;
            self.wrote(py, address, 1);
        }
        self.made = made;
        self.made.clear();
        Ok(())
    }
}

/// How often a call writes to the storage of operand `at`.
pub(super) fn writes_to(operands: &[Operand<'_>], at: usize) -> usize {
    let same = |operand: &&Operand<'_>| operand.written && operand.address() == operands[at].address();
    operands.iter().filter(same).count()
}

/// The operands that are written, each storage once.
pub(super) fn written(operands: &[Operand<'_>]) -> Vec<usize> {
    let mut written: Vec<usize> = (0..operands.len()).filter(|&at| operands[at].written).collect();
    written.sort_by_key(|&at| (operands[at].address(), at));
    written.dedup_by_key(|at| operands[*at].address());
    written.sort_unstable();
    written
}

/// How many of the last operands are running statistics that this call overwrites; a repetition gets none.
pub(super) fn running_statistics(
    op: &Op,
    positional: &mut [Arg],
    args: &Bound<'_, PyTuple>,
    operands: usize,
) -> PyResult<usize> {
    let Some(norm) = &op.norm else { return Ok(0) };
    let training = match norm.training {
        Some(at) => args.get_item(at)?.is_truthy()?,
        None => true,
    };
    let numbers: Vec<usize> = norm
        .running
        .iter()
        .filter_map(|&at| match positional.get(at) {
            Some(&Arg::Operand(number)) => Some(number),
            _ => None,
        })
        .collect();
    let tail = numbers.iter().copied().eq(operands - numbers.len().min(operands)..operands);
    if !training || !tail {
        return Ok(0);
    }
    for &at in &norm.running {
        if let Some(arg) = positional.get_mut(at) {
            *arg = Arg::Value(args.py().None());
        }
    }
    Ok(numbers.len())
}
