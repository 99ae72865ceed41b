//! What is there from the first step to the last at the bottom, then the largest buffer first, each in its smallest gap.
//!
//! Source: Zhang, Yeung, Shu, He and Wang, "Efficient Memory Management for GPU-based Deep Learning Systems"
//! (arXiv:1903.06631, §3), "SmartPool": of an iteration whose allocations are known, variables that live across iterations are
//! placed first, the others by size, each in the smallest hole that its lifetime leaves, or on top. We differ: what crosses an
//! iteration keeps its place and has no second region, since a program's step ends as it began. No bound on the height; O(n²)
//! time, O(n) space. Ties go to the lower index, equal gaps to the lower one. Wrong choice when one huge short-lived buffer
//! should go on top: see `dive.rs`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// Best fit in descending order of size, what lasts first.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmartPool;

impl Placer for SmartPool {
    fn info(&self) -> Info {
        Info {
            name: "smartpool",
            summary: "what lasts first, then the largest buffer, each in its smallest free gap",
            source: "Zhang et al., SmartPool, arXiv:1903.06631",
            year: 2019,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

fn pack(arena: &Arena) -> Packing {
    let sections = u32::try_from(arena.load.len()).unwrap_or(u32::MAX);
    let mut order = arena.ids();
    order.sort_by_key(|&index| {
        let piece = &arena.pieces[index as usize];
        let lasts = piece.lo == 0 && piece.hi >= sections;
        (!lasts, Reverse(piece.size))
    });
    fit::pack(arena, &order, Gap::Best)
}
