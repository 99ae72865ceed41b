//! A call whose arguments have been walked over: what it needs, its run, and what becomes of its results.

use std::sync::Arc;

use memfit::engine::kit::{OpProfile, ProfileId};
use memfit::engine::{Call, Output, TensorId};
use memfit::ir::{Bytes, Effect, Nanos, Need};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::dispatch::Inner;
use super::operands::{Arg, Found, Operand};
use super::ops::{Op, Unordered, Way};
use super::parts::unknown;
use super::pending::{Pending, Template};
use super::writes::{Vacated, running_statistics, writes_to, written};

/// Scratch memory below this is not worth measuring where that is more than to look at a counter.
const MEASURED: u64 = 1 << 18;

/// Runs of a shape of which the device is asked how long they take: the first ones load kernels.
const TIMED: u32 = 3;

/// A call whose arguments have been walked over.
pub(super) struct Ready<'a, 'py> {
    pub(super) op: Arc<Op>,
    pub(super) args: &'a Bound<'py, PyTuple>,
    pub(super) kwargs: Option<&'a Bound<'py, PyDict>>,
    pub(super) found: Found<'py>,
    pub(super) positional: Vec<Arg>,
    pub(super) named: Vec<(Py<PyString>, Arg)>,
}

/// The operands, as the engine knows them.
struct Known {
    reads: Vec<TensorId>,
    /// The one that is overwritten whole, and its bytes.
    whole: Option<(usize, u64)>,
    /// Whether one of them may change without an op.
    exposed: bool,
}

/// What a call of its shape needs.
struct Needs {
    /// The row of the table, if there is one.
    profile: Option<ProfileId>,
    known: OpProfile,
    /// Whether the operands' content has decided it.
    by_data: bool,
}

/// A call as the engine is told of it.
struct Prepared<'py> {
    op: Arc<Op>,
    needs: Needs,
    effect: Effect,
    /// Number of the state of the global switches.
    switches: u32,
    reads: Vec<TensorId>,
    /// What the op needs of each of them; empty if that is everything.
    asks: Vec<Need>,
    outputs: Vec<Output>,
    /// How many outputs are new storages that the op makes.
    fresh: usize,
    /// The storages of the operands.
    addresses: Vec<usize>,
    /// From here on operands are running statistics.
    first_statistic: usize,
    /// Operands that are overwritten, and how many of the op's operands share the storage of each.
    written: Vec<usize>,
    times: Vec<usize>,
    /// The operand that is overwritten whole.
    whole: Option<usize>,
    /// The same, if the engine takes its bytes for a new storage.
    vacated: Option<Vacated<'py>>,
    blank: Option<usize>,
    template: Option<Template>,
    generator: Option<Py<PyAny>>,
    /// The generator's state, which is memory of its own.
    state: Option<TensorId>,
    /// Whether repetitions read copies of what may change.
    copied: bool,
    /// Whether it may be run again.
    again: bool,
    /// Whether it may be once it has run: sizes that only the data can say are known then.
    later: bool,
    /// Bytes taken beside the op's own: see `put_aside`.
    aside: u64,
}

impl Prepared<'_> {
    /// Bytes of the storages that it makes, if they are known.
    fn sizes(&self) -> Option<&[u64]> {
        self.needs.known.fresh.as_deref()
    }

    fn call(&self) -> Call<'_> {
        let known = &self.needs.known;
        Call {
            kind: &self.op.name,
            reads: &self.reads,
            needs: &self.asks,
            outputs: &self.outputs,
            time: Nanos(known.time),
            workspace: Bytes(known.workspace.saturating_add(self.aside)),
            guessed: known.guessed && known.fresh.is_some(),
            effect: self.effect,
        }
    }
}

