//! One op of the program: its operands are brought back, room is made, it runs, and what it made is watched.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Instant;

use memfit::Steps;
use memfit::engine::{Engine, Settings, StorageId, TensorId};
use memfit::ir::{Bytes, Effect, Role};
use memfit::tiers::{Room, Shelf};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use super::glue::{Glue, size};
use super::host::Torch;
use super::life::Look;
use super::operands::{Found, Operand, Walk};
use super::ops::{self, Op, Ops, Way};
use super::pinned::Pinned;
use super::run::Ready;
use super::steps::steps;
use super::storages::{Slot, Token, watch};
use super::watched::Watched;

/// A storage of PyTorch's that the engine knows.
pub(super) struct Entry {
    pub(super) tensor: TensorId,
    pub(super) token: Token,
    pub(super) bytes: u64,
    /// Whether its content may change without an op: what reads it is kept.
    pub(super) exposed: bool,
    /// The op that made or wrote it last; none for what no op was seen to make.
    pub(super) by: Option<Arc<Op>>,
    /// Whether no op has overwritten all of it since it was made without content: somebody else may fill it.
    pub(super) raw: bool,
    /// Whether its memory belongs to somebody outside.
    pub(super) outside: bool,
    /// What recipes read in its place.
    pub(super) copy: Option<TensorId>,
}

/// The tables behind [`super::eager::Eager`].
pub(super) struct Inner {
    pub(super) engine: Engine<'static, Torch>,
    pub(super) entries: FxHashMap<usize, Entry>,
    pub(super) ops: Ops,
    token: Token,
    complex: bool,
    pub(super) looks: BinaryHeap<Look>,
    pub(super) count: u64,
    /// The op before which all of them were looked at.
    pub(super) looked: u64,
    pub(super) made: Vec<TensorId>,
    pub(super) reads: Vec<TensorId>,
    /// Engine's storages that autograd has yet to count a write to.
    pub(super) owing: Vec<StorageId>,
    /// Memory that is not PyTorch's: where it begins and ends, and who it is.
    pub(super) foreign: Vec<(usize, usize, usize, Token)>,
    /// Steps that were recorded, and their plans.
    pub(super) steps: Steps,
    /// When the last step began.
    pub(super) began: Instant,
    /// While a step is watched: the storages that each op touches.
    pub(super) watched: Option<Watched>,
    /// Whether all that can go goes after every op: a way to test.
    pub(super) evict_all: bool,
    /// Whether plans may encode what is made.
    pub(super) encodes: bool,
    /// Whether an op is refused whose gradient would have other last bits.
    pub(super) exact: bool,
    /// Nanoseconds and bytes of scratch memory of the op that ran last.
    pub(super) cost: (u64, u64),
}

impl Inner {
    pub(super) fn new(
        glue: Glue,
        settings: Settings,
        (room, pinned): (Room, Option<Pinned>),
    ) -> PyResult<Inner> {
        let encodes = !settings.codecs.is_empty();
        let shelf = Shelf::new(room).map_err(|error| PyOSError::new_err(error.to_string()))?;
        let shelf = shelf.watched_by(super::allocator::copied);
        let engine = Engine::new(Torch::new(glue, shelf, pinned), settings);
        Ok(Inner {
            engine: engine.map_err(|fault| PyValueError::new_err(fault.to_string()))?,
            entries: FxHashMap::default(),
            ops: ops::take_known(),
            token: 0,
            complex: false,
            looks: BinaryHeap::new(),
            count: 0,
            looked: 0,
            made: Vec::new(),
            reads: Vec::new(),
            owing: Vec::new(),
            foreign: Vec::new(),
            steps: steps().map_err(|failure| PyValueError::new_err(failure.to_string()))?,
            began: Instant::now(),
            watched: None,
            evict_all: false,
            encodes,
            exact: true,
            cost: (0, 0),
        })
    }

