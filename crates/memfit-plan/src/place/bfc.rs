//! TensorFlow's best-fit-with-coalescing allocator, replayed over the program.
//!
//! Source: TensorFlow, `bfc_allocator`. Requests are rounded up to 256 bytes; free chunks lie in 21 bins by
//! the power of two of their size, in a bin by size, then address; the first chunk that fits of the first
//! bin that may hold one is taken, and split if it is at least twice the request or leaves at least 128 MiB;
//! freed chunks merge with free neighbours. We differ in that there is one region that grows at its end, as
//! in a planned arena: `reserved` is its high-water mark. No bound on the height. O(n log n) time, O(n)
//! space. Ties: buffers born together in the problem's order. Wrong choice as a plan: it is what people have
//! without one.

use std::collections::{BTreeMap, BTreeSet};

use super::arena::{Does, place};
use super::runtime::{self, Runtime};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

const ROUND: u64 = 256;
const BINS: u32 = 21;
const SPLIT: u64 = 128 << 20;

/// Replays TensorFlow's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bfc;

impl Placer for Bfc {
    fn info(&self) -> Info {
        Info {
            name: "bfc",
            summary: "TensorFlow's best-fit-with-coalescing allocator, replayed",
            source: "TensorFlow, core/common_runtime/bfc_allocator",
            year: 2015,
        }
    }

    fn replays_allocator(&self) -> bool {
        true
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        let align = problem.align().0.max(1);
        place(problem, context, Does::default(), &|arena| {
            Ok(runtime::replay(arena, runtime::unit(ROUND, align), Region::default()))
        })
    }
}

/// The chunks of the region.
#[derive(Default)]
struct Region {
    /// Offset → (size, free).
    chunks: BTreeMap<u64, (u64, bool)>,
    /// (bin, size, offset) of the free ones.
    free: BTreeSet<(u32, u64, u64)>,
    end: u64,
}

fn bin(size: u64) -> u32 {
    (size / ROUND).max(1).ilog2().min(BINS - 1)
}

impl Region {
    fn set(&mut self, offset: u64, size: u64, free: bool) {
        self.chunks.insert(offset, (size, free));
        if free {
            self.free.insert((bin(size), size, offset));
        }
    }

    fn unset(&mut self, offset: u64) -> u64 {
        let (size, _) = self.chunks.remove(&offset).unwrap_or_default();
        self.free.remove(&(bin(size), size, offset));
        size
    }
}

impl Runtime for Region {
    fn take(&mut self, size: u64) -> u64 {
        let first = self.free.range((bin(size), 0, 0)..).find(|&&(_, room, _)| room >= size);
        let Some(&(_, room, offset)) = first else {
            let offset = self.end;
            self.end = self.end.saturating_add(size);
            self.set(offset, size, false);
            return offset;
        };
        self.unset(offset);
        if room >= size.saturating_mul(2) || room - size >= SPLIT {
            self.set(offset, size, false);
            self.set(offset + size, room - size, true);
        } else {
            self.set(offset, room, false);
        }
        offset
    }

    fn give(&mut self, mut offset: u64) {
        let mut size = self.unset(offset);
        if let Some((&below, &(_, true))) = self.chunks.range(..offset).next_back() {
            size = size.saturating_add(self.unset(below));
            offset = below;
        }
        let above = offset.saturating_add(size);
        if let Some(&(_, true)) = self.chunks.get(&above) {
            size = size.saturating_add(self.unset(above));
        }
        self.set(offset, size, true);
    }

    fn reserved(&self) -> u64 {
        self.end
    }
}
