//! The class that a dispatch mode in Python calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use memfit::engine::{Engine, Fault, Settings, Storing, TensorId};
use memfit::ir::{Bytes, Nanos, Tier};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyDict, PyTuple};

use super::dispatch::Inner;
use super::glue::Glue;
use super::host::Torch;
use super::means::Means;
use super::ops::Learnt;
use super::policy::Policy;
use super::steps::{Planned, Planning, Times};
use super::watched::Watched;
use super::within::Within;
use crate::failure::raise;

/// So much recomputation is borne whatever the program's own ops take.
const PATIENT: Nanos = Nanos(10_000_000_000);

thread_local! {
    /// Its address is the thread's own.
    static HERE: u8 = const { 0 };
}

fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The online engine over PyTorch's storages.
///
/// One step of bookkeeping happens at a time. A thread of autograd's may call while the thread that enabled the mode waits; a
/// call from within a call is an error.
#[pyclass(frozen, module = "memfit._memfit")]
pub(super) struct Eager {
    inner: Mutex<Option<Inner>>,
    /// The thread that is within, as [`here`].
    within: AtomicUsize,
    /// Storages whose bytes an op has handed out while it ran.
    handed_out: Mutex<Vec<Py<PyAny>>>,
    /// Calls an op whose kernel is a function of Python's.
    call_within: Py<PyAny>,
    /// What plain tensors have in the place of a way of their own.
    no_dispatch: Py<PyAny>,
    fake: Py<PyAny>,
    /// Whether an interrupt waits for the end of a call.
    interrupted: AtomicBool,
    /// Whether this process has inherited the engine from the one that made it.
    forked: AtomicBool,
}

impl Eager {
    /// Whether this thread is in an op that the engine runs: then what the op reads is there.
    fn is_within(&self) -> bool {
        self.within.load(Ordering::Relaxed) == here()
    }

    /// After an op: the bytes that were handed out while it ran stay, and what reads them does.
    fn expose_handed_out(&self, py: Python<'_>) -> PyResult<()> {
        let handed_out = {
            let mut storages = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
            if storages.is_empty() {
                return Ok(());
            }
            std::mem::take(&mut *storages)
        };
        handed_out.iter().try_for_each(|storage| self.expose(storage.bind(py)))
    }

    fn enter(&self, py: Python<'_>) -> PyResult<Within<'_>> {
        let guard = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if self.is_within() {
                    return Err(PyRuntimeError::new_err("memfit was called by an op that it is running"));
                }
                self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
            }
        };
        self.within.store(here(), Ordering::Relaxed);
        Ok(Within { guard, within: &self.within })
    }

    /// Does `work` with what `storage` is, if that is watched.
    fn if_known(
        &self,
        storage: &Bound<'_, PyAny>,
        work: impl Fn(&mut Engine<'static, Torch>, TensorId) -> Result<(), Fault>,
    ) -> PyResult<()> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let Some(tensor) = inner.known(storage) else { return Ok(()) };
        inner.retry(py, |engine| work(engine, tensor))
    }
}

