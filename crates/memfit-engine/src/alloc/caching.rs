//! PyTorch's caching allocator: segments of the device, blocks within segments, never moved between them.
//!
//! Source: PyTorch, `c10/cuda/CUDACachingAllocator.cpp`. Sizes in multiples of 512 bytes. Requests up to 1 MiB share
//! segments of 2 MiB, those below 10 MiB segments of 20 MiB, larger ones get a segment in multiples of 2 MiB. Blocks
//! are split and joined inside their segment; from large segments only if more than 1 MiB is left. When the device has
//! no room for a new segment, wholly free segments are given back; what is held beyond need is fragmentation. Arenas
//! under 64 MiB use a 1024th of these sizes, so that small ones show the same behaviour. Ties go to the lowest address.
//! O(segments). Wrong choice for a hard budget: it is here to be compared with.

use std::collections::BTreeMap;

use memfit_ir::Bytes;

use super::gaps::Gaps;
use super::{Allocator, Info};

pub(super) const INFO: Info = Info {
    name: "caching",
    summary: "PyTorch's segments and blocks",
    source: "PyTorch, CUDACachingAllocator.cpp",
    year: 2017,
};

pub(super) fn make(capacity: Bytes, align: Bytes) -> Box<dyn Allocator> {
    let scale = if capacity.0 < 64 << 20 { 1024 } else { 1 };
    let quantum = Bytes((512 / scale).max(1)).round_up(align).0.max(1);
    let unit = |bytes: u64| Bytes(bytes / scale).round_up(Bytes(quantum)).0;
    let capacity = capacity.0 / quantum * quantum;
    Box::new(Caching {
        device: Gaps::of(capacity),
        segments: BTreeMap::new(),
        blocks: BTreeMap::new(),
        capacity,
        quantum,
        small: unit(1 << 20),
        segment_small: unit(2 << 20),
        medium: unit(10 << 20),
        segment_medium: unit(20 << 20),
        granule: unit(2 << 20),
    })
}

struct Caching {
    /// Device memory in no segment.
    device: Gaps,
    /// Offset to size and pool of each segment.
    segments: BTreeMap<u64, Segment>,
    /// Offset to size of each block in use.
    blocks: BTreeMap<u64, u64>,
    capacity: u64,
    quantum: u64,
    small: u64,
    segment_small: u64,
    medium: u64,
    segment_medium: u64,
    granule: u64,
}

struct Segment {
    size: u64,
    pool: usize,
    used: u64,
    free: Gaps,
}

impl Caching {
    fn round(&self, size: u64) -> u64 {
        Bytes(size).round_up(Bytes(self.quantum)).0
    }

    fn take_block(&mut self, size: u64, pool: usize) -> Option<u64> {
        let fits = |(&start, segment): (&u64, &Segment)| {
            let (offset, room) = segment.free.best(size)?;
            (segment.pool == pool).then_some((room, offset, start))
        };
        let (room, offset, start) = self.segments.iter().filter_map(fits).min()?;
        let taken = if pool == 1 && room - size <= self.small { room } else { size };
        let segment = self.segments.get_mut(&start)?;
        segment.free.take(offset, taken);
        segment.used += taken;
        self.blocks.insert(offset, taken);
        Some(offset)
    }

    fn segment_of(&self, offset: u64) -> Option<u64> {
        self.segments.range(..=offset).next_back().map(|(&start, _)| start)
    }

    fn new_segment(&mut self, size: u64, pool: usize) -> bool {
        let Some((start, _)) = self.device.best(size) else { return false };
        self.device.take(start, size);
        let mut free = Gaps::default();
        free.give(start, size);
        self.segments.insert(start, Segment { size, pool, used: 0, free });
        true
    }

    /// Gives all wholly free segments back to the device.
    fn trim(&mut self) {
        let idle: Vec<(u64, u64)> = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.used == 0)
            .map(|(&start, segment)| (start, segment.size))
            .collect();
        for (start, size) in idle {
            self.segments.remove(&start);
            self.device.give(start, size);
        }
    }
}

impl Allocator for Caching {
    fn allocate(&mut self, size: u64) -> Option<u64> {
        if size == 0 {
            return Some(0);
        }
        let size = self.round(size);
        let (pool, segment) = if size <= self.small {
            (0, self.segment_small)
        } else if size < self.medium {
            (1, self.segment_medium)
        } else {
            (1, Bytes(size).round_up(Bytes(self.granule)).0)
        };
        if let Some(offset) = self.take_block(size, pool) {
            return Some(offset);
        }
        if !self.new_segment(segment, pool) {
            self.trim();
            // A segment of just the size is better than none: the budget is hard, the granule is habit.
            if !self.new_segment(segment, pool) && !self.new_segment(size, pool) {
                return None;
            }
        }
        self.take_block(size, pool)
    }

    fn allocate_at(&mut self, _offset: u64, _size: u64) -> bool {
        false
    }

    fn release(&mut self, offset: u64, size: u64) {
        if size == 0 {
            return;
        }
        let (Some(start), Some(held)) = (self.segment_of(offset), self.blocks.remove(&offset)) else {
            return;
        };
        if let Some(segment) = self.segments.get_mut(&start) {
            segment.free.give(offset, held);
            segment.used -= held;
        }
    }

    fn addresses(&self) -> Option<u64> {
        Some(self.capacity)
    }

    fn free_around(&self, offset: u64, size: u64) -> (u64, u64) {
        let held = self.blocks.get(&offset).copied().unwrap_or(self.round(size));
        let segment = self.segment_of(offset).and_then(|start| self.segments.get(&start));
        segment.map_or((0, 0), |segment| segment.free.around(offset, offset + held))
    }

    fn largest_free(&self) -> u64 {
        self.segments.values().map(|segment| segment.free.largest()).fold(self.device.largest(), u64::max)
    }
}
