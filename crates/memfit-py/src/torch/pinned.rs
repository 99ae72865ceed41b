//! Copies in pinned host memory, which `memfit.torch._pinned.Copies` makes beside ops; by their numbers.

use std::collections::BTreeMap;

use memfit::engine::{HostError, StorageId};
use pyo3::prelude::*;

/// Numbers of these copies have this bit; those on a shelf count from one.
const OURS: u64 = 1 << 63;

/// The copies of a device that has streams.
pub(super) struct Pinned {
    copies: Py<PyAny>,
    /// What is being filled, by the copy that it is filled from.
    filling: BTreeMap<u64, StorageId>,
}

impl Pinned {
    pub(super) fn new(copies: Py<PyAny>) -> Pinned {
        Pinned { copies, filling: BTreeMap::new() }
    }

    /// Whether `copy` is one of these.
    pub(super) fn has(copy: u64) -> bool {
        copy & OURS != 0
    }

    /// Begins a copy of `storage`.
    ///
    /// # Errors
    ///
    /// If there is no room, or the device failed.
    pub(super) fn store(&self, storage: &Bound<'_, PyAny>) -> Result<u64, HostError> {
        let told = self.copies.bind(storage.py()).call_method1("store", (storage,));
        let number = told.and_then(|number| number.extract::<Option<u64>>()).map_err(failed)?;
        let none = || HostError("pinned host memory has no room for another copy".to_owned());
        number.map(|number| number | OURS).ok_or_else(none)
    }

    /// Begins to fill a new storage from `copy`, for `of`.
    ///
    /// # Errors
    ///
    /// If there is no such copy, no memory, or the device failed.
    pub(super) fn load(&mut self, py: Python<'_>, copy: u64, of: Option<StorageId>) -> Result<(), HostError> {
        self.copies.bind(py).call_method1("load", (copy & !OURS,)).map_err(failed)?;
        self.filling.extend(of.map(|of| (copy, of)));
        Ok(())
    }

    /// Has ops wait for what is under way with `copy`; what was filled, if anything was, and for which storage.
    ///
    /// # Errors
    ///
    /// If there is no such copy, or the device failed.
    pub(super) fn wait<'py>(
        &mut self,
        py: Python<'py>,
        copy: u64,
    ) -> Result<Option<(Bound<'py, PyAny>, StorageId)>, HostError> {
        let filled = self.copies.bind(py).call_method1("wait", (copy & !OURS,)).map_err(failed)?;
        let of = self.filling.remove(&copy);
        Ok(of.filter(|_| !filled.is_none()).map(|of| (filled, of)))
    }

    /// Forgets `copy`.
    pub(super) fn discard(&mut self, py: Python<'_>, copy: u64) {
        self.filling.remove(&copy);
        // What fails here is the device, and the next op says so.
        let _ = self.copies.bind(py).call_method1("discard", (copy & !OURS,));
    }
}

fn failed(error: PyErr) -> HostError {
    HostError(error.to_string())
}
