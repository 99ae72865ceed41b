//! The bytes of a storage in the memory of the process, for the thread that copies: it takes no lock of Python's.
#![allow(unsafe_code, reason = "bytes of another library's are read and written by their address")]

use memfit::engine::StorageId;
use memfit::tiers::Kept;
use pyo3::prelude::*;

use super::glue::{Glue, size};

/// What a shelf of PyTorch's storages keeps.
pub(super) struct Storages;

impl Kept for Storages {
    type Of = ();
    type From = Raw;
    type Into = Raw;
}

/// The bytes of a storage that lies in the memory of the process, which lives as long as this.
pub(super) struct Raw {
    /// The storage, and which of the engine's its bytes are for.
    pub(super) storage: Py<PyAny>,
    pub(super) of: Option<StorageId>,
    pointer: *mut u8,
    len: usize,
}

// SAFETY: it is one range of bytes, which the storage keeps alive. The engine lets nobody write to what is copied before the
// copy has been waited for, nor read what is filled; and the storage itself is touched with Python's lock alone.
unsafe impl Send for Raw {}

impl Raw {
    /// The bytes of `storage`; `None` if they are not in the memory of the process.
    pub(super) fn of(
        storage: &Bound<'_, PyAny>,
        glue: &Glue,
        of: Option<StorageId>,
    ) -> PyResult<Option<Raw>> {
        let len = usize::try_from(size(storage)?).unwrap_or(0);
        let Some(pointer) = glue.pointer_of(storage).filter(|&pointer| pointer != 0 || len == 0) else {
            return Ok(None);
        };
        let pointer = std::ptr::with_exposed_provenance_mut(pointer);
        Ok(Some(Raw { storage: storage.clone().unbind(), of, pointer, len }))
    }
}

impl AsRef<[u8]> for Raw {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: see above; `pointer` and `len` are those of a storage that is alive and has its bytes there.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }
}

impl AsMut<[u8]> for Raw {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as above; what is filled is new, and nobody else knows it.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}
