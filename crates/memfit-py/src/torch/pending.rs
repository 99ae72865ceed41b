//! A call for the first time, and what is needed to make it again.

use std::sync::Arc;

use memfit::engine::kit::{self, OpProfile};
use memfit::engine::{Output, Run};
use memfit::ir::Nanos;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::allocator::Limit;
use super::host::Torch;
use super::operands::{Arg, Window};
use super::ops::Op;

/// How to make a call again.
pub(super) struct Recipe {
    pub(super) op: Arc<Op>,
    pub(super) args: Vec<Arg>,
    pub(super) kwargs: Vec<(Py<PyString>, Arg)>,
    pub(super) windows: Vec<Window>,
    pub(super) blank: Option<(usize, u64)>,
    pub(super) outputs: Vec<Output>,
    /// Whether gradients were wanted: some kernels only then make what backward needs.
    pub(super) grad: bool,
    /// Number of the state that the global switches were in.
    pub(super) switches: u32,
    /// State of the generator before the first run. For the engine it is the last operand.
    pub(super) state: Option<Py<PyAny>>,
}

impl kit::Recipe for Recipe {}

/// A call that is about to run for the first time.
pub(super) struct Pending {
    pub(super) op: Arc<Op>,
    pub(super) args: Py<PyTuple>,
    pub(super) kwargs: Option<Py<PyDict>>,
    /// What is needed to make the call again, if that may be asked for.
    pub(super) template: Option<Template>,
    pub(super) generator: Option<Py<PyAny>>,
    /// Number of the state of the global switches.
    pub(super) switches: u32,
    /// Whether its scratch memory is to be measured.
    pub(super) measured: bool,
    /// Where nobody can say what it will make: what it takes is with its results, and no less than it was seen to take.
    pub(super) seen: Option<u64>,
    /// Bytes of its results, if what it takes beside them is a guess: it is held to what there is.
    pub(super) held_to: Option<u64>,
    /// Bytes, results and scratch memory, for which there was no room when it ran.
    pub(super) refused: Option<u64>,
    pub(super) started: bool,
    pub(super) state: Option<Py<PyAny>>,
    /// What it gave; if it is there already, the call has been made, and only its recipe is kept.
    pub(super) result: Option<Py<PyAny>>,
    /// What it took beside its results, if that was measured.
    pub(super) workspace: Option<u64>,
    /// Bytes that the op's libraries have taken for good.
    pub(super) taken: u64,
    /// Whether the device is asked how long it takes.
    pub(super) timed: bool,
    /// Bytes taken beside the op's own: see `put_aside`.
    pub(super) aside: u64,
    /// Ns that calls of this shape take, or 0 if it is the first; then what this one is taken to have taken.
    pub(super) time: u64,
}

/// The arguments of a call, without their tensors.
pub(super) struct Template {
    pub(super) args: Vec<Arg>,
    pub(super) kwargs: Vec<(Py<PyString>, Arg)>,
    pub(super) windows: Vec<Window>,
    /// The operand of this number is memory that the op overwrites: a repetition gets new one.
    pub(super) blank: Option<(usize, u64)>,
    pub(super) outputs: Vec<Output>,
}

impl Torch {
    /// The first run: the program's own call.
    pub(super) fn first(&mut self, py: Python<'_>, run: &Run<'_>, pending: &mut Pending) -> PyResult<Nanos> {
        pending.started = true;
        if pending.result.is_some() {
            self.remember(py, run, pending)?;
            return Ok(Nanos(pending.time));
        }
        let (func, args, kwargs) = (&pending.op.func, &pending.args, pending.kwargs.as_ref());
        let start = self.now();
        let limit = pending.held_to.filter(|_| self.glue.is_limited).map(|results| {
            Limit::new(results.saturating_add(run.workspace.size.0).saturating_add(run.room.0))
        });
        let (mut on_device, mut taken) = (None, 0);
        let called = if let Some(timed) = self.glue.timed.as_ref().filter(|_| pending.timed) {
            let told = timed.bind(py).call1((func, args, kwargs));
            let told = told.and_then(|told| told.extract::<(Py<PyAny>, u64, u64, u64)>());
            told.map(|(result, workspace, time, more)| {
                (on_device, taken) = (Some(time), more);
                // More than it was said to take counts from now on.
                let said = run.workspace.size.0.saturating_sub(pending.aside);
                let counts = pending.measured || workspace > said;
                (result, if counts { Some(workspace) } else { pending.workspace })
            })
        } else if pending.measured {
            let (measure, seen) = match pending.seen {
                Some(seen) => (&self.glue.measure_peak, seen),
                None => (&self.glue.measure, 0),
            };
            let told = measure.bind(py).call1((func, args, kwargs));
            let told = told.and_then(|told| told.extract::<(Py<PyAny>, Option<u64>)>());
            told.map(|(result, bytes)| (result, bytes.map(|bytes| bytes.max(seen))))
        } else {
            let result =
                pending.op.call.call(py, args.bind(py).clone(), kwargs.map(|kwargs| kwargs.bind(py)));
            result.map(|result| (result, pending.workspace))
        };
        pending.refused = limit.as_ref().filter(|_| called.is_err()).and_then(Limit::refused);
        drop(limit);
        let (result, workspace) = called?;
        (pending.workspace, pending.taken) = (workspace, taken);
        pending.time = match on_device {
            Some(time) if pending.time == 0 => time.max(1),
            Some(time) => time.clamp(1, pending.time),
            // How long a launch takes says nothing of a kernel.
            None if self.glue.timed.is_some() && pending.time > 0 => pending.time,
            None => OpProfile::expects(pending.time, self.now().saturating_sub(start)),
        };
        pending.result = Some(result);
        self.remember(py, run, pending)?;
        Ok(Nanos(pending.time))
    }

    /// Keeps what is needed to make the call again.
    fn remember(&mut self, py: Python<'_>, run: &Run<'_>, pending: &mut Pending) -> PyResult<()> {
        if let Some(Template { args, kwargs, windows, blank, outputs }) = pending.template.take() {
            let (op, state) = (Arc::clone(&pending.op), pending.state.take());
            let grad = self.glue.is_grad_enabled.bind(py).call0()?.is_truthy()?;
            let switches = pending.switches;
            let recipe = Recipe { op, args, kwargs, windows, blank, outputs, grad, switches, state };
            self.recipes.remember(run, recipe);
        }
        Ok(())
    }
}
