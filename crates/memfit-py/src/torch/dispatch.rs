//! One op of the program: its operands are brought back, room is made, it runs, and what it made is watched.

use std::collections::BinaryHeap;
use std::sync::Arc;

use memfit::engine::{Call, Engine, Output, Settings, TensorId};
use memfit::ir::{Bytes, Effect, Nanos, Role};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use super::glue::Glue;
use super::host::{Pending, Template, Torch, size};
use super::life::Look;
use super::operands::{Arg, Found, Operand, Walk};
use super::ops::{self, Op, Ops, Shape, Unordered, Way};
use super::parts::unknown;
use super::retry::fresh_bytes;
use super::steps::Steps;
use super::storages::{Slot, Token, watch};
use super::watched::Watched;
use super::writes::{running_statistics, writes_to, written};

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

/// Scratch memory below this is not worth measuring where that is more than to look at a counter.
const MEASURED: u64 = 1 << 18;

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
    reads: Vec<TensorId>,
    /// Engine's storages that autograd has yet to count a write to.
    pub(super) owing: Vec<u32>,
    /// Memory that is not PyTorch's: where it begins and ends, and who it is.
    pub(super) foreign: Vec<(usize, usize, usize, Token)>,
    /// Steps that were recorded, and their plans.
    pub(super) steps: Steps,
    /// While a step is watched: the storages that each op touches.
    pub(super) watched: Option<Watched>,
    /// Whether all that can go goes after every op: a way to test.
    pub(super) evict_all: bool,
    /// Whether an op is refused whose gradient would have other last bits.
    pub(super) exact: bool,
}

impl Inner {
    pub(super) fn new(glue: Glue, settings: Settings) -> PyResult<Inner> {
        let engine = Engine::new(Torch::new(glue), settings);
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
            steps: Steps::default(),
            watched: None,
            evict_all: false,
            exact: true,
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
                let result = func.call(args.clone(), kwargs)?;
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
        // What died since may have had the addresses that operands have now.
        self.drain()?;
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
    fn hold(&mut self, py: Python<'_>, operands: &[Operand<'_>], exposed: bool) -> PyResult<()> {
        for operand in operands {
            let tensor = self.source(&operand.storage)?;
            match exposed {
                true => self.again(py, |engine| engine.expose(tensor))?,
                false => self.again(py, |engine| engine.keep_resident(tensor))?,
            }
        }
        Ok(())
    }

    /// What becomes of an op that could be repeated by itself.
    fn effect(&self, op: &Op) -> Effect {
        let unordered = match op.unordered {
            Unordered::Never => false,
            Unordered::Threads => self.engine.host.switches.threads() > 1,
            Unordered::Always => true,
        };
        match op.effect {
            Effect::Pure | Effect::Seeded if unordered => Effect::Once,
            effect => effect,
        }
    }

