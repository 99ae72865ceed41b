//! Blocks: pieces that fit together without a gap are packed as one.
//!
//! Two blocks that live in the same sections may lie on each other; one that ends where another of the same size begins may lie
//! where that lies. Merged by twos for as long as there are such, hundreds of pieces become tens of blocks where a problem is tight,
//! which branch and bound packs at once or not at all. So it is tried often: where a block could be merged with several, chance
//! decides, and some merges are left out.
//!
//! Source: ours, after block building for containers (Eley, "Solving container loading problems by block arrangement", European
//! Journal of Operational Research 141, 2002). No guarantee, and nothing is proved: a packing of the blocks is one of the pieces,
//! but the lowest may have none of them. Time O(n × [`NEAR`] × log n) for the blocks. Deterministic for a seed on any number of
//! threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::place::arena::{Arena, Packing, Piece, sections};
use crate::place::descent;
use crate::place::exact::{self, Goal, Instance};
use crate::place::rank::Random;

/// Blocks of a list, the latest, that a new one is compared with.
const NEAR: usize = 64;

/// Of a hundred merges, how many are left out, in the tries of a batch but the first of all.
const LEFT_OUT: [u64; 8] = [2, 5, 10, 15, 20, 5, 10, 2];

/// Of so many tries one is for a height between the lowest known and the least.
const HIGHER: usize = 4;

/// Pieces from which on it is worth a try: branch and bound is soon done with fewer.
const MANY: usize = 50;

/// Work of a try, and of merging, for each piece.
const TRY: u64 = 10_000;
const MERGING: u64 = 250;

/// Work of branch and bound on the blocks of a try, in the first batch: some ms.
const WORK: u64 = 3_000_000;

