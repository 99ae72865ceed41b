//! Host memory for copies: buffers of exact sizes, used again by later copies of the same size.
//!
//! A step that repeats stores the same sizes again and again, so after the first one no memory is asked for, no page is new,
//! and nothing is rounded up. What is in use and what is kept for later stay within the pool's size together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pool of host memory.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    capacity: usize,
    used: usize,
    spare: usize,
    /// Buffers that nobody uses, by their capacity.
    spares: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// Memory of the pool, empty or filled; goes back to it when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    size: usize,
    pool: Pool,
}

impl Pool {
    /// A pool of at most `capacity` bytes, of which none is taken yet.
    pub(crate) fn new(capacity: usize) -> Pool {
        let shared = Shared { capacity, used: 0, spare: 0, spares: BTreeMap::new() };
        Pool { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Room for `size` bytes; `None` if there is none.
    pub(crate) fn take(&self, size: usize) -> Option<Buffer> {
        let mut shared = self.shared();
        let used = shared.used.checked_add(size).filter(|&used| used <= shared.capacity)?;
        let bytes = shared.spare_of(size).unwrap_or_default();
        let capacity = shared.capacity;
        shared.shrink_to(capacity - used);
        shared.used = used;
        drop(shared);
        Some(Buffer { bytes, size, pool: self.clone() })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// A spare buffer of exactly `size` bytes.
    fn spare_of(&mut self, size: usize) -> Option<Vec<u8>> {
        let row = self.spares.get_mut(&size)?;
        let found = row.pop();
        if row.is_empty() {
            self.spares.remove(&size);
        }
        if found.is_some() {
            self.spare -= size;
        }
        found
    }

    /// Gives spare buffers back to the system, the smallest first, until they take `most` bytes at most.
    fn shrink_to(&mut self, most: usize) {
        while self.spare > most
            && let Some((&size, _)) = self.spares.first_key_value()
        {
            drop(self.spare_of(size));
        }
    }
}

impl Buffer {
    /// Fills it with `bytes`, as many as it was taken for.
    ///
    /// # Errors
    ///
    /// If the machine has no memory for them.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes.clear();
        let none = |_| format!("the machine has no memory for a copy of `{}` bytes", bytes.len());
        self.bytes.try_reserve_exact(bytes.len()).map_err(none)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut shared = self.pool.shared();
        shared.used -= self.size;
        if bytes.capacity() == self.size && self.size > 0 {
            shared.spare += self.size;
            shared.spares.entry(self.size).or_default().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// Bytes in use, and bytes that are kept.
    fn taken(pool: &Pool) -> (usize, usize) {
        let shared = pool.shared();
        (shared.used, shared.spare)
    }

    #[test]
    fn what_is_used_and_what_is_kept_stay_within_the_pool() {
        let pool = Pool::new(100);
        let mut one = pool.take(60).unwrap();
        one.fill(&[7; 60]).unwrap();
        assert!(pool.take(41).is_none());
        let address = one.bytes().as_ptr().addr();
        drop(one);
        assert_eq!(taken(&pool), (0, 60));
        // The same memory again.
        let mut again = pool.take(60).unwrap();
        again.fill(&[8; 60]).unwrap();
        assert_eq!((again.bytes().as_ptr().addr(), again.bytes()), (address, &[8; 60][..]));
        drop(again);
        // Another size: what is kept goes, as far as it has to.
        let other = pool.take(50).unwrap();
        assert_eq!(taken(&pool), (50, 0));
        drop(other);
        assert!(pool.take(101).is_none() && pool.take(usize::MAX).is_none());
    }
}
