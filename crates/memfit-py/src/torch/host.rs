//! PyTorch as the engine's device.

use std::sync::Arc;
use std::time::Instant;

use memfit::engine::kit::{Recipes, Slots};
use memfit::engine::{Block, Host, HostError, Output, Run, Seen, Source, StorageId, Wanted};
use memfit::ir::{Bytes, Dtype, Nanos};
use memfit::tiers::{Shelf, density};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::glue::{Glue, size};
use super::operands::Arg;
use super::pending::{Pending, Recipe};
use super::pinned::Pinned;
use super::raw::{Raw, Storages};
use super::storages::{Dead, Owner, Slot};
use super::switches::Switches;

/// The host.
pub(super) struct Torch {
    pub(super) glue: Glue,
    pub(super) switches: Switches,
    pub(super) slots: Slots<Slot>,
    pub(super) recipes: Recipes<Recipe>,
    pub(super) pending: Option<Pending>,
    /// What PyTorch raised; the engine's error only says that it did.
    pub(super) raised: Option<PyErr>,
    pub(super) dead: Dead,
    /// Storages that the host holds since somebody looked.
    pub(super) newly_held: Vec<StorageId>,
    /// Copies of storages.
    shelf: Shelf<Storages>,
    /// Plain copies in host memory, where the device has streams.
    pinned: Option<Pinned>,
    start: Instant,
}

