//! Walks the program with reference counts: what dies goes to a box of free tags, what is born takes a tag
//! of about its size from the box.
//!
//! Source: the planner of MXNet and NNVM (Chen et al., arXiv:1512.01274, §3.1; PlanMemory): at every op the
//! outputs ask for memory, largest first, and then the inputs whose count has come to 0 give theirs back. A
//! request looks in the box for the smallest block that is large enough but at most `match_range` times as
//! large, then for the largest that is smaller, down to the same factor; that one grows. In-place pairs are
//! in the program already (`memfit_ir::InPlace`): a chain is one item. We differ in that the sources of the
//! graph are items as well, and in that blocks get offsets, one after another, in the order of their birth.
//! No bound: a block is never split, so sizes that vary cost a factor (1.03 to 2.25 on our data). Time
//! O(n log n) for each range tried, space O(n). Ties go to the block that was freed first. Wrong choice
//! where one arena may be cut at will: see `place/dive.rs`.

use std::collections::BTreeMap;

use super::arena::{Arena, Does, Packing, ids, place};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// The reference-counting planner and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefCount {
    /// How many times larger or smaller than the request a free block may be. 0: no sharing at all.
    pub match_range: u32,
    /// Try 1, 2, 4 … up to `match_range` and keep what is lowest (`NNVM_AUTO_SEARCH_MATCH_RANGE`).
    pub search: bool,
}

impl RefCount {
    /// NNVM's default range, with its search switched on.
    pub const DEFAULT: RefCount = RefCount { match_range: 16, search: true };
}

impl Placer for RefCount {
    fn info(&self) -> Info {
        Info {
            name: "refcount",
            summary: "reference counts and a box of free blocks, as MXNet and NNVM plan",
            source: "Chen et al., MXNet, arXiv:1512.01274, section 3.1; NNVM PlanMemory",
            year: 2015,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        let does = Does { pins: false, apart: true };
        place(problem, context, does, &|arena| Ok(self.pack(arena)))
    }
}

impl RefCount {
    pub(crate) fn pack(&self, arena: &Arena) -> Packing {
        let mut best = pack(arena, self.match_range);
        let mut range = 1;
        while self.search && range < self.match_range {
            let packing = pack(arena, range);
            if packing.height < best.height {
                best = packing;
            }
            range *= 2;
        }
        best
    }
}

/// The free blocks: by size, then by the time they were given back.
type FreeBox = BTreeMap<(u64, u32), u32>;

fn pack(arena: &Arena, range: u32) -> Packing {
    let mut births = ids(arena.len());
    births.sort_by_key(|&index| {
        let piece = &arena.pieces[index as usize];
        (piece.born, std::cmp::Reverse(piece.size))
    });
    let mut deaths = ids(arena.len());
    deaths.sort_by_key(|&index| arena.pieces[index as usize].gone);
    let mut deaths = deaths.into_iter().peekable();
    let mut free = FreeBox::new();
    let mut freed = 0u32;
    let mut sizes: Vec<u64> = Vec::new();
    let mut tenants: Vec<Vec<u32>> = Vec::new();
    let mut tags = vec![0u32; arena.len()];
    for index in births {
        let piece = &arena.pieces[index as usize];
        while let Some(dead) = deaths.next_if(|&dead| arena.pieces[dead as usize].gone <= piece.born) {
            let tag = tags[dead as usize];
            free.insert((sizes[tag as usize], freed), tag);
            freed += 1;
        }
        let found = candidate(&free, piece.size, u64::from(range), |tag| {
            let tenants = &tenants[tag as usize];
            may_follow(arena, tenants, index)
        });
        tags[index as usize] = if let Some(key) = found {
            let tag = free.remove(&key).unwrap_or_default();
            sizes[tag as usize] = sizes[tag as usize].max(piece.size);
            tenants[tag as usize].push(index);
            tag
        } else {
            sizes.push(piece.size);
            tenants.push(vec![index]);
            u32::try_from(sizes.len() - 1).unwrap_or(u32::MAX)
        };
    }
    let mut top = 0u64;
    let starts: Vec<u64> = sizes
        .iter()
        .map(|&size| {
            let start = top;
            top = top.saturating_add(size);
            start
        })
        .collect();
    let mut packing = arena.packing(tags.iter().map(|&tag| starts[tag as usize]).collect());
    packing.reserved = packing.reserved.max(top);
    packing
}

/// The block NNVM's search finds for `size`: upwards from `size` to `range` times it, then downwards.
fn candidate(free: &FreeBox, size: u64, range: u64, fits: impl Fn(u32) -> bool) -> Option<(u64, u32)> {
    if range == 0 {
        return None;
    }
    let most = size.saturating_mul(range);
    let up = free.range((size, 0)..=(most, u32::MAX)).find(|&(_, &tag)| fits(tag));
    let down = || free.range((size.div_ceil(range), 0)..(size, 0)).rev().find(|&(_, &tag)| fits(tag));
    up.or_else(down).map(|(&key, _)| key)
}

/// Whether `next` may take a block after `tenants`: same colour as the op that gave it back, where there
/// are colours; else kept apart from none of them.
fn may_follow(arena: &Arena, tenants: &[u32], next: u32) -> bool {
    match tenants.last() {
        Some(&last) if !arena.colours.is_empty() => {
            arena.colours[last as usize].1 == arena.colours[next as usize].0
        }
        _ => arena.apart.rows() == 0 || tenants.iter().all(|&tenant| !arena.keeps_apart(tenant, next)),
    }
}
