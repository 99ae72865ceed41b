//! What is known of each op, and of each op with operands of given shapes.

use std::sync::{Arc, Mutex, PoisonError};

use memfit::engine::kit::{OpProfile, ProfileId, Profiles};
use memfit::ir::Effect;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use super::glue::Glue;

/// Which of an op's arguments are a property of interest.
#[derive(Default)]
pub(super) struct Marked {
    pub(super) positions: Vec<bool>,
    pub(super) names: Vec<String>,
}

impl Marked {
    fn new(description: &Bound<'_, PyAny>, key: &str) -> PyResult<Marked> {
        let (positions, names) = description.get_item(key)?.extract()?;
        Ok(Marked { positions, names })
    }

    pub(super) fn at(&self, position: usize) -> bool {
        self.positions.get(position).copied().unwrap_or(false)
    }

    pub(super) fn named(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// How an op treats its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Only metadata: it is called as if there were no engine.
    Metadata,
    /// Its kernel is a function of Python's: its own ops are seen one by one.
    Transparent,
    /// It may give a storage another size: what depends on the storage is brought back first.
    Resize,
    /// All else.
    Compute,
}

/// Batch normalisation in training: it overwrites running statistics that its results do not depend on.
pub(super) struct Norm {
    /// Position of the flag for training, where there is one.
    pub(super) training: Option<usize>,
    /// Positions of the running statistics; a repetition gets `None` there.
    pub(super) running: Vec<usize>,
}

/// One op.
pub(super) struct Op {
    /// Kept, so that its address stays its own.
    pub(super) func: Py<PyAny>,
    /// What is called for it: it does the same, without a frame of Python's where there is a way.
    pub(super) call: Py<PyAny>,
    pub(super) name: String,
    pub(super) way: Way,
    pub(super) effect: Effect,
    /// Whether other threads may read or write its operands after it has returned.
    pub(super) foreign: bool,
    /// Whether what it makes may be more than a window on a storage.
    pub(super) parts: bool,
    /// Whether what it writes is given memory, and loses it, behind everybody's back.
    pub(super) volatile: bool,
    /// Whether it makes tensors at all.
    pub(super) makes: bool,
    /// Whether sizes that the operands' shapes leave open can be told from their content.
    pub(super) by_data: bool,
    pub(super) writes: Marked,
    /// Numbers that decide on sizes.
    pub(super) sized: Marked,
    pub(super) norm: Option<Norm>,
    /// Positions of the tensors whose gradient PyTorch computes by another formula where ops are watched.
    pub(super) inexact: Vec<usize>,
    /// Positions of results that native code reads by their addresses, with other ops in between.
    pub(super) pointed: Vec<usize>,
    /// When its results depend on the order in which threads happen to work.
    pub(super) unordered: Unordered,
    /// Whether what it makes holds whatever was there before, or what others write to it.
    pub(super) raw: bool,
    /// Whether it overwrites all that it's given to write to, whatever was there.
    pub(super) fills: bool,
    /// Positions of the tensor of which it needs no more than the signs, and of the number that must be 0 for that, if there is one;
    /// and of the one of which it needs no more than the shape.
    pub(super) signs: Option<(usize, Option<usize>)>,
    pub(super) shape: Option<usize>,
}

/// When the results of an op depend on the order in which threads happen to work: then it's not repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unordered {
    Never,
    /// Where there is more than one.
    Threads,
    Always,
}

impl Op {
    fn new(func: &Bound<'_, PyAny>, glue: &Glue) -> PyResult<Op> {
        let told = glue.describe.bind(func.py()).call1((func,))?;
        let way = match told.get_item("way")?.extract::<String>()?.as_str() {
            "metadata" => Way::Metadata,
            "transparent" => Way::Transparent,
            "resize" => Way::Resize,
            _ => Way::Compute,
        };
        let effect = match told.get_item("effect")?.extract::<String>()?.as_str() {
            "pure" => Effect::Pure,
            "seeded" => Effect::Seeded,
            "collective" => Effect::Collective,
            _ => Effect::Once,
        };
        let norm = told.get_item("norm")?.extract::<Option<(Option<usize>, Vec<usize>)>>()?;
        Ok(Op {
            func: func.clone().unbind(),
            call: told.get_item("call")?.unbind(),
            name: told.get_item("name")?.extract()?,
            way,
            effect,
            foreign: told.get_item("foreign")?.extract()?,
            parts: told.get_item("parts")?.extract()?,
            volatile: told.get_item("volatile")?.extract()?,
            makes: told.get_item("makes")?.extract()?,
            by_data: told.get_item("by_data")?.extract()?,
            writes: Marked::new(&told, "writes")?,
            sized: Marked::new(&told, "sized")?,
            norm: norm.map(|(training, running)| Norm { training, running }),
            inexact: told.get_item("inexact")?.extract()?,
            pointed: told.get_item("pointed")?.extract()?,
            unordered: match told.get_item("unordered")?.extract::<String>()?.as_str() {
                "never" => Unordered::Never,
                "threads" => Unordered::Threads,
                _ => Unordered::Always,
            },
            raw: told.get_item("raw")?.extract()?,
            fills: told.get_item("fills")?.extract()?,
            signs: told.get_item("signs")?.extract()?,
            shape: told.get_item("shape")?.extract()?,
        })
    }
}