    fn run<'py>(&mut self, py: Python<'py>, call: Ready<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let Ready { op, args, kwargs, mut found, mut positional, named } = call;
        let host = &mut self.engine.host;
        let switches = host.switches.look(py, &host.glue)?;
        found.key.push(host.switches.key);
        let own = self.effect(&op);
        let foreign = found.foreign || found.opaque;
        let mut exposed = foreign;
        let mut reads = std::mem::take(&mut self.reads);
        reads.clear();
        for operand in &found.operands {
            let tensor = self.source(&operand.storage)?;
            self.look_for_writes(py, tensor, operand)?;
            reads.push(tensor);
        }
        let whole = self.filled(py, &op, &found.operands)?;
        for (at, operand) in found.operands.iter().enumerate() {
            let filled = whole.is_some_and(|(filled, _)| filled == at);
            let entry = self.entries.get(&operand.address());
            exposed |= entry.is_some_and(|entry| entry.exposed || (entry.raw && !filled));
        }
        let statistics = running_statistics(&op, &mut positional, args, found.operands.len())?;
        let first_statistic = found.operands.len() - statistics;
        // They are overwritten behind the engine's back: what was computed from them is brought back before.
        self.hold(py, &found.operands[first_statistic..], true)?;
        let shape = match op.makes && !found.opaque {
            true => Some(self.ops.shape(&found.key, &op, args, kwargs, &self.engine.host.glue)?),
            false => None,
        };
        let mut known = match shape {
            Some(shape) => self.ops.table[shape as usize].clone(),
            None if op.makes => unknown(&found)?,
            None => Shape::nothing(),
        };
        let by_data = (op.by_data || found.opaque) && known.fresh.is_none();
        if by_data {
            self.by_data(&mut known, &op, &reads, args, kwargs)?;
        }
        let known = known;
        let sizes = known.fresh.as_deref();
        let repeatable = matches!(own, Effect::Pure | Effect::Seeded) && op.way == Way::Compute;
        if let Some(sizes) = sizes
            && exposed
            && !foreign
            && repeatable
        {
            let (operands, made) = (&found.operands[..first_statistic], sizes.iter().sum());
            exposed = !self.read_copies(py, operands, &mut reads, made)?;
        }
        let copied = !exposed;
        let effect = match own {
            Effect::Pure | Effect::Seeded if !exposed && sizes.is_some() => own,
            Effect::Collective => Effect::Collective,
            _ => Effect::Once,
        };
        let mut outputs: Vec<Output> =
            sizes.unwrap_or_default().iter().map(|&bytes| Output::Fresh(Bytes(bytes))).collect();
        let fresh = outputs.len();
        let again = matches!(effect, Effect::Pure | Effect::Seeded);
        let addresses: Vec<usize> = found.operands.iter().map(Operand::address).collect();
        let mut written = written(&found.operands[..first_statistic]);
        let blank = whole.filter(|_| again && fresh == 0);
        if let Some((at, bytes)) = blank {
            // What it holds depends on nothing that was there: to the engine it's new.
            outputs.push(Output::Fresh(Bytes(bytes)));
            reads.remove(at);
            written.clear();
        }
        outputs.extend(written.iter().map(|&at| Output::InPlace(at)));
        let times: Vec<usize> = written.iter().map(|&at| writes_to(&found.operands, at)).collect();
        // Sizes that only the data can say are known when it has run.
        let later = sizes.is_none() && own == Effect::Pure && !exposed && op.makes && written.is_empty();
        let generator = found.generator.as_ref().map(|generator| generator.clone_ref(py));
        self.look_for(py, outputs.iter().map(fresh_bytes).sum::<u64>().saturating_add(known.workspace))?;
        // The generator's state is memory of its own.
        reads.truncate(first_statistic);
        let mut state = match effect {
            Effect::Seeded => Some(self.put_state(py)?),
            _ => None,
        };
        reads.extend(state);
        let vacated = match blank {
            Some((at, _)) => self.vacate(py, &found.operands[at])?,
            None => None,
        };
        let operands = found.operands.into_iter().take(first_statistic);
        let windows = operands.map(|operand| operand.window).collect();
        let mut template =
            Some(Template { args: positional, kwargs: named, windows, blank, outputs: outputs.clone() });
        let least = if self.engine.host.glue.is_limited { 0 } else { MEASURED };
        let measured = shape.is_some() && known.guessed && known.workspace > least;
        self.engine.host.pending = Some(Pending {
            op: Arc::clone(&op),
            args: args.clone().unbind(),
            kwargs: kwargs.map(|kwargs| kwargs.clone().unbind()),
            template: template.take_if(|_| again),
            generator,
            switches,
            measured,
            held_to: known.guessed.then(|| sizes.unwrap_or_default().iter().sum()),
            refused: None,
            started: false,
            state: None,
            result: None,
            workspace: None,
            aside: self.put_aside(effect),
            time: known.time,
        });
        let engine_call = Call {
            kind: &op.name,
            reads: &reads,
            outputs: &outputs,
            time: Nanos(known.time),
            workspace: Bytes(known.workspace.saturating_add(self.put_aside(effect))),
            guessed: known.guessed && sizes.is_some(),
            effect,
        };
        let restartable = written.is_empty() && blank.is_none() && effect != Effect::Seeded;
        let applied = self.apply(py, engine_call, restartable);
        let pending = self.engine.host.pending.take();
        // From here on only a repetition needs it.
        let last = state.take_if(|_| self.evict_all && applied.is_ok());
        if let Err(error) = applied {
            self.give_up(py, state)?;
            if let Some(vacated) = vacated {
                self.occupy(py, vacated, None)?;
            }
            if pending.is_some_and(|pending| pending.started) {
                let half = written.iter().map(|&at| addresses[at]);
                let half: Vec<usize> = half.chain(addresses[first_statistic..].iter().copied()).collect();
                self.written_once(py, "failed", &half)?;
            }
            return Err(error);
        }
        self.give_up(py, state)?;
        let lost = || PyRuntimeError::new_err(format!("memfit: `{}` has not run", op.name));
        let pending = pending.ok_or_else(lost)?;
        let result = pending.result.ok_or_else(lost)?.into_bound(py);
        if let Some(shape) = shape {
            let shape = &mut self.ops.table[shape as usize];
            shape.time = pending.time;
            if let Some(workspace) = pending.workspace {
                (shape.workspace, shape.guessed) = (workspace, false);
            }
        }
        let made = std::mem::take(&mut self.made);
        // What was written is booked first: whatever becomes of the results, it has been written.
        for ((&tensor, &at), &times) in made[fresh..].iter().zip(&written).zip(&times) {
            self.overwritten(py, addresses[at], tensor)?;
            self.wrote(py, addresses[at], times);
            if let Some(entry) = self.entries.get_mut(&addresses[at]) {
                entry.by = Some(Arc::clone(&op));
            }
        }
        if let Some(vacated) = vacated {
            self.occupy(py, vacated, made.get(fresh).copied())?;
        } else if let Some(entry) = whole.and_then(|(at, _)| self.entries.get_mut(&addresses[at])) {
            entry.raw = false;
        }
        let outcome = match sizes {
            None if later => {
                let workspace = Bytes(pending.workspace.unwrap_or(known.workspace));
                let call = Call { time: Nanos(pending.time), workspace, effect: Effect::Pure, ..engine_call };
                self.receive_later(py, &op, &result, template, switches, call)?
            }
            sizes => self.receive(py, &op, &result, &made[..fresh], sizes)?,
        };
        if outcome.is_some() {
            // What a repetition would write can't be told from what it would make.
            for &at in written.iter().chain(blank.as_ref().map(|(at, _)| at)) {
                if let Some(tensor) = self.entries.get(&addresses[at]).map(|entry| entry.tensor) {
                    self.engine.keep_resident(tensor).map_err(|fault| self.fault(py, fault))?;
                }
            }
        }
        if let (Some(shape), Some(given)) = (shape.filter(|_| !by_data), outcome) {
            // Once a kernel may know better than its description; after that its sizes depend on the data.
            let shape = &mut self.ops.table[shape as usize];
            shape.fresh = Some(given.into()).filter(|_| !shape.corrected);
            shape.corrected = true;
        }
        self.made = made;
        self.made.clear();
        if statistics > 0 {
            self.written_once(py, "running statistics", &addresses[first_statistic..])?;
        }
        if op.raw {
            self.mark_raw(&result)?;
        }
        for &at in &op.pointed {
            self.keep_pointed(py, &result.get_item(at)?)?;
        }
        if again || later {
            let read = addresses[..first_statistic].iter().copied();
            self.outlive(py, read.filter(|&address| !(copied && self.is_copied(address))).collect());
            self.keep_read(&result)?;
        } else if op.volatile {
            self.expose_all(written.iter().map(|&at| addresses[at]));
        }
        self.reads = reads;
        if self.watched.is_some() {
            self.watch_op(&op.name, &addresses, &result, known.workspace)?;
        }
        if self.evict_all {
            self.engine.drop_all();
        }
        self.give_up(py, last)?;
        Ok(result)
    }

    /// The tensor of a storage, which is brought in if it's new, and anew if its size has changed.
    pub(super) fn source(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<TensorId> {
        let address = storage.as_ptr().addr();
        let bytes = size(storage)?;
        let mut exposed = false;
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
        let tensor = self.again(py, |engine| engine.put(Bytes(bytes), role))?;
        let resizable = storage.call_method0(pyo3::intern!(py, "resizable"))?.is_truthy()?;
        let pointer = self.engine.host.glue.pointer_of(storage);
        let outside = bytes > 0 && !resizable;
        let exposed = exposed || outside || self.is_alias(pointer, bytes);
        self.enter(storage, tensor, bytes, exposed, None)?;
        if let Some(block) = self.engine.block_of(tensor) {
            self.engine.host.slot(block.storage).pointer = pointer;
        }
        if let Some(entry) = self.entries.get_mut(&storage.as_ptr().addr()) {
            entry.outside = outside;
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
        if let Some(block) = self.engine.block_of(tensor) {
            *self.engine.host.slot(block.storage) = Slot { owner, ..Slot::default() };
        }
        let (token, by) = (self.token, by.cloned());
        let entry = Entry { tensor, token, bytes, exposed, raw: false, outside: false, copy: None, by };
        self.entries.insert(storage.as_ptr().addr(), entry);
        Ok(())
    }
}

/// A call whose arguments have been walked over.
struct Ready<'a, 'py> {
    op: Arc<Op>,
    args: &'a Bound<'py, PyTuple>,
    kwargs: Option<&'a Bound<'py, PyDict>>,
    found: Found<'py>,
    positional: Vec<Arg>,
    named: Vec<(Py<pyo3::types::PyString>, Arg)>,
}