#[pymethods]
impl Eager {
    /// An engine with `budget` bytes, and for copies what `means` has; `glue` is the module `memfit.torch._glue`. `afresh` forgets
    /// what earlier engines of this process have learnt of ops.
    #[new]
    #[pyo3(signature = (glue, budget, *, align, policy, evict_all = false, exact = true, afresh = false, means = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        glue: &Bound<'_, PyAny>,
        budget: u64,
        align: u64,
        policy: Policy,
        evict_all: bool,
        exact: bool,
        afresh: bool,
        means: Option<Means>,
    ) -> PyResult<Eager> {
        if afresh {
            drop(super::ops::take_known());
        }
        let means = means.unwrap_or_default();
        let patience = means.patience.filter(|_| !evict_all);
        let settings = means.settings(glue.py(), Bytes(budget))?;
        let storing = if evict_all { Storing::Never } else { settings.storing };
        let (align, options, evictor) = (Bytes(align), policy.options()?, policy.evictor);
        let parking = settings.parking && !evict_all;
        let settings = Settings { align, evictor, options, cut: !evict_all, storing, parking, ..settings };
        let mut inner = Inner::new(Glue::new(glue)?, settings, means.shelves())?;
        (inner.evict_all, inner.exact) = (evict_all, exact);
        inner.engine.limit_pace(patience, PATIENT);
        Ok(Eager {
            inner: Mutex::new(Some(inner)),
            within: AtomicUsize::new(0),
            handed_out: Mutex::default(),
            call_within: glue.getattr("call_within")?.unbind(),
            no_dispatch: glue.getattr("tensor")?.getattr("__torch_dispatch__")?.unbind(),
            fake: glue.getattr("fake")?.unbind(),
            interrupted: AtomicBool::new(false),
            forked: AtomicBool::new(false),
        })
    }

    /// As `TorchDispatchMode.__torch_dispatch__`, for a method of a mode.
    #[pyo3(signature = (mode, func, types, args, kwargs = None))]
    fn dispatch<'py>(
        &self,
        mode: &Bound<'py, PyAny>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyTuple>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        // A subclass with a way of its own has it first; the plain tensors in it come back here.
        for kind in types.iter_borrowed() {
            // Fake ones have no bytes, and their mode is at work on them below.
            if kind.is(&self.fake) {
                return func.call(args.clone(), kwargs);
            }
            if !kind.getattr(pyo3::intern!(py, "__torch_dispatch__"))?.is(&self.no_dispatch) {
                return Ok(py.NotImplemented().into_bound(py));
            }
        }
        if self.forked.load(Ordering::Relaxed) {
            return func.call(args.clone(), kwargs);
        }
        let mut result = self.enter(py)?.inner()?.dispatch(func, args, kwargs);
        self.expose_handed_out(py)?;
        if let Ok(None) = result {
            result = self.call_within.bind(py).call1((mode, func, args, kwargs)).map(Some);
        }
        if self.take_interrupt() {
            // It has the last word, whatever the op has come to.
            mode.call_method0(pyo3::intern!(py, "deliver_interrupt"))?;
        }
        result.map(|result| result.unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Whether an interrupt waits for the end of an op: one that came while bytes were being moved, or, `always`, any.
    fn defer_interrupt(&self, always: bool) -> bool {
        let waits = always || self.within.load(Ordering::Relaxed) != 0;
        if waits {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        waits
    }

    /// Whether an interrupt waits; it does no more.
    fn take_interrupt(&self) -> bool {
        self.interrupted.swap(false, Ordering::Relaxed)
    }

    /// In the child of a fork: the parent's storages are not ours to move.
    fn leave_to_parent(&self) {
        self.forked.store(true, Ordering::Relaxed);
    }

    /// Evicts a storage. False: it is not known, in use elsewhere, or can't be computed again.
    fn drop(&self, storage: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let Some(tensor) = inner.known(storage) else {
            return Ok(false);
        };
        inner.engine.drop(tensor).map_err(|fault| inner.fault(py, fault))
    }

    /// Stores a storage in host memory, or on disk, and evicts it. False: it is not known, in use elsewhere, or there is no room.
    fn swap_out(&self, storage: &Bound<'_, PyAny>, tier: &str) -> PyResult<bool> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let unknown = || PyValueError::new_err(format!("there is no tier `{tier}`\nhint: `host` or `disk`"));
        let (tier, _) = Tier::ALL.into_iter().find(|(_, name)| *name == tier).ok_or_else(unknown)?;
        let Some(tensor) = inner.known(storage) else {
            return Ok(false);
        };
        inner.engine.swap_out(tensor, tier).map_err(|fault| inner.fault(py, fault))
    }

    /// Begins to bring a storage back that was stored.
    fn swap_in(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let Some(tensor) = inner.known(storage) else {
            return Ok(());
        };
        inner.retry(py, |engine| engine.swap_in(tensor))
    }

    /// Why a copy was lost, of the last one since this was asked, if there was one: what it was of is computed again.
    fn take_lost(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.enter(py)?.inner()?.engine.take_lost().map(|error| error.to_string()))
    }

    /// Brings a storage back, and keeps it until as many `unpin`.
    fn pin(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let tensor = inner.source(storage)?;
        inner.retry(py, |engine| engine.pin(tensor))
    }

    /// Takes one `pin` back.
    fn unpin(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let Some(tensor) = inner.known(storage) else {
            return Err(PyValueError::new_err("the tensor is not pinned"));
        };
        inner.engine.unpin(tensor).map_err(|_| PyValueError::new_err("the tensor is not pinned"))
    }

    /// Brings a storage back.
    fn restore(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_within() {
            return Ok(());
        }
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let tensor = inner.source(storage)?;
        inner.retry(py, |engine| engine.restore(tensor))
    }

    /// Brings a storage back for good: somebody outside gets its address, and may write to it.
    fn expose(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_within() {
            let mut handed_out = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
            handed_out.push(storage.clone().unbind());
            return Ok(());
        }
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let tensor = inner.source(storage)?;
        inner.retry(py, |engine| engine.expose(tensor))?;
        inner.expose(storage.as_ptr().addr());
        Ok(())
    }

    /// Makes a storage known that was there before. False: it is known.
    fn adopt(&self, storage: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut within = self.enter(storage.py())?;
        let inner = within.inner()?;
        if inner.known(storage).is_some() {
            return Ok(false);
        }
        inner.source(storage).map(|_| true)
    }

    /// Keeps a storage for good where it is: somebody goes on to read it unseen. What is not known is left alone.
    fn keep(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        self.if_known(storage, |engine, tensor| engine.keep_resident(tensor))
    }

    /// Whether some storages are parked: their bytes are in copies alone.
    fn has_parked(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.enter(py)?.inner()?.engine.has_parked())
    }

    /// Forgets how a storage came about: it is never computed again. What is not known is left alone.
    fn settle(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        self.if_known(storage, |engine, tensor| engine.settle_down(tensor))
    }

    /// Notes how sensitive gradients are to what a storage holds now. What is not known is left alone.
    fn sense(&self, storage: &Bound<'_, PyAny>, sensitivity: f32) -> PyResult<()> {
        self.if_known(storage, |engine, tensor| {
            engine.sense(tensor, sensitivity);
            Ok(())
        })
    }

    /// Whether a storage is watched.
    fn is_known(&self, storage: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut within = self.enter(storage.py())?;
        Ok(within.inner()?.known(storage).is_some())
    }

    /// Whether the bytes of a storage are there.
    fn is_resident(&self, storage: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut within = self.enter(storage.py())?;
        let inner = within.inner()?;
        Ok(inner.known(storage).is_none_or(|tensor| inner.engine.is_resident(tensor)))
    }

    /// A step begins, within `budget` again where that was lifted; see `memfit.torch.fit`. `moved`: another budget has
    /// moved storages, and brought them back.
    #[pyo3(signature = (budget=None, moved=false))]
    fn begin_step(&self, py: Python<'_>, budget: Option<u64>, moved: bool) -> PyResult<()> {
        self.enter(py)?.inner()?.begin_step(py, budget.map(Bytes), moved)
    }

    /// A step ends: which it was, whether it was guided, whether a plan is wanted, ns in repetitions, ns foreseen.
    fn end_step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.enter(py)?.inner()?.end_step(py)
    }

    /// What plans from now on: `evict:planned`, `auto` or a scheduler's name.
    fn set_strategy(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.enter(py)?.inner()?.steps.set_strategy(name).map_err(|failure| raise(py, &failure))
    }

    /// What was tried for the last plan: names, and ns in repetitions of what was found.
    fn tried(&self, py: Python<'_>) -> PyResult<Vec<(String, Option<u64>)>> {
        Ok(self.enter(py)?.inner()?.tried())
    }

    /// Looks for a plan for the step that ended last, within `budget` or else the engine's own; whether there is one. The
    /// search takes at most `bytes` of the host's memory and about `seconds`; then it takes what it has.
    #[pyo3(signature = (budget = None, *, bytes, seconds))]
    fn plan_step(&self, py: Python<'_>, budget: Option<u64>, bytes: u64, seconds: f64) -> PyResult<bool> {
        self.enter(py)?.inner()?.plan_step(py, budget, Planning { bytes, seconds })
    }

    /// The least budget that would do for the step that ended last, from `floor` up, as far as a search within `bytes` and
    /// `seconds` finds one.
    #[pyo3(signature = (floor, *, bytes, seconds))]
    fn least_budget(&self, py: Python<'_>, floor: u64, bytes: u64, seconds: f64) -> PyResult<Option<u64>> {
        Ok(self.enter(py)?.inner()?.least_budget(py, floor, Planning { bytes, seconds }))
    }

    /// At most so much time may go into recomputation from now on; then `TimeoutError` is raised.
    fn limit_recomputation(&self, py: Python<'_>, ns: u64) -> PyResult<()> {
        self.enter(py)?.inner()?.engine.limit_recomputation(Nanos(ns));
        Ok(())
    }

    /// What is known of ops: for each shape its op's name, the rest of its key, and what `learn` takes back. Keys hold
    /// addresses: they are good in this process and in those that it forks, or that it was forked from.
    fn known(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<u64>, Learnt)>> {
        self.enter(py)?.inner()?.ops.export(py)
    }

    /// Takes over what `known` gave elsewhere; `ops` has the op of each row.
    fn learn(
        &self,
        py: Python<'_>,
        ops: Vec<Py<PyAny>>,
        rows: Vec<(String, Vec<u64>, Learnt)>,
    ) -> PyResult<()> {
        self.enter(py)?.inner()?.ops.import(&ops, rows);
        Ok(())
    }

    /// A step ends by an error.
    fn abandon_step(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.inner()?.abandon_step(py)
    }

    /// The last plan, if there is one: see [`Planned`].
    fn planned(&self, py: Python<'_>) -> PyResult<Option<Planned>> {
        Ok(self.enter(py)?.inner()?.planned())
    }

    /// Profile and plan of the last step that was planned, as files.
    fn save(&self, py: Python<'_>) -> PyResult<Option<(Vec<u8>, Vec<u8>)>> {
        self.enter(py)?.inner()?.save(py)
    }

    /// Takes over what `save` gave, here or elsewhere, and what `planned` has predicted for it; which step it is for.
    #[pyo3(signature = (profile, plan, takes = None))]
    fn load(&self, py: Python<'_>, profile: &[u8], plan: &[u8], takes: Option<Times>) -> PyResult<String> {
        self.enter(py)?.inner()?.load(py, (profile, plan), takes)
    }

    /// Nanoseconds and bytes of scratch memory of the op that ran last, without what was done to make room for it.
    fn last_cost(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        Ok(self.enter(py)?.inner()?.cost)
    }

    /// From now on notes what each op touches.
    fn watch(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.inner()?.watched = Some(Watched::default());
        Ok(())
    }

    /// Ends the watch: bytes that are alive now, bytes of the largest working set of one op beside them, its name, and
    /// the bytes of the step with all that lasts in other memory, as far as there is some.
    fn floor(&self, py: Python<'_>) -> PyResult<(u64, u64, String, u64)> {
        let floor = self.enter(py)?.inner()?.floor(py)?;
        Ok((floor.persistent, floor.largest, floor.op, floor.below))
    }

    /// Brings back all that can be reached, and lets go of it; a second time it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut within = self.enter(py)?;
        let Some(mut inner) = within.guard.take() else { return Ok(()) };
        let closed = inner.close(py);
        drop(within);
        closed
    }

    /// Why there are bytes that can't go, the most bytes first: why, bytes, storages.
    fn kept(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64)>> {
        Ok(self.enter(py)?.inner()?.kept())
    }

    /// Makes room for `bytes` that come about out of sight. If there is less, all that can go has gone.
    fn make_room(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let room = inner.put_bytes(py, bytes)?;
        inner.engine.del(room).map_err(|fault| inner.fault(py, fault))
    }

    /// Counts `bytes` that somebody else has taken for good. What can go makes room for them.
    fn reserve(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        self.enter(py)?.inner()?.put_bytes(py, bytes).map(drop)
    }

    /// Something out of sight is about to write to a storage: what is computed from it is brought back, if it is held.
    fn overwrite(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = storage.py();
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let tensor = inner.source(storage)?;
        inner.retry(py, |engine| engine.restore(tensor))?;
        inner.written_once(py, "compiled code", &[storage.as_ptr().addr()])
    }

    /// The budget is `budget` bytes from now on.
    fn set_budget(&self, py: Python<'_>, budget: u64) -> PyResult<()> {
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        inner.retry(py, |engine| engine.set_budget(Bytes(budget)))
    }

    /// Brings back all that somebody can reach, and has no budget until a step begins with one.
    fn come_home(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.inner()?.come_home(py)
    }

    /// What has been done so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut within = self.enter(py)?;
        let inner = within.inner()?;
        let told = PyDict::new(py);
        for (name, value) in inner.stats() {
            told.set_item(name, value)?;
        }
        Ok(told)
    }
}
