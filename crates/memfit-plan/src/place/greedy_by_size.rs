//! Largest buffer first, each in the smallest gap that is free for its whole lifespan.
//!
//! Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
//! (arXiv:2001.03288), "greedy by size for offset calculation", the planner of TensorFlow Lite. No bound on
//! the height; O(n²) time, O(n) space. Ties go to the lower index, equal gaps to the lower one. Wrong choice
//! when one huge short-lived buffer should go on top: see `dive.rs`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// Best fit in descending order of size.
#[derive(Clone, Copy, Debug, Default)]
pub struct GreedyBySize;

impl Placer for GreedyBySize {
    fn info(&self) -> Info {
        Info {
            name: "greedy-by-size",
            summary: "largest buffer first, each in its smallest free gap, as TensorFlow Lite",
            source: "Pisarchyk and Lee, arXiv:2001.03288",
            year: 2020,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let mut order = arena.ids();
    order.sort_by_key(|&index| Reverse(arena.pieces[index as usize].size));
    fit::pack(arena, &order, Gap::Best)
}