impl Torch {
    pub(super) fn new(glue: Glue, shelf: Shelf<Storages>, pinned: Option<Pinned>) -> Torch {
        Torch {
            glue,
            switches: Switches::default(),
            slots: Slots::default(),
            recipes: Recipes::default(),
            pending: None,
            raised: None,
            dead: Dead::default(),
            newly_held: Vec::new(),
            shelf,
            pinned,
            start: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        Nanos::from(self.start.elapsed()).0
    }

    fn fail<T>(&mut self, outcome: PyResult<T>) -> Result<T, HostError> {
        outcome.map_err(|error| {
            let message = error.to_string();
            self.raised = Some(error);
            HostError(message)
        })
    }

    /// A repetition, into new storages.
    fn repeat(&mut self, py: Python<'_>, run: &Run<'_>) -> PyResult<Nanos> {
        let lost = |error| PyRuntimeError::new_err(format!("memfit: {error}"));
        self.switches.look(py, &self.glue)?;
        let recipe = self.recipes.recall(run).map_err(lost)?;
        let mut tensors = Vec::with_capacity(recipe.windows.len());
        let mut storages = Vec::with_capacity(recipe.windows.len());
        let mut blocks = run.reads.iter();
        for (number, window) in recipe.windows.iter().enumerate() {
            let bytes = match recipe.blank {
                Some((blank, bytes)) if blank == number => self.glue.blank.bind(py).call1((bytes,))?,
                _ => {
                    let bytes = operand(py, &mut self.slots, &self.glue, blocks.next(), run.kind)?;
                    storages.push(bytes.clone());
                    bytes
                }
            };
            let (shape, stride) = (PyTuple::new(py, window.shape())?, PyTuple::new(py, window.stride())?);
            let told = (&bytes, &window.dtype, window.offset, shape, stride);
            tensors.push(self.glue.window.bind(py).call1(told)?);
        }
        let args = recipe.args.iter().map(|arg| build(py, arg, &tensors)).collect::<PyResult<Vec<_>>>()?;
        let kwargs = PyDict::new(py);
        for (name, arg) in &recipe.kwargs {
            kwargs.set_item(name, build(py, arg, &tensors)?)?;
        }
        let (op, outputs) = (Arc::clone(&recipe.op), recipe.outputs.clone());
        let start = self.now();
        let replay = self.glue.replay.bind(py);
        let switches = self.switches.other(recipe.switches);
        let result = replay.call1((
            &op.func,
            PyTuple::new(py, args)?,
            kwargs,
            recipe.grad,
            &recipe.state,
            switches,
        ))?;
        let time = match run.expected {
            Nanos(known) if self.glue.timed.is_some() && known > 0 => known,
            _ => self.now().saturating_sub(start).max(1),
        };
        drop(tensors);
        let mut made = Vec::new();
        let known = |storage: &Bound<'_, PyAny>| storages.iter().any(|known| known.is(storage));
        distinct_storages(&result, &self.glue, &known, &mut made)?;
        drop(result);
        let mut fresh = made.into_iter().map(|made| made.storage);
        for (output, block) in outputs.iter().zip(run.writes) {
            match *output {
                Output::Fresh(_) | Output::Takes(..) => {
                    let storage =
                        fresh.next().filter(|storage| size(storage).is_ok_and(|size| size == block.size.0));
                    let Some(storage) = storage else {
                        let message =
                            format!("memfit: `{}` gave other results when it was called again", run.kind);
                        return Err(PyRuntimeError::new_err(message));
                    };
                    if let Some(of) = block.storage {
                        self.slots.at(of).fill(storage, &self.glue)?;
                    }
                }
                Output::InPlace(of) => {
                    let old = run.reads[of].storage.and_then(|old| self.slots.at(old).own.take());
                    if let (Some(old), Some(of)) = (old, block.storage) {
                        self.slots.at(of).fill(old.into_bound(py), &self.glue)?;
                    }
                }
                Output::View(_) => {}
            }
        }
        Ok(Nanos(time))
    }

    /// The storage with the bytes in `block`.
    fn stored<'py>(&self, py: Python<'py>, block: Block) -> Result<Bound<'py, PyAny>, HostError> {
        let slot = block.storage.and_then(|storage| self.slots.get(storage));
        let bytes = slot.and_then(|slot| slot.bytes(py));
        bytes.ok_or_else(gone)
    }

    /// The bytes in `block`, in the memory of the process.
    fn bytes(&mut self, block: Block) -> Result<Raw, HostError> {
        Python::attach(|py| {
            let here = self.glue.here.bind(py).call1((self.stored(py, block)?,));
            // That there is no copy is all that comes of it.
            let raw = here.and_then(|here| Raw::of(&here, &self.glue, block.storage));
            raw.map_err(|error| HostError(error.to_string()))?.ok_or_else(gone)
        })
    }

    /// Has `of` have the bytes of `filled`, a storage of the tracked device.
    fn fill(&mut self, filled: Bound<'_, PyAny>, of: StorageId) -> Result<(), HostError> {
        let (py, slot) = (filled.py(), self.slots.at(of));
        let filled = slot.fill(filled, &self.glue).map(|()| slot.find_again(py, &self.glue));
        filled.map_err(|error| HostError(error.to_string()))
    }
}

fn gone() -> HostError {
    HostError("the bytes of a storage have gone".to_owned())
}

/// An argument with tensors in it.
fn build<'py>(py: Python<'py>, arg: &Arg, tensors: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let all = |elements: &[Arg]| {
        elements.iter().map(|element| build(py, element, tensors)).collect::<PyResult<Vec<_>>>()
    };
    Ok(match arg {
        Arg::Operand(number) => tensors[*number].clone(),
        Arg::Value(value) => value.bind(py).clone(),
        Arg::List(elements) => PyList::new(py, all(elements)?)?.into_any(),
        Arg::Tuple(elements) => PyTuple::new(py, all(elements)?)?.into_any(),
    })
}

/// The bytes of an operand of `kind`, which must be those that it had when `kind` first ran.
fn operand<'py>(
    py: Python<'py>,
    slots: &mut Slots<Slot>,
    glue: &Glue,
    block: Option<&Block>,
    kind: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let mut found = block.and_then(|block| Some((slots.get_mut(block.storage?)?, *block)));
    if let Some((slot, block)) = &mut found
        && slot.has_changed(py, *block, glue)
    {
        return Err(PyRuntimeError::new_err(format!(
            "memfit: what `{kind}` made was evicted and can't be computed again: its input was written to unseen, by \
             another thread, in a block without dispatch modes, or by native code\nhint: `memfit.torch.pin` what was \
             computed from it, or the input itself, before it's written to"
        )));
    }
    let bytes = found.and_then(|(slot, _)| slot.bytes(py));
    bytes.ok_or_else(|| {
        let message =
            format!("memfit: the bytes of an operand of `{kind}` have gone: this is a bug in memfit");
        PyRuntimeError::new_err(message)
    })
}

