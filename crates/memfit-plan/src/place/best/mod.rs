//! The best of the quick placers.
//!
//! Provisional: the portfolio grows. Never above any of them. Ties go to the earlier one.

use std::cmp::Reverse;

use crate::place::arena::{Arena, Does, Packing, place};
use crate::place::fit::{self, Gap};
use crate::place::{Placement, Placer, Problem, RefCount, Unplaced, heap, naive};
use crate::{Context, Info};

/// The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Best;

impl Placer for Best {
    fn info(&self) -> Info {
        Info { name: "best", summary: "the best of many, then search", source: "memfit", year: 2026 }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

fn pack(arena: &Arena) -> Packing {
    let mut best = naive::pack(arena);
    if arena.pins.is_empty() {
        keep(&mut best, RefCount::DEFAULT.pack(arena));
    }
    if arena.pins.is_empty() && arena.apart.rows() == 0 {
        for (reversed, sorted) in [(false, false), (false, true), (true, true)] {
            keep(&mut best, heap::pack(arena, reversed, sorted));
        }
    }
    let mut order = arena.ids();
    order.sort_by_key(|&index| {
        Reverse((arena.pieces[index as usize].size, arena.pieces[index as usize].width()))
    });
    keep(&mut best, fit::pack(arena, &order, Gap::First));
    keep(&mut best, fit::pack(arena, &order, Gap::Best));
    best
}

fn keep(best: &mut Packing, other: Packing) {
    if other.height < best.height {
        *best = other;
    }
}
