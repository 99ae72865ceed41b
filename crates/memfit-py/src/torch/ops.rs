//! What is known of each op, and of each op with operands of given shapes.

use std::sync::{Arc, Mutex, PoisonError};

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
        })
    }
}

/// What an op makes of operands of given shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// Bytes of each storage it makes, in the order of its results; `None` if they depend on the data.
    pub(super) fresh: Option<Arc<[u64]>>,
    /// Scratch bytes.
    pub(super) workspace: u64,
    /// Whether the scratch bytes are only a bound.
    pub(super) guessed: bool,
    /// Ns, as last measured.
    pub(super) time: u64,
    /// Whether its results turned out to have other sizes than was inferred.
    pub(super) corrected: bool,
}

impl Shape {
    /// That of an op without results.
    pub(super) fn nothing() -> Shape {
        Shape { fresh: Some(Arc::default()), ..Shape::default() }
    }
}

/// A [`Shape`] in Python: its fields, in their order.
pub(super) type Learnt = (Option<Vec<u64>>, u64, bool, u64, bool);

/// The tables.
#[derive(Default)]
pub(super) struct Ops {
    known: FxHashMap<usize, Arc<Op>>,
    /// Numbers of the shapes that were met lately, and of those met before that.
    young: FxHashMap<Box<[u64]>, u32>,
    old: FxHashMap<Box<[u64]>, u32>,
    pub(super) table: Vec<Shape>,
    free: Vec<u32>,
}

/// Shapes of one generation. When there are as many, those are forgotten that were not met since the last time.
const GENERATION: usize = 1 << 13;

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

    /// The number of the shape of a call with `key`; inferred when it is met for the first time.
    pub(super) fn shape(
        &mut self,
        key: &[u64],
        op: &Op,
        args: &Bound<'_, PyAny>,
        kwargs: Option<&Bound<'_, PyDict>>,
        glue: &Glue,
    ) -> PyResult<u32> {
        if let Some(&shape) = self.young.get(key) {
            return Ok(shape);
        }
        if let Some((key, shape)) = self.old.remove_entry(key) {
            self.enter(key, shape);
            return Ok(shape);
        }
        let told = glue.infer.bind(args.py()).call1((&op.func, args, kwargs))?;
        let (fresh, workspace, guessed): (Option<Vec<u64>>, u64, bool) = told.extract()?;
        let shape = Shape { fresh: fresh.map(Arc::from), workspace, guessed, ..Shape::default() };
        let number = self.number(shape);
        self.enter(key.into(), number);
        Ok(number)
    }

    /// How many shapes are known.
    pub(super) fn shapes(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// A row for `shape`.
    fn number(&mut self, shape: Shape) -> u32 {
        if let Some(free) = self.free.pop() {
            self.table[free as usize] = shape;
            return free;
        }
        self.table.push(shape);
        u32::try_from(self.table.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that the shape with `key` has been met.
    fn enter(&mut self, key: Box<[u64]>, number: u32) {
        if self.young.len() >= GENERATION {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.free.extend(old.into_values());
        }
        self.young.insert(key, number);
    }

    /// All shapes, by number: name of the op, rest of the key, what is known.
    pub(super) fn export(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<u64>, Learnt)>> {
        let mut rows = vec![(String::new(), Vec::new(), Learnt::default()); self.table.len()];
        #[allow(clippy::iter_over_hash_type, reason = "each goes to the row of its number")]
        for (key, &number) in self.old.iter().chain(&self.young) {
            let Some((op, rest)) = key.split_first() else { continue };
            let op = usize::try_from(*op).ok().and_then(|address| self.known.get(&address));
            let (Some(op), Some(shape)) = (op, self.table.get(number as usize)) else { continue };
            let Shape { fresh, workspace, guessed, time, corrected } = shape.clone();
            let name = op.func.bind(py).str()?.to_string();
            let learnt = (fresh.map(|fresh| fresh.to_vec()), workspace, guessed, time, corrected);
            rows[number as usize] = (name, rest.to_vec(), learnt);
        }
        Ok(rows)
    }

    /// Adds `rows`, made by [`Ops::export`], each for the op at its place in `ops`. What is known here stays.
    pub(super) fn import(&mut self, ops: &[Py<PyAny>], rows: Vec<(String, Vec<u64>, Learnt)>) {
        for (func, (_, rest, learnt)) in ops.iter().zip(rows) {
            let (fresh, workspace, guessed, time, corrected) = learnt;
            let shape = Shape { fresh: fresh.map(Arc::from), workspace, guessed, time, corrected };
            let key: Box<[u64]> = std::iter::once(func.as_ptr().addr() as u64).chain(rest).collect();
            match self.young.get(&key).or_else(|| self.old.get(&key)) {
                Some(&number) if self.table[number as usize].guessed => self.table[number as usize] = shape,
                Some(_) => {}
                None => {
                    let number = self.number(shape);
                    self.enter(key, number);
                }
            }
        }
    }
}