/// A storage that a call has made, and a tensor over it.
pub(super) struct Made<'py> {
    pub(super) storage: Bound<'py, PyAny>,
    pub(super) tensor: Bound<'py, PyAny>,
}

/// Appends the storages of the tensors in `result` to `made`, each once, but for what is `known`.
pub(super) fn distinct_storages<'py>(
    result: &Bound<'py, PyAny>,
    glue: &Glue,
    known: &dyn Fn(&Bound<'py, PyAny>) -> bool,
    made: &mut Vec<Made<'py>>,
) -> PyResult<()> {
    let py = result.py();
    if let Ok(tuple) = result.cast::<PyTuple>() {
        for element in tuple.iter() {
            distinct_storages(&element, glue, known, made)?;
        }
    } else if let Ok(list) = result.cast::<PyList>() {
        for element in list.iter() {
            distinct_storages(&element, glue, known, made)?;
        }
    } else if result.is_instance(glue.tensor.bind(py))? {
        let tracked = result.getattr(glue.on_device.bind(py).cast::<PyString>()?)?.is_truthy()?;
        if tracked && let Ok(storage) = result.call_method0(pyo3::intern!(py, "untyped_storage")) {
            let again = made.iter().any(|other| other.storage.is(&storage));
            if !again && !known(&storage) {
                made.push(Made { storage, tensor: result.clone() });
            }
        } else if tracked {
            let mut parts = Vec::new();
            glue.parts(result, &mut parts)?;
            parts.retain(|part| !known(part) && !made.iter().any(|other| other.storage.is(part)));
            made.extend(parts.into_iter().map(|storage| Made { storage, tensor: result.clone() }));
        }
    }
    Ok(())
}

/// `error` with the op that failed: what the program sees was raised by another one, which needs that.
fn while_again(py: Python<'_>, error: PyErr, kind: &str) -> PyErr {
    // Python 3.10 has no notes.
    let _ = error.value(py).call_method1("add_note", (format!("memfit: while `{kind}` was run again"),));
    error
}

