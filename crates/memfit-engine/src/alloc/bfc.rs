//! Best fit with coalescing, as TensorFlow's: sizes in multiples of 256 bytes, a chunk is split only if much is left.
//!
//! Source: TensorFlow, `bfc_allocator.cc` (2015), which derives from dlmalloc. Here the arena is one region, and bins
//! are a search by size, which finds what the first fitting bin would. A chunk is split if it is twice as large as
//! asked or 128 MiB would be wasted. Ties go to the lowest address. O(log n). Wrong choice where sizes are tight.

use std::collections::BTreeMap;

use memfit_ir::Bytes;

use super::gaps::Gaps;
use super::{Allocator, Info};

pub(super) const INFO: Info = Info {
    name: "bfc",
    summary: "best fit with coalescing, chunks split only if much is left",
    source: "TensorFlow, bfc_allocator.cc",
    year: 2015,
};

const QUANTUM: u64 = 256;
const MOST_WASTE: u64 = 128 << 20;

pub(super) fn make(capacity: Bytes, align: Bytes) -> Box<dyn Allocator> {
    let quantum = align.0.max(1).next_multiple_of(if capacity.0 < QUANTUM * 64 { 1 } else { QUANTUM });
    let capacity = capacity.0 / quantum * quantum;
    Box::new(Bfc { gaps: Gaps::of(capacity), capacity, quantum, wasted: BTreeMap::new() })
}

struct Bfc {
    gaps: Gaps,
    capacity: u64,
    quantum: u64,
    /// For ranges that were not split: their true size.
    wasted: BTreeMap<u64, u64>,
}

impl Bfc {
    fn held(&self, offset: u64, size: u64) -> u64 {
        let rounded = Bytes(size).round_up(Bytes(self.quantum)).0;
        self.wasted.get(&offset).copied().unwrap_or(rounded)
    }
}

impl Allocator for Bfc {
    fn allocate(&mut self, size: u64) -> Option<u64> {
        if size == 0 {
            return Some(0);
        }
        let rounded = Bytes(size).round_up(Bytes(self.quantum)).0;
        let (offset, room) = self.gaps.best(rounded)?;
        let split = room >= rounded.saturating_mul(2) || room - rounded >= MOST_WASTE;
        let taken = if split { rounded } else { room };
        if taken != rounded {
            self.wasted.insert(offset, taken);
        }
        self.gaps.take(offset, taken).then_some(offset)
    }

    fn allocate_at(&mut self, offset: u64, size: u64) -> bool {
        let rounded = Bytes(size).round_up(Bytes(self.quantum)).0;
        size == 0 || (offset.is_multiple_of(self.quantum) && self.gaps.take(offset, rounded))
    }

    fn release(&mut self, offset: u64, size: u64) {
        if size > 0 {
            let held = self.held(offset, size);
            self.wasted.remove(&offset);
            self.gaps.give(offset, held);
        }
    }

    fn addresses(&self) -> Option<u64> {
        Some(self.capacity)
    }

    fn free_around(&self, offset: u64, size: u64) -> (u64, u64) {
        self.gaps.around(offset, offset + self.held(offset, size))
    }

    fn largest_free(&self) -> u64 {
        self.gaps.largest()
    }
}