impl Inner {
    /// Brings the operands back, makes room, runs the op, and books what it has made and written.
    pub(super) fn run<'py>(&mut self, py: Python<'py>, ready: Ready<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let (args, kwargs) = (ready.args, ready.kwargs);
        let mut prepared = self.prepare(py, ready)?;
        let ran = self.execute(py, &mut prepared, args, kwargs)?;
        // From here on only a repetition needs the generator's state.
        let state = prepared.state.take();
        let last = state.filter(|_| self.evict_all);
        self.give_up(py, state.filter(|_| !self.evict_all))?;
        let result = self.book(py, &mut prepared, ran)?;
        self.keep_after(py, &prepared, &result)?;
        if self.watched.is_some() {
            // What is made is counted by itself.
            let known = &prepared.needs.known;
            let scratch = if known.fresh.is_some() { known.workspace } else { 0 };
            self.watch_op(&prepared.op.name, &prepared.addresses, &result, scratch)?;
        }
        self.reads = prepared.reads;
        if self.evict_all {
            self.engine.drop_all();
        }
        self.give_up(py, last)?;
        Ok(result)
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

    fn operands(&mut self, py: Python<'_>, op: &Op, found: &Found<'_>) -> PyResult<Known> {
        let mut exposed = found.foreign || found.opaque;
        let mut reads = std::mem::take(&mut self.reads);
        reads.clear();
        for operand in &found.operands {
            let tensor = self.source(&operand.storage)?;
            self.look_for_writes(py, tensor, operand)?;
            reads.push(tensor);
        }
        let whole = self.filled(py, op, &found.operands)?;
        for (at, operand) in found.operands.iter().enumerate() {
            let filled = whole.is_some_and(|(filled, _)| filled == at);
            let entry = self.entries.get(&operand.address());
            exposed |= entry.is_some_and(|entry| entry.exposed || (entry.raw && !filled));
        }
        Ok(Known { reads, whole, exposed })
    }