/// Lowers `best` until that is enough, `budget` is used up, or `stop`. Returns the work done, about a nanosecond each.
pub(super) fn improve(
    arena: &Arena,
    best: &mut Packing,
    budget: u64,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> u64 {
    if arena.len() < MANY {
        return 0;
    }
    let target = arena.enough.max(best.bound);
    let (mut work, mut share, mut halvings) = (0u64, WORK, 1u32);
    for batch in 0usize.. {
        if best.height <= target || work >= budget || stop() {
            break;
        }
        let trial = best.height - ((best.height - target) >> halvings).max(1);
        // The first try that is as low as it may get makes those after it needless.
        let first = AtomicUsize::new(usize::MAX);
        let tries: Vec<(Option<Packing>, u64)> = LEFT_OUT
            .par_iter()
            .enumerate()
            .map(|(at, &left_out)| {
                let left_out = if batch + at == 0 { 0 } else { left_out };
                let capacity = if (at + batch) % HIGHER == HIGHER - 1 { trial } else { target };
                let number = (batch * LEFT_OUT.len() + at) as u64;
                let seed = seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let stop = || stop() || first.load(Ordering::Relaxed) < at;
                let (packing, work) = attempt(arena, left_out, capacity, (share, seed), &stop);
                if packing.as_ref().is_some_and(|packing| packing.height <= target) {
                    first.fetch_min(at, Ordering::Relaxed);
                }
                (packing, work)
            })
            .collect();
        let before = best.height;
        for (packing, spent) in tries {
            work = work.saturating_add(spent);
            if let Some(found) = packing
                && found.height < best.height
            {
                *best = Packing { bound: best.bound, ..found };
            }
            if best.height <= target {
                break;
            }
        }
        halvings = if best.height < before { 1 } else { (halvings + 1).min(63) };
        share = share.saturating_add(share / 4);
    }
    work
}

/// The lowest of the dives, on blocks.
pub(super) fn dives(arena: &Arena, stop: &(dyn Fn() -> bool + Sync)) -> Packing {
    let blocks = Blocks::new(arena, 0, 0);
    blocks.lift(arena, &descent::start(&blocks.arena, stop).offsets)
}

/// Merges, and packs the blocks within `capacity` for about as much work as is said. And what it took.
fn attempt(
    arena: &Arena,
    left_out: u64,
    capacity: u64,
    (share, seed): (u64, u64),
    stop: &(dyn Fn() -> bool + Sync),
) -> (Option<Packing>, u64) {
    let blocks = Blocks::new(arena, left_out, seed);
    let merged = &blocks.arena;
    let inst = Instance::new(
        merged,
        merged.ids().into_iter().zip(&merged.pieces).map(|(at, &piece)| (Some(at), piece, 0)).collect(),
    );
    let goal =
        Goal { low: merged.bound, enough: capacity, high: capacity.saturating_add(1), budget: share, seed };
    let found = exact::solve(&inst, goal, stop);
    let work = TRY + MERGING * arena.len() as u64 + found.work;
    let packing = found.offsets.map(|offsets| {
        let mut sorted = vec![0; offsets.len()];
        for (name, offset) in inst.names.iter().flatten().zip(offsets) {
            sorted[*name as usize] = offset;
        }
        blocks.lift(arena, &sorted)
    });
    (packing, work)
}

/// What a block is made of.
#[derive(Clone, Copy)]
enum Made {
    Piece(u32),
    /// The second lies on the first.
    Stack(u32, u32),
    /// One lies where the other has lain.
    Row(u32, u32),
}

/// Pieces that are packed as one: live in the sections from `lo` up to `hi`.
#[derive(Clone, Copy)]
struct Block {
    lo: u32,
    hi: u32,
    size: u64,
    made: Made,
}

impl Block {
    /// What this and `other` are as one, with what they are called; `None` if there would be a gap.
    fn with(&self, other: &Block, (this, that): (u32, u32)) -> Option<Block> {
        let (lo, hi) = (self.lo.min(other.lo), self.hi.max(other.hi));
        if (self.lo, self.hi) == (other.lo, other.hi) {
            Some(Block { lo, hi, size: self.size.saturating_add(other.size), made: Made::Stack(this, that) })
        } else if self.size == other.size && (self.hi == other.lo || other.hi == self.lo) {
            Some(Block { lo, hi, size: self.size, made: Made::Row(this, that) })
        } else {
            None
        }
    }
}

/// The pieces of an arena, merged.
struct Blocks {
    /// Of blocks that are part of no other.
    arena: Arena,
    /// Which those are.
    roots: Vec<u32>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// Merges the pieces of `arena`, which are neither pinned nor kept apart; but of a hundred merges leaves out some.
    fn new(arena: &Arena, left_out: u64, seed: u64) -> Blocks {
        let mut builder = Builder::new(arena, left_out, seed);
        builder.run();
        let Builder { blocks, gone, .. } = builder;
        let roots: Vec<u32> = (0u32..).zip(gone).filter(|&(_, gone)| !gone).map(|(at, _)| at).collect();
        let piece = |&root: &u32| {
            let Block { lo, hi, size, .. } = blocks[root as usize];
            Piece { lo: 0, hi: 0, size, born: lo, gone: hi, pin: None }
        };
        let mut pieces: Vec<Piece> = roots.iter().map(piece).collect();
        let load = sections(&mut pieces);
        let arena = Arena { pieces, load, bound: arena.bound, enough: arena.enough, ..Arena::default() };
        Blocks { arena, roots, blocks }
    }

    /// The packing of the pieces of `whole` in which the blocks lie at `offsets`.
    fn lift(&self, whole: &Arena, offsets: &[u64]) -> Packing {
        let mut lifted = vec![0; whole.len()];
        let mut left: Vec<(u32, u64)> = self.roots.iter().copied().zip(offsets.iter().copied()).collect();
        while let Some((block, offset)) = left.pop() {
            match self.blocks[block as usize].made {
                Made::Piece(piece) => lifted[piece as usize] = offset,
                Made::Stack(below, above) => {
                    left.push((below, offset));
                    left.push((above, offset.saturating_add(self.blocks[below as usize].size)));
                }
                Made::Row(one, other) => left.extend([(one, offset), (other, offset)]),
            }
        }
        whole.packing(lifted)
    }
}

/// Merges blocks.
struct Builder {
    blocks: Vec<Block>,
    gone: Vec<bool>,
    /// Blocks that begin at each section, and that end there.
    begin: Vec<Vec<u32>>,
    end: Vec<Vec<u32>>,
    /// What may be merged: stacks first, then in any order.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    left_out: u64,
    random: Random,
}

impl Builder {
    /// The pieces of `arena`, not merged.
    fn new(arena: &Arena, left_out: u64, seed: u64) -> Builder {
        let mut builder = Builder {
            blocks: Vec::with_capacity(2 * arena.len()),
            gone: Vec::with_capacity(2 * arena.len()),
            begin: vec![Vec::new(); arena.load.len() + 1],
            end: vec![Vec::new(); arena.load.len() + 1],
            heap: BinaryHeap::new(),
            left_out,
            random: Random::new(seed),
        };
        for (at, piece) in (0u32..).zip(&arena.pieces) {
            builder.add(Block { lo: piece.lo, hi: piece.hi, size: piece.size, made: Made::Piece(at) });
        }
        builder
    }

    /// Merges for as long as something may be merged.
    fn run(&mut self) {
        while let Some(Reverse((_, one, other))) = self.heap.pop() {
            if self.gone[one as usize] || self.gone[other as usize] {
                continue;
            }
            let (first, second) = (self.blocks[one as usize], self.blocks[other as usize]);
            let Some(merged) = first.with(&second, (one, other)) else { continue };
            for (at, block) in [(one, first), (other, second)] {
                self.gone[at as usize] = true;
                self.begin[block.lo as usize].retain(|&there| there != at);
                self.end[block.hi as usize].retain(|&there| there != at);
            }
            self.add(merged);
        }
    }

    /// Adds a block, and notes what it may be merged with.
    fn add(&mut self, block: Block) {
        let this = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let (lo, hi) = (block.lo as usize, block.hi as usize);
        for others in [&self.begin[lo], &self.begin[hi], &self.end[lo]] {
            for &other in others.iter().rev().take(NEAR) {
                let Some(merged) = self.blocks[other as usize].with(&block, (other, this)) else { continue };
                if self.random.below(100) >= self.left_out {
                    let is_stack = matches!(merged.made, Made::Stack(..));
                    let key = if is_stack || self.left_out == 0 {
                        u64::from(!is_stack)
                    } else {
                        1 + self.random.below(1 << 20)
                    };
                    self.heap.push(Reverse((key, other, this)));
                }
            }
        }
        self.blocks.push(block);
        self.gone.push(false);
        self.begin[lo].push(this);
        self.end[hi].push(this);
    }
}