    /// Calls `func` under the budget; `None` if its own ops are to be seen instead.
    pub(super) fn dispatch<'py>(
        &mut self,
        func: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = func.py();
        self.count += 1;
        self.cost = (0, 0);
        self.settle_versions(py);
        self.drain()?;
        self.look_later();
        self.look(py)?;
        if self.engine.is_past_long() {
            self.cut_past(py)?;
        }
        let op = self.ops.op(func, &self.engine.host.glue)?;
        match op.way {
            Way::Metadata => {
                let result = op.call.bind(py).call(args.clone(), kwargs)?;
                if op.writes.at(0)
                    && let Ok(storage) = args.get_item(0)?.call_method0(pyo3::intern!(py, "untyped_storage"))
                {
                    self.reshaped(&storage);
                }
                return Ok(Some(result));
            }
            Way::Transparent => return Ok(None),
            Way::Resize | Way::Compute => {}
        }
        if self.exact && !op.inexact.is_empty() {
            self.engine.host.glue.check_gradient(&op, args)?;
        }
        let repeatable = matches!(op.effect, Effect::Pure | Effect::Seeded) && op.way == Way::Compute;
        let (glue, complex) = (&self.engine.host.glue, self.complex);
        let mut walk = Walk { glue, op: &op, found: Found::default(), template: repeatable, complex };
        let positional = walk.args(args)?;
        let named = kwargs.map(|kwargs| walk.kwargs(kwargs)).transpose()?.unwrap_or_default();
        let mut found = walk.found;
        let aside = self.engine.host.glue.is_on_side_stream(py)?;
        found.foreign |= aside;
        self.complex |= found.complex;
        if op.way == Way::Resize || op.foreign || aside {
            self.hold(py, &found.operands, op.way == Way::Resize)?;
        }
        self.hold_parts(py, &found.parts)?;
        let opaque = found.opaque || op.parts;
        let call = Ready { op, args, kwargs, found, positional, named };
        let result = self.run(py, call)?;
        if opaque {
            self.hold_parts_of(&result)?;
        }
        Ok(Some(result))
    }

    /// Before an op that other threads go on with, or that gives a storage another size: its operands stay.
    pub(super) fn hold(&mut self, py: Python<'_>, operands: &[Operand<'_>], exposed: bool) -> PyResult<()> {
        for operand in operands {
            let tensor = self.source(&operand.storage)?;
            match exposed {
                true => self.retry(py, |engine| engine.expose(tensor))?,
                false => self.retry(py, |engine| engine.keep_resident(tensor))?,
            }
        }
        Ok(())
    }

    /// The tensor of a storage, which is brought in if it's new, and anew if its size has changed.
    pub(super) fn source(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<TensorId> {
        let address = storage.as_ptr().addr();
        let bytes = size(storage)?;
        let mut exposed = false;
        // What has died may have had this address.
        self.drain()?;
        if let Some(entry) = self.entries.get(&address) {
            if entry.bytes == bytes {
                return Ok(entry.tensor);
            }
            // Somebody else gives it memory and takes it back.
            let tensor = entry.tensor;
            self.forget(storage.py(), address, tensor)?;
            exposed = true;
        }
        self.bring_in(storage, bytes, exposed, Role::Input)
    }

    /// Puts a storage that nobody can compute again.
    pub(super) fn bring_in(
        &mut self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
        exposed: bool,
        role: Role,
    ) -> PyResult<TensorId> {
        let py = storage.py();
        let tensor = self.retry(py, |engine| engine.put(Bytes(bytes), role))?;
        let glue = &self.engine.host.glue;
        let pointer = glue.pointer_of(storage);
        let outside = bytes > 0 && !glue.is_resizable(storage)?;
        let exposed = exposed || outside || self.is_alias(pointer, bytes);
        self.enter(storage, tensor, bytes, exposed, None)?;
        if let Some(storage_id) = self.engine.storage_of(tensor) {
            self.engine.host.slots.at(storage_id).pointer = pointer;
        }
        if let Some(entry) = self.entries.get_mut(&storage.as_ptr().addr()) {
            entry.outside = outside;
        }
        if exposed {
            self.engine.stay(tensor);
        }
        if outside {
            self.expose_aliases(storage, bytes, self.token)?;
        }
        Ok(tensor)
    }

    /// Starts to watch a storage.
    pub(super) fn enter(
        &mut self,
        storage: &Bound<'_, PyAny>,
        tensor: TensorId,
        bytes: u64,
        exposed: bool,
        by: Option<&Arc<Op>>,
    ) -> PyResult<()> {
        self.drain()?;
        self.token += 1;
        let owner = watch(storage, self.token, &self.engine.host.dead)?;
        if let Some(storage_id) = self.engine.storage_of(tensor) {
            *self.engine.host.slots.at(storage_id) = Slot { owner, ..Slot::default() };
        }
        let (token, by) = (self.token, by.cloned());
        let entry = Entry { tensor, token, bytes, exposed, raw: false, outside: false, copy: None, by };
        self.entries.insert(storage.as_ptr().addr(), entry);
        Ok(())
    }
}