/// An [`OpProfile`] in Python: its fields, in their order.
pub(super) type Learnt = (Option<Vec<u64>>, u64, bool, u64, bool);

/// What is known of ops, and of their shapes.
#[derive(Default)]
pub(super) struct Ops {
    known: FxHashMap<usize, Arc<Op>>,
    pub(super) profiles: Profiles,
}

/// What earlier engines of this process have learnt.
static KNOWN: Mutex<Option<Ops>> = Mutex::new(None);

/// Takes over what an earlier engine has learnt.
pub(super) fn take_known() -> Ops {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
}

/// Leaves what was learnt to the next engine.
pub(super) fn leave_known(ops: Ops) {
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(ops);
}

impl Ops {
    /// What is known of `func`.
    pub(super) fn op(&mut self, func: &Bound<'_, PyAny>, glue: &Glue) -> PyResult<Arc<Op>> {
        let address = func.as_ptr().addr();
        if let Some(op) = self.known.get(&address) {
            return Ok(Arc::clone(op));
        }
        let op = Arc::new(Op::new(func, glue)?);
        self.known.insert(address, Arc::clone(&op));
        Ok(op)
    }

    /// The profile of a call with `key`; inferred when it is met for the first time.
    pub(super) fn profile(
        &mut self,
        key: &[u64],
        op: &Op,
        args: &Bound<'_, PyAny>,
        kwargs: Option<&Bound<'_, PyDict>>,
        glue: &Glue,
    ) -> PyResult<ProfileId> {
        if let Some(known) = self.profiles.find(key) {
            return Ok(known);
        }
        let told = glue.infer.bind(args.py()).call1((&op.func, args, kwargs))?;
        let (fresh, workspace, guessed): (Option<Vec<u64>>, u64, bool) = told.extract()?;
        let fresh = fresh.map(Arc::from);
        Ok(self.profiles.add(key, OpProfile { fresh, workspace, guessed, ..OpProfile::default() }))
    }

    /// All shapes: name of the op, rest of the key, what is known.
    pub(super) fn export(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<u64>, Learnt)>> {
        let mut rows = Vec::with_capacity(self.profiles.len());
        for (key, profile) in self.profiles.iter() {
            let Some((op, rest)) = key.split_first() else { continue };
            let op = usize::try_from(*op).ok().and_then(|address| self.known.get(&address));
            let Some(op) = op else { continue };
            let OpProfile { fresh, workspace, guessed, time, corrected, .. } = profile.clone();
            let learnt = (fresh.map(|fresh| fresh.to_vec()), workspace, guessed, time, corrected);
            rows.push((op.func.bind(py).str()?.to_string(), rest.to_vec(), learnt));
        }
        Ok(rows)
    }

    /// Adds `rows`, made by [`Ops::export`], each for the op at its place in `ops`. What is known here stays.
    pub(super) fn import(&mut self, ops: &[Py<PyAny>], rows: Vec<(String, Vec<u64>, Learnt)>) {
        for (func, (_, rest, learnt)) in ops.iter().zip(rows) {
            let (fresh, workspace, guessed, time, corrected) = learnt;
            let fresh = fresh.map(Arc::from);
            let profile = OpProfile { fresh, workspace, guessed, time, corrected, ..OpProfile::default() };
            let key: Vec<u64> = std::iter::once(func.as_ptr().addr() as u64).chain(rest).collect();
            self.profiles.learn(&key, profile);
        }
    }
}
