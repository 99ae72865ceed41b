//! Looking through the objects of the interpreter: a loop in Python over some hundred thousand takes a quarter of a second.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

/// Objects that are asked for their referents at a time.
const BATCH: usize = 1 << 14;
/// `Py_TPFLAGS_HAVE_GC`: instances of other types refer to nothing.
const HAVE_GC: u64 = 1 << 14;

/// What is known of types, by address. They are all kept alive by the objects at hand.
struct Types<'a, 'py> {
    wanted: &'a Bound<'py, PyTuple>,
    known: FxHashMap<usize, Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wanted,
    /// May refer to others.
    Container,
    Plain,
}

impl Types<'_, '_> {
    fn of(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Kind> {
        let address = object.get_type_ptr().addr();
        if let Some(&kind) = self.known.get(&address) {
            return Ok(kind);
        }
        let kind = object.get_type();
        let mut told = Kind::Plain;
        if (self.wanted.iter_borrowed()).any(|wanted| {
            wanted.cast::<PyType>().is_ok_and(|wanted| kind.is_subclass(&wanted).unwrap_or(false))
        }) {
            told = Kind::Wanted;
        } else if kind.getattr("__flags__")?.extract::<u64>()? & HAVE_GC != 0 {
            told = Kind::Container;
        }
        self.known.insert(address, told);
        Ok(told)
    }
}

/// Those of `objects` that are instances of one of the types in `kinds`.
#[pyfunction]
fn instances<'py>(
    objects: &Bound<'py, PyList>,
    kinds: &Bound<'py, PyTuple>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut types = Types { wanted: kinds, known: FxHashMap::default() };
    let mut found = Vec::new();
    for object in objects.iter() {
        if types.of(&object)? == Kind::Wanted {
            found.push(object);
        }
    }
    Ok(found)
}

/// The instances of `kinds` that can be reached from `roots`, by what the collector knows of references.
#[pyfunction]
fn reachable<'py>(
    roots: &Bound<'py, PyList>,
    kinds: &Bound<'py, PyTuple>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = roots.py();
    let referents = py.import("gc")?.getattr("get_referents")?;
    let mut types = Types { wanted: kinds, known: FxHashMap::default() };
    let mut seen = FxHashSet::default();
    let mut found = Vec::new();
    // Held to the end, so that no address is that of two.
    let mut all: Vec<Bound<'py, PyAny>> = Vec::new();
    let mut enter = |object: Bound<'py, PyAny>, all: &mut Vec<Bound<'py, PyAny>>| -> PyResult<()> {
        let kind = types.of(&object)?;
        if kind != Kind::Plain && seen.insert(object.as_ptr().addr()) {
            if kind == Kind::Wanted {
                found.push(object.clone());
            }
            all.push(object);
        }
        Ok(())
    };
    for root in roots.iter() {
        enter(root, &mut all)?;
    }
    let mut done = 0;
    while done < all.len() {
        let batch = PyTuple::new(py, &all[done..all.len().min(done + BATCH)])?;
        done += batch.len();
        for object in referents.call1(batch)?.cast::<PyList>()?.iter() {
            enter(object, &mut all)?;
        }
    }
    Ok(found)
}

/// Adds both functions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(instances, module)?)?;
    module.add_function(wrap_pyfunction!(reachable, module)?)
}