    fn needs(
        &mut self,
        op: &Op,
        found: &Found<'_>,
        reads: &[TensorId],
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Needs> {
        let profile = match op.makes && !found.opaque {
            true => Some(self.ops.profile(&found.key, op, args, kwargs, &self.engine.host.glue)?),
            false => None,
        };
        let mut known = match profile {
            Some(profile) => self.ops.profiles.of(profile).clone(),
            None if op.makes => unknown(found)?,
            None => OpProfile::nothing(),
        };
        let by_data = (op.by_data || found.opaque) && known.fresh.is_none();
        if by_data {
            self.by_data(&mut known, op, reads, args, kwargs)?;
        }
        Ok(Needs { profile, known, by_data })
    }

    fn prepare<'py>(&mut self, py: Python<'py>, ready: Ready<'_, 'py>) -> PyResult<Prepared<'py>> {
        let Ready { op, args, kwargs, mut found, mut positional, named } = ready;
        let host = &mut self.engine.host;
        let switches = host.switches.look(py, &host.glue)?;
        found.key.push(host.switches.key);
        let own = self.effect(&op);
        let foreign = found.foreign || found.opaque;
        let Known { mut reads, whole, mut exposed } = self.operands(py, &op, &found)?;
        let statistics = running_statistics(&op, &mut positional, args, found.operands.len())?;
        let first_statistic = found.operands.len() - statistics;
        // They are overwritten behind the engine's back: what was computed from them is brought back before.
        self.hold(py, &found.operands[first_statistic..], true)?;
        let needs = self.needs(&op, &found, &reads, args, kwargs)?;
        let sizes = needs.known.fresh.as_deref();
        let repeatable = matches!(own, Effect::Pure | Effect::Seeded) && op.way == Way::Compute;
        if let Some(sizes) = sizes
            && exposed
            && !foreign
            && repeatable
        {
            let (operands, made) = (&found.operands[..first_statistic], sizes.iter().sum());
            exposed = !self.read_copies(py, operands, &mut reads, made)?;
        }
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
        self.look_before_writing(py, written.iter().filter_map(|&at| reads.get(at).copied()))?;
        outputs.extend(written.iter().map(|&at| Output::InPlace(at)));
        let times = written.iter().map(|&at| writes_to(&found.operands, at)).collect();
        let later = sizes.is_none() && own == Effect::Pure && !exposed && op.makes && written.is_empty();
        self.look_for(
            py,
            outputs.iter().map(|output| output.bytes().0).sum::<u64>().saturating_add(needs.known.workspace),
        )?;
        reads.truncate(first_statistic);
        let state = (effect == Effect::Seeded).then(|| self.put_state(py)).transpose()?;
        reads.extend(state);
        let vacated = match blank {
            Some((at, _)) => self.vacate(py, &found.operands[at])?,
            None => None,
        };
        let windows =
            found.operands.into_iter().take(first_statistic).map(|operand| operand.window).collect();
        let asks = if blank.is_none() { asks(&op, &positional, args, reads.len()) } else { Vec::new() };
        let template =
            Some(Template { args: positional, kwargs: named, windows, blank, outputs: outputs.clone() });
        let (generator, aside) = (found.generator.take(), self.put_aside(effect));
        let (whole, blank) = (whole.map(|(at, _)| at), blank.map(|(at, _)| at));
        Ok(Prepared {
            op,
            needs,
            effect,
            switches,
            reads,
            asks,
            outputs,
            fresh,
            addresses,
            first_statistic,
            written,
            times,
            whole,
            vacated,
            blank,
            template,
            generator,
            state,
            copied: !exposed,
            again,
            later,
            aside,
        })
    }

    /// Runs the op. If it fails, what it may have written so far has been written.
    fn execute<'py>(
        &mut self,
        py: Python<'py>,
        prepared: &mut Prepared<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Pending> {
        let known = &prepared.needs.known;
        let least = if self.engine.host.glue.is_limited { 0 } else { MEASURED };
        let profiled = prepared.needs.profile.is_some();
        self.engine.host.pending = Some(Pending {
            op: Arc::clone(&prepared.op),
            args: args.clone().unbind(),
            kwargs: kwargs.map(|kwargs| kwargs.clone().unbind()),
            template: prepared.template.take_if(|_| prepared.again),
            generator: prepared.generator.take(),
            switches: prepared.switches,
            measured: profiled && known.guessed && (known.fresh.is_none() || known.workspace > least),
            seen: known.fresh.is_none().then(|| known.most_seen()),
            timed: profiled && known.runs < TIMED && known.fresh.is_some(),
            taken: 0,
            held_to: known.guessed.then(|| prepared.sizes().unwrap_or_default().iter().sum()),
            refused: None,
            started: false,
            state: None,
            result: None,
            workspace: None,
            aside: prepared.aside,
            time: known.time,
        });
        // An op that drew random numbers, told others, or wrote before it ran out of memory would do so twice.
        let restartable = prepared.op.effect == Effect::Pure
            && prepared.written.is_empty()
            && prepared.blank.is_none()
            && prepared.first_statistic == prepared.addresses.len();
        let applied = self.apply(py, prepared.call(), restartable);
        let pending = self.engine.host.pending.take();
        if let Err(error) = applied {
            self.give_up(py, prepared.state)?;
            if let Some(vacated) = prepared.vacated.take() {
                self.occupy(py, vacated, None)?;
            }
            if pending.is_some_and(|pending| pending.started) {
                let addresses = &prepared.addresses;
                let half = prepared.written.iter().map(|&at| addresses[at]);
                let statistics = addresses[prepared.first_statistic..].iter().copied();
                self.written_once(py, "failed", &half.chain(statistics).collect::<Vec<_>>())?;
            }
            return Err(error);
        }
        pending.ok_or_else(|| has_not_run(&prepared.op))
    }

    /// Books what the op has written and made.
    fn book<'py>(
        &mut self,
        py: Python<'py>,
        prepared: &mut Prepared<'py>,
        ran: Pending,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = ran.result.ok_or_else(|| has_not_run(&prepared.op))?.into_bound(py);
        if let Some(profile) = prepared.needs.profile {
            self.ops.profiles.of_mut(profile).ran(ran.time, ran.workspace);
        }
        self.cost = (ran.time, ran.workspace.unwrap_or(prepared.needs.known.workspace));
        if ran.taken > 0 {
            self.put_bytes(py, ran.taken)?;
        }
        let (template, vacated) = (prepared.template.take(), prepared.vacated.take());
        let Prepared { op, needs, addresses, written, times, fresh, .. } = &*prepared;
        let made = std::mem::take(&mut self.made);
        // What was written is booked first: whatever becomes of the results, it has been written.
        for ((&tensor, &at), &times) in made[*fresh..].iter().zip(written).zip(times) {
            self.overwritten(py, addresses[at], tensor)?;
            self.wrote(py, addresses[at], times);
            if let Some(entry) = self.entries.get_mut(&addresses[at]) {
                entry.by = Some(Arc::clone(op));
            }
        }
        if let Some(vacated) = vacated {
            self.occupy(py, vacated, made.get(*fresh).copied())?;
        } else if let Some(entry) = prepared.whole.and_then(|at| self.entries.get_mut(&addresses[at])) {
            entry.raw = false;
        }
        let outcome = match prepared.sizes() {
            None if prepared.later => {
                let workspace = Bytes(ran.workspace.unwrap_or(needs.known.workspace));
                let call = Call { time: Nanos(ran.time), workspace, effect: Effect::Pure, ..prepared.call() };
                self.receive_later(py, op, &result, template, prepared.switches, call)?
            }
            sizes => self.receive(py, op, &result, &made[..*fresh], sizes)?,
        };
        if outcome.is_some() {
            // What a repetition would write can't be told from what it would make.
            for &at in written.iter().chain(&prepared.blank) {
                if let Some(tensor) = self.entries.get(&addresses[at]).map(|entry| entry.tensor) {
                    self.engine.keep_resident(tensor).map_err(|fault| self.fault(py, fault))?;
                }
            }
        }
        if let (Some(profile), Some(given)) = (needs.profile.filter(|_| !needs.by_data), outcome) {
            self.ops.profiles.of_mut(profile).correct(given);
        }
        self.made = made;
        self.made.clear();
        Ok(result)
    }

    /// Keeps what may be written to, or read, without an op from now on, and what repetitions read.
    fn keep_after(
        &mut self,
        py: Python<'_>,
        prepared: &Prepared<'_>,
        result: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Prepared { op, addresses, .. } = prepared;
        let (operands, statistics) = addresses.split_at(prepared.first_statistic);
        if !statistics.is_empty() {
            self.written_once(py, "running statistics", statistics)?;
        }
        if op.raw {
            self.mark_raw(result)?;
        }
        for &at in &op.pointed {
            self.keep_pointed(py, &result.get_item(at)?)?;
        }
        if prepared.again || prepared.later {
            for &address in operands {
                if !(prepared.copied && self.is_copied(address)) {
                    self.outlive(py, address);
                }
            }
            self.keep_read(result)?;
        } else if op.volatile {
            for &at in &prepared.written {
                self.expose(addresses[at]);
            }
        }
        Ok(())
    }
}

fn has_not_run(op: &Op) -> PyErr {
    PyRuntimeError::new_err(format!("memfit: `{}` has not run", op.name))
}

/// What `op` needs of each of its first operands, of which there are `count`; empty if that is everything.
fn asks(op: &Op, positional: &[Arg], args: &Bound<'_, PyTuple>, count: usize) -> Vec<Need> {
    let is_zero =
        |at: usize| args.get_item(at).and_then(|arg| arg.extract::<f64>()).is_ok_and(|arg| arg == 0.0);
    let signs = op.signs.filter(|(_, zero)| zero.is_none_or(is_zero)).map(|(at, _)| (at, Need::Sign));
    let mut asks = Vec::new();
    for (at, need) in signs.into_iter().chain(op.shape.map(|at| (at, Need::Shape))) {
        if let Some(&Arg::Operand(number)) = positional.get(at) {
            asks.resize(count, Need::Value);
            if let Some(ask) = asks.get_mut(number) {
                *ask = need;
            }
        }
    }
    asks
}
