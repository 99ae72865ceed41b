//! Largest buffer first, each at the lowest offset that is free for its whole lifespan.
//!
//! Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
//! (arXiv:2001.03288), "greedy by size", but first fit instead of best. No bound on the height; O(n²) time,
//! O(n) space for n buffers. Ties go to the longer-lived, then to the lower index. Wrong choice when many
//! small long-lived buffers must go under large short ones: see `place/dive.rs`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// First fit in descending order of size.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestFirst;

impl Placer for LargestFirst {
    fn info(&self) -> Info {
        Info {
            name: "largest-first",
            summary: "largest buffer first, each at its lowest free offset",
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
    order.sort_by_key(|&index| {
        let piece = &arena.pieces[index as usize];
        Reverse((piece.size, piece.width()))
    });
    fit::pack(arena, &order, Gap::First)
}
