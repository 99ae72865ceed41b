//! One step of bookkeeping at a time.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::dispatch::Inner;

/// Holds the engine for one call.
pub(super) struct Within<'a> {
    pub(super) guard: MutexGuard<'a, Option<Inner>>,
    pub(super) within: &'a AtomicUsize,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.within.store(0, Ordering::Relaxed);
    }
}

impl Within<'_> {
    /// The engine, once what has died is forgotten.
    pub(super) fn inner(&mut self) -> PyResult<&mut Inner> {
        let gone = || PyRuntimeError::new_err("memfit is not enabled any more");
        let inner = self.guard.as_mut().ok_or_else(gone)?;
        inner.drain()?;
        Ok(inner)
    }
}
