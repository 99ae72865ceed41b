//! PyTorch's caching allocator, replayed over the program: what its users pay today.
//!
//! Source: PyTorch, `CUDACachingAllocator`, default settings, one stream. Requests are rounded up to 512
//! bytes; those of up to 1 MiB live in the small pool, others in the large one; a pool gives the smallest
//! free block that fits; without one it takes a segment from the device: 2 MiB for small requests, 20 MiB for
//! those below 10 MiB, else the request rounded up to 2 MiB. A block is split if 512 bytes or more are left
//! over (small pool), or more than 1 MiB (large); freed blocks merge with free neighbours of their segment,
//! and segments are kept. Segments get addresses one after another; `reserved` is their sum. No bound on the
//! height. O(n log n) time, O(n) space. Ties: the lower address. Wrong choice as a plan; it is the measure of
//! what planning saves.

use std::collections::{BTreeMap, BTreeSet};

use super::arena::{Does, place};
use super::runtime::{self, Runtime};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

const ROUND: u64 = 512;
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const MIDDLE: u64 = 10 << 20;
const MIDDLE_SEGMENT: u64 = 20 << 20;
const LARGE_UNIT: u64 = 2 << 20;

/// Replays PyTorch's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caching;

impl Placer for Caching {
    fn info(&self) -> Info {
        Info {
            name: "caching",
            summary: "PyTorch's caching allocator, replayed",
            source: "PyTorch, c10/cuda/CUDACachingAllocator",
            year: 2017,
        }
    }

    fn replays_allocator(&self) -> bool {
        true
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        let align = problem.align().0.max(1);
        place(problem, context, Does::default(), &|arena| {
            let unit = runtime::unit(ROUND, align);
            Ok(runtime::replay(arena, unit, Allocator { unit, ..Allocator::default() }))
        })
    }
}

/// A block of a segment.
#[derive(Clone, Copy)]
struct Block {
    size: u64,
    free: bool,
    segment: u32,
    small: bool,
}

#[derive(Default)]
struct Allocator {
    /// What requests, and so segments, are rounded to.
    unit: u64,
    blocks: BTreeMap<u64, Block>,
    /// Free blocks of the large and the small pool as (size, address).
    free: [BTreeSet<(u64, u64)>; 2],
    segments: u32,
    reserved: u64,
}

impl Allocator {
    fn set(&mut self, address: u64, block: Block) {
        self.blocks.insert(address, block);
        if block.free {
            self.free[usize::from(block.small)].insert((block.size, address));
        }
    }

    fn unset(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        self.free[usize::from(block.small)].remove(&(block.size, address));
        Some(block)
    }
}

impl Runtime for Allocator {
    fn take(&mut self, size: u64) -> u64 {
        let small = size <= SMALL;
        let fitting = self.free[usize::from(small)].range((size, 0)..).next().copied();
        let (address, block) = if let Some((_, address)) = fitting
            && let Some(block) = self.unset(address)
        {
            (address, block)
        } else {
            let wanted = match size {
                _ if small => SMALL_SEGMENT,
                _ if size < MIDDLE => MIDDLE_SEGMENT,
                _ => size.checked_next_multiple_of(LARGE_UNIT).unwrap_or(u64::MAX),
            };
            let wanted = wanted.max(size).checked_next_multiple_of(self.unit).unwrap_or(u64::MAX);
            let address = self.reserved;
            self.reserved = self.reserved.saturating_add(wanted);
            self.segments += 1;
            (address, Block { size: wanted, free: false, segment: self.segments, small })
        };
        let left = block.size - size;
        if if small { left >= ROUND } else { left > SMALL } {
            self.set(address, Block { size, free: false, ..block });
            self.set(address.saturating_add(size), Block { size: left, free: true, ..block });
        } else {
            self.set(address, Block { free: false, ..block });
        }
        address
    }

    fn give(&mut self, mut address: u64) {
        let Some(mut block) = self.unset(address) else { return };
        let mergeable = |other: &Block| other.free && other.segment == block.segment;
        let below = self.blocks.range(..address).next_back().filter(|(_, other)| mergeable(other));
        let above = self.blocks.range(address..).next().filter(|(_, other)| mergeable(other));
        let (below, above) = (below.map(|(&at, _)| at), above.map(|(&at, _)| at));
        if let Some(merged) = above.and_then(|at| self.unset(at)) {
            block.size += merged.size;
        }
        if let Some(at) = below
            && let Some(merged) = self.unset(at)
        {
            block.size += merged.size;
            address = at;
        }
        self.set(address, Block { free: true, ..block });
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}
