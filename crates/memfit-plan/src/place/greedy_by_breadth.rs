//! The step with most live bytes first: its buffers, largest first, each in its smallest free gap.
//!
//! Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
//! (arXiv:2001.03288), "greedy by breadth": operators in descending order of the bytes live while they run.
//! There it shares whole objects; here it gives offsets, as their greedy by size does. No bound on the
//! height; O(n²) time, O(n + sum of live pieces) space. Ties go to the earlier step and the lower index.
//! Wrong choice where the widest steps are not the tight ones.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, ids, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// Best fit, widest step first.
#[derive(Clone, Copy, Debug, Default)]
pub struct GreedyByBreadth;

impl Placer for GreedyByBreadth {
    fn info(&self) -> Info {
        Info {
            name: "greedy-by-breadth",
            summary: "buffers of the widest step first, each in its smallest free gap",
            source: "Pisarchyk and Lee, arXiv:2001.03288",
            year: 2020,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let mut sections = ids(arena.load.len());
    sections.sort_by_key(|&section| Reverse(arena.load[section as usize]));
    let mut turn = vec![0u32; sections.len()];
    for (at, &section) in (0u32..).zip(&sections) {
        turn[section as usize] = at;
    }
    let mut order = arena.ids();
    order.sort_by_cached_key(|&index| {
        let piece = &arena.pieces[index as usize];
        let first = turn[piece.lo as usize..piece.hi as usize].iter().min().copied();
        (first, Reverse(piece.size))
    });
    fit::pack(arena, &order, Gap::Best)
}