impl Host for Torch {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        Python::attach(|py| {
            if run.repetition > 0 {
                let ran = self.repeat(py, run).map_err(|error| while_again(py, error, run.kind));
                return self.fail(ran);
            }
            // The running statistics of a batch normalisation were written by its own call.
            let Some(mut pending) = self.pending.take() else { return Ok(Nanos::ZERO) };
            let ran = self.first(py, run, &mut pending);
            self.pending = Some(pending);
            self.fail(ran)
        })
    }

    fn release(&mut self, block: Block) {
        let Some(storage) = block.storage else { return };
        Python::attach(|py| {
            let emptied = self.slots.at(storage).empty(py, &self.glue);
            if let Err(error) = emptied {
                self.raised.get_or_insert(error);
            }
        });
    }

    fn workspace(&mut self) -> Option<Bytes> {
        let pending = self.pending.as_ref()?;
        pending.workspace.map(|measured| Bytes(measured.saturating_add(pending.aside)))
    }

    fn look(&mut self, block: Block) -> Seen {
        // What has gone, or can't be read, is not sparse for all anybody knows.
        let density = self.bytes(block).ok().map(|bytes| density(bytes.as_ref()));
        let slot = block.storage.and_then(|storage| self.slots.get(storage));
        Seen { density, dtype: slot.and_then(|slot| slot.dtype).unwrap_or(Dtype::Other) }
    }

    fn store(&mut self, from: Source, wanted: Wanted) -> Result<u64, HostError> {
        match from {
            Source::Copy(copy) => self.shelf.forward(copy, wanted.form),
            Source::Block(block) => {
                if let Some(pinned) = self.pinned.as_ref().filter(|pinned| pinned.makes(wanted.form)) {
                    return Python::attach(|py| pinned.store(&self.stored(py, block)?, wanted));
                }
                let bytes = self.bytes(block)?;
                self.shelf.store(bytes, (), wanted).map(|(copy, _)| copy)
            }
        }
    }

    fn taken(&mut self, copy: u64) -> Option<Bytes> {
        match self.pinned.as_ref().filter(|_| Pinned::has(copy)) {
            Some(pinned) => Python::attach(|py| pinned.taken(py, copy)),
            None => self.shelf.taken(copy),
        }
    }

    fn load(&mut self, copy: u64, to: Block) -> Result<(), HostError> {
        if let Some(pinned) = self.pinned.as_mut().filter(|_| Pinned::has(copy)) {
            return Python::attach(|py| pinned.load(py, copy, to.storage));
        }
        let (_, size) = self.shelf.of(copy)?;
        let bytes = Python::attach(|py| {
            let room = self.glue.room.bind(py).call1((size,));
            room.and_then(|room| Raw::of(&room, &self.glue, to.storage))
        });
        let none = || HostError(format!("there is no memory for `{size}` bytes"));
        let bytes = bytes.map_err(|error| HostError(error.to_string()))?.ok_or_else(none)?;
        self.shelf.load(copy, bytes)
    }

    fn wait(&mut self, copy: u64) -> Result<(), HostError> {
        if Pinned::has(copy) {
            return Python::attach(|py| {
                let filled = self.pinned.as_mut().map(|pinned| pinned.wait(py, copy)).transpose()?;
                filled.flatten().map_or(Ok(()), |(filled, of)| self.fill(filled, of))
            });
        }
        let ended = self.shelf.wait(copy)?;
        let Some((Raw { storage: filled, of: Some(of), .. }, ())) = ended.into else { return Ok(()) };
        Python::attach(|py| {
            let there = self.glue.there.bind(py).call1((filled,));
            self.fill(there.map_err(|error| HostError(error.to_string()))?, of)
        })
    }

    fn discard(&mut self, copy: u64) {
        match self.pinned.as_mut().filter(|_| Pinned::has(copy)) {
            Some(pinned) => Python::attach(|py| pinned.discard(py, copy)),
            None => self.shelf.discard(copy),
        }
    }

    fn is_shared(&mut self, storage: StorageId) -> bool {
        Python::attach(|py| {
            let Some(slot) = self.slots.get_mut(storage) else { return false };
            if slot.version.has_moved(py) {
                return true;
            }
            if slot.own.is_some() {
                return false;
            }
            let Some(owned) = slot.owned(py) else { return false };
            !self.glue.is_resizable(&owned).unwrap_or(false)
        })
    }

    fn keep(&mut self, storage: StorageId) {
        Python::attach(|py| self.slots.at(storage).hold(py));
        self.newly_held.push(storage);
    }

    fn close(&mut self, call: u32) {
        self.recipes.close(call);
    }

    fn clock(&mut self) -> Nanos {
        Nanos(self.now() + 1)
    }

    fn generator(&mut self) -> Option<u64> {
        Python::attach(|py| {
            let pending = self.pending.as_mut()?;
            pending.template.as_ref()?;
            // There may be one from before room was made: two at a time are more than was asked for.
            pending.state = None;
            let state = self.glue.draw.bind(py).call1((&pending.generator,)).ok()?;
            pending.state = Some(state.unbind());
            Some(0)
        })
    }
}

impl Slot {
    /// Whether only the host reaches the storage.
    pub(super) fn is_unreferenced(&self, py: Python<'_>, glue: &Glue) -> PyResult<bool> {
        match &self.owner {
            Owner::Both(storage) => glue.is_unreferenced.bind(py).call1((storage,))?.is_truthy(),
            Owner::Nobody | Owner::Program(_) => Ok(false),
        }
    }
}
