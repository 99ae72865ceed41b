//! What there is of the disk: a [scratch file](crate::scratch), and which of its ranges are free.
//!
//! Copies lie at multiples of a page. A copy's range is free again when the copy is dropped. The file never grows beyond the
//! budget of the disk.

use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memfit_engine::HostError;
use memfit_engine::alloc::{self, Allocator};
use memfit_ir::Bytes;
use rustc_hash::FxHasher;

use crate::scratch::{ALIGN, Scratch};

/// The directory can't be used for copies.
#[derive(Debug, thiserror::Error)]
#[error("copies can't be written to `{}`: {source}", directory.display())]
pub struct SpillError {
    /// The directory.
    pub directory: PathBuf,
    /// Why.
    pub source: std::io::Error,
}

/// See the head of this file.
#[derive(Clone)]
pub(crate) struct Spill {
    file: Arc<Scratch>,
    directory: PathBuf,
    free: Arc<Mutex<Box<dyn Allocator>>>,
}

/// A range of the file; free again when dropped.
pub(crate) struct Extent {
    offset: u64,
    size: u64,
    /// Of what was written: a file that was cut and grew again has zeros there.
    sum: AtomicU64,
    spill: Spill,
}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {}", self.size, self.offset)
    }
}

impl Spill {
    /// A file of at most `capacity` bytes in `directory`.
    pub(crate) fn new(directory: &Path, capacity: Bytes) -> Result<Spill, SpillError> {
        let failed = |source| SpillError { directory: directory.to_owned(), source };
        let file = Scratch::new(directory).map_err(failed)?;
        let best_fit = alloc::by_name("best-fit");
        let best_fit = best_fit.ok_or_else(|| failed(std::io::Error::other("no allocator for it")))?;
        let free = (best_fit.make)(capacity, Bytes(ALIGN as u64));
        Ok(Spill { file: Arc::new(file), directory: directory.to_owned(), free: Arc::new(Mutex::new(free)) })
    }

    /// A range for `size` bytes.
    pub(crate) fn take(&self, size: usize) -> Result<Extent, HostError> {
        let size = size as u64;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || {
            HostError(format!(
                "the spill file in `{}` has no room for `{size}` bytes in one piece",
                self.directory.display()
            ))
        };
        let offset = free.allocate(size).ok_or_else(none)?;
        Ok(Extent { offset, size, sum: AtomicU64::new(0), spill: self.clone() })
    }

    fn failed(&self, what: &str, size: usize, error: &std::io::Error) -> HostError {
        let directory = self.directory.display();
        HostError(format!("{what} `{size}` bytes of the spill file in `{directory}` failed: {error}"))
    }
}

impl Extent {
    /// Writes `bytes`, as many as it was taken for.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), HostError> {
        self.sum.store(sum(bytes), Ordering::Relaxed);
        let written = self.spill.file.write(bytes, self.offset);
        written.map_err(|error| self.spill.failed("writing", bytes.len(), &error))
    }

    /// Reads as many bytes as there is room for.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<(), HostError> {
        let read = self.spill.file.read(bytes, self.offset);
        let read = read.and_then(|()| match sum(bytes) == self.sum.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(std::io::Error::other("the bytes are not those that were written")),
        });
        read.map_err(|error| self.spill.failed("reading", bytes.len(), &error))
    }
}

/// Of so many bytes and their order: no guard against intent.
fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut free = self.spill.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.release(self.offset, self.size);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn ranges_are_written_read_and_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let spill = Spill::new(directory.path(), Bytes(3 * 4096)).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let one = spill.take(5000).unwrap();
        let two = spill.take(100).unwrap();
        one.write(&[1; 5000]).unwrap();
        two.write(&[2; 100]).unwrap();
        let mut back = [0; 5000];
        one.read(&mut back).unwrap();
        assert_eq!(back, [1; 5000]);
        assert!(spill.take(1).unwrap_err().to_string().contains("no room for `1` bytes"));
        drop(one);
        assert!(spill.take(8192).is_ok());
        assert!(spill.file.file().metadata().unwrap().len() <= 3 * 4096);
        // Cut under it: the read says so, also when the file has grown again.
        two.read(&mut [0; 100]).unwrap();
        spill.file.file().set_len(10).unwrap();
        let error = two.read(&mut [0; 100]).unwrap_err().to_string();
        spill.file.file().set_len(1 << 14).unwrap();
        let grown = two.read(&mut [0; 100]).unwrap_err().to_string();
        assert!(grown.ends_with("failed: the bytes are not those that were written"), "{grown}");
        assert!(error.starts_with("reading `100` bytes of the spill file in "), "{error}");
        let none = Spill::new(&directory.path().join("none"), Bytes(1)).err().unwrap().to_string();
        assert!(none.contains("none") && none.contains("No such file"), "{none}");
    }
}
