//! Where the bytes of the engine's storages are: in a storage of PyTorch's that somebody else owns, or in one of ours.

use std::sync::{Arc, Mutex, PoisonError};

use memfit::ir::Dtype;
use pyo3::prelude::*;
use pyo3::types::{PyWeakref, PyWeakrefMethods, PyWeakrefReference};

use super::glue::Glue;
use super::unseen::Version;

/// Tells a storage of PyTorch's from all that had its address before.
pub(super) type Token = u64;

/// Storages that have died since somebody looked.
pub(super) type Dead = Arc<Mutex<Vec<(usize, Token)>>>;

/// Called when a storage dies, in whatever thread and at whatever moment: it only takes a note.
#[pyclass(frozen)]
struct Mourner {
    dead: Dead,
    address: usize,
    token: Token,
}

#[pymethods]
impl Mourner {
    fn __call__(&self, _reference: &Bound<'_, PyAny>) {
        let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        dead.push((self.address, self.token));
    }
}

/// Who holds the storage whose current content this is.
#[derive(Default)]
pub(super) enum Owner {
    /// Nobody: an older version, or one whose owner is gone.
    #[default]
    Nobody,
    /// The program alone: its death is noticed.
    Program(Py<PyWeakref>),
    /// The program, and the host: the bytes must outlive the program's last reference.
    Both(Py<PyAny>),
}

/// One storage of the engine.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) owner: Owner,
    /// Bytes that are not in the owner's storage.
    pub(super) own: Option<Py<PyAny>>,
    /// Whether the owner's storage is hollow now.
    pub(super) hollow: bool,
    /// Whether the program has written to it unseen.
    pub(super) version: Version,
    /// Where the bytes of a source are.
    pub(super) pointer: Option<usize>,
    /// What its elements are, if somebody asked when it was made.
    pub(super) dtype: Option<Dtype>,
}

impl Slot {
    /// The owner's storage, if it lives.
    pub(super) fn owned<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &self.owner {
            Owner::Nobody => None,
            Owner::Program(reference) => reference.bind(py).upgrade(),
            Owner::Both(storage) => Some(storage.bind(py).clone()),
        }
    }

    /// The storage that holds the bytes.
    pub(super) fn bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &self.own {
            Some(own) => Some(own.bind(py).clone()),
            None if self.hollow => None,
            None => self.owned(py),
        }
    }

    /// The bytes are in `source` from now on, or are swapped into the owner's storage.
    pub(super) fn fill(&mut self, source: Bound<'_, PyAny>, glue: &Glue) -> PyResult<()> {
        let py = source.py();
        match self.owned(py) {
            Some(owned) => {
                glue.refill.bind(py).call1((owned, source))?;
                self.hollow = false;
            }
            None => self.own = Some(source.unbind()),
        }
        Ok(())
    }

    /// The bytes go.
    pub(super) fn empty(&mut self, py: Python<'_>, glue: &Glue) -> PyResult<()> {
        if self.own.take().is_some() || self.hollow {
            return Ok(());
        }
        if let Some(owned) = self.owned(py) {
            glue.evict.bind(py).call1((owned,))?;
            self.hollow = true;
        }
        Ok(())
    }

    /// From now on the bytes are the program's alone.
    pub(super) fn let_go(&mut self, py: Python<'_>, token: Token, dead: &Dead) -> PyResult<()> {
        if let Owner::Both(storage) = &self.owner {
            self.owner = watch(storage.bind(py), token, dead)?;
        }
        Ok(())
    }

    /// From now on the bytes outlive the program's last reference.
    pub(super) fn hold(&mut self, py: Python<'_>) {
        if matches!(self.owner, Owner::Program(_))
            && let Some(owned) = self.owned(py)
        {
            self.owner = Owner::Both(owned.unbind());
        }
    }
}

/// Watches `storage`: its death is noted in `dead`.
pub(super) fn watch(storage: &Bound<'_, PyAny>, token: Token, dead: &Dead) -> PyResult<Owner> {
    let mourner = Mourner { dead: Arc::clone(dead), address: storage.as_ptr().addr(), token };
    let mourner = Bound::new(storage.py(), mourner)?;
    let reference = PyWeakrefReference::new_with(storage, mourner)?;
    Ok(Owner::Program(reference.into_any().cast_into::<PyWeakref>()?.unbind()))
}
