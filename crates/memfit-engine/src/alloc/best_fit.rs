//! The smallest free range that is large enough, split, and joined again with its neighbours.
//!
//! Source: folklore; Knuth, "The Art of Computer Programming" 1, §2.5. Ranges are exact multiples of the alignment.
//! Small requests come from the bottom, those over a 64th of the arena from the top of their gap, so that small
//! long-lived ranges don't break up the room of large ones. Ties go to the lowest gap. O(log n). Wrong choice where
//! many sizes alternate: see `bfc.rs`.

use memfit_ir::Bytes;

use super::gaps::Gaps;
use super::{Allocator, Info};

pub(super) const INFO: Info = Info {
    name: "best-fit",
    summary: "smallest free range, large requests from its top",
    source: "folklore; Knuth, The Art of Computer Programming 1",
    year: 1968,
};

pub(super) fn make(capacity: Bytes, align: Bytes) -> Box<dyn Allocator> {
    let align = align.0.max(1);
    let capacity = capacity.0 / align * align;
    Box::new(BestFit { gaps: Gaps::of(capacity), capacity, align, large: capacity / 64 })
}

struct BestFit {
    gaps: Gaps,
    capacity: u64,
    align: u64,
    large: u64,
}

impl BestFit {
    fn round(&self, size: u64) -> u64 {
        Bytes(size).round_up(Bytes(self.align)).0
    }
}

impl Allocator for BestFit {
    fn allocate(&mut self, size: u64) -> Option<u64> {
        if size == 0 {
            return Some(0);
        }
        let size = self.round(size);
        let (offset, room) = self.gaps.best(size)?;
        let at = if size > self.large { offset + (room - size) } else { offset };
        self.gaps.take(at, size).then_some(at)
    }

    fn allocate_at(&mut self, offset: u64, size: u64) -> bool {
        size == 0 || (offset.is_multiple_of(self.align) && self.gaps.take(offset, self.round(size)))
    }

    fn release(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.gaps.give(offset, self.round(size));
        }
    }

    fn addresses(&self) -> Option<u64> {
        Some(self.capacity)
    }

    fn free_around(&self, offset: u64, size: u64) -> (u64, u64) {
        self.gaps.around(offset, offset + self.round(size))
    }

    fn largest_free(&self) -> u64 {
        self.gaps.largest()
    }
}
