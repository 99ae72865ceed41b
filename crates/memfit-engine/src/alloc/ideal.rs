//! Counts bytes only: what every allocator would reach if nothing were ever in the wrong place.
//!
//! Source: DTR's simulator (ICLR 2021). Gives no addresses, so its log has no layout. O(1). Wrong choice for anything
//! that has to run.

use memfit_ir::Bytes;

use super::{Allocator, Info};

pub(super) const INFO: Info = Info {
    name: "ideal",
    summary: "counts bytes, without addresses",
    source: "Kirisame et al., the simulator of DTR",
    year: 2021,
};

pub(super) fn make(capacity: Bytes, _align: Bytes) -> Box<dyn Allocator> {
    Box::new(Ideal { free: capacity.0 })
}

struct Ideal {
    free: u64,
}

impl Allocator for Ideal {
    fn allocate(&mut self, size: u64) -> Option<u64> {
        self.free = self.free.checked_sub(size)?;
        Some(0)
    }

    fn allocate_at(&mut self, _offset: u64, size: u64) -> bool {
        self.allocate(size).is_some()
    }

    fn release(&mut self, _offset: u64, size: u64) {
        self.free += size;
    }

    fn addresses(&self) -> Option<u64> {
        None
    }

    fn free_around(&self, _offset: u64, _size: u64) -> (u64, u64) {
        (0, 0)
    }

    fn largest_free(&self) -> u64 {
        self.free
    }
}
