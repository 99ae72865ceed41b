//! Copies of a device that has streams, by their numbers: those in pinned host memory, which `memfit.torch._pinned.Copies` makes beside
//! ops, and encoded ones in the device's own, which `memfit.torch._coded.Coded` makes by ops.

use std::collections::BTreeMap;

use memfit::engine::{HostError, StorageId, Wanted};
use memfit::ir::{Bytes, Form, Tier};
use pyo3::prelude::*;

/// Numbers of these copies have this bit; those on a shelf count from one.
const OURS: u64 = 1 << 63;

/// Numbers of the encoded ones have this one as well.
const CODED: u64 = 1 << 62;

/// The copies of a device that has streams.
pub(super) struct Pinned {
    moved: Option<Py<PyAny>>,
    coded: Option<Py<PyAny>>,
    /// What is being filled, by the copy that it is filled from.
    filling: BTreeMap<u64, StorageId>,
}

impl Pinned {
    /// None where there is neither.
    pub(super) fn new(moved: Option<Py<PyAny>>, coded: Option<Py<PyAny>>) -> Option<Pinned> {
        let is_any = moved.is_some() || coded.is_some();
        is_any.then(|| Pinned { moved, coded, filling: BTreeMap::new() })
    }

    /// Whether copies of this form are made here.
    pub(super) fn makes(&self, form: Form) -> bool {
        match form {
            Form::Tier(Tier::Host) => self.moved.is_some(),
            Form::Encoded(_) => self.coded.is_some(),
            _ => false,
        }
    }

    /// Who has `copy`, or makes one of those.
    fn maker<'a, 'py>(&'a self, py: Python<'py>, copy: u64) -> Result<&'a Bound<'py, PyAny>, HostError> {
        let maker = if copy & CODED == 0 { &self.moved } else { &self.coded };
        let none = || HostError("there is no memory for copies".to_owned());
        maker.as_ref().map(|maker| maker.bind(py)).ok_or_else(none)
    }

    /// Whether `copy` is one of these.
    pub(super) fn has(copy: u64) -> bool {
        copy & OURS != 0
    }

    /// Begins a copy of `storage`.
    ///
    /// # Errors
    ///
    /// If there is no room, it can't be kept as it's wanted, or the device failed.
    pub(super) fn store(&self, storage: &Bound<'_, PyAny>, wanted: Wanted) -> Result<u64, HostError> {
        let codec = wanted.form.codec();
        let ours = if codec.is_some() { OURS | CODED } else { OURS };
        let maker = self.maker(storage.py(), ours)?;
        let told = match codec {
            Some(codec) => maker.call_method1("store", (storage, codec.name(), wanted.key)),
            None => maker.call_method1("store", (storage,)),
        };
        let number = told.and_then(|number| number.extract::<Option<u64>>()).map_err(failed)?;
        let none = || HostError("pinned host memory has no room for another copy".to_owned());
        number.map(|number| number | ours).ok_or_else(none)
    }

    /// Bytes of an encoded copy.
    pub(super) fn taken(&self, py: Python<'_>, copy: u64) -> Option<Bytes> {
        let taken = self.maker(py, copy).ok()?.call_method1("taken", (number(copy),)).ok()?;
        taken.extract().ok().map(Bytes)
    }

    /// Begins to fill a new storage from `copy`, for `of`.
    ///
    /// # Errors
    ///
    /// If there is no such copy, no memory, or the device failed.
    pub(super) fn load(&mut self, py: Python<'_>, copy: u64, of: Option<StorageId>) -> Result<(), HostError> {
        self.maker(py, copy)?.call_method1("load", (number(copy),)).map_err(failed)?;
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
        let filled = self.maker(py, copy)?.call_method1("wait", (number(copy),)).map_err(failed)?;
        let of = self.filling.remove(&copy);
        Ok(of.filter(|_| !filled.is_none()).map(|of| (filled, of)))
    }

    /// Forgets `copy`.
    pub(super) fn discard(&mut self, py: Python<'_>, copy: u64) {
        self.filling.remove(&copy);
        // What fails here is the device, and the next op says so.
        let _ = self.maker(py, copy).map(|maker| maker.call_method1("discard", (number(copy),)));
    }
}

/// What Python calls `copy`.
fn number(copy: u64) -> u64 {
    copy & !(OURS | CODED)
}

fn failed(error: PyErr) -> HostError {
    HostError(error.to_string())
}
