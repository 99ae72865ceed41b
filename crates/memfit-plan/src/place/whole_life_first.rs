//! What lives for the whole step first, then the largest, each in its smallest free gap: the arena of TensorFlow Lite.
//!
//! Source: TensorFlow Lite, `ArenaPlanner::CreateTensorAllocationVector` and `SimpleMemoryArena::Allocate`: "greedy by size" of
//! Pisarchyk and Lee, arXiv:2001.03288, with what is live from the first op to the end below all else. No bound on the height;
//! O(n²) time, O(n) space. Ties go to what is made earlier, then to the lower index; equal gaps to the lower one. Which outputs
//! take over their inputs' bytes is decided before. Wrong choice on tight instances: see `exact/`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// Best fit in descending order of size, above what never dies.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeLifeFirst;

impl Placer for WholeLifeFirst {
    fn info(&self) -> Info {
        Info {
            name: "tflite-arena",
            summary: "whole-step buffers first, then the largest in their smallest free gap, as TensorFlow Lite's arena",
            source: "TensorFlow Lite, arena_planner.cc",
            year: 2022,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let (start, end) = bounds(arena);
    let mut order = arena.ids();
    order.sort_by_key(|&index| {
        let piece = &arena.pieces[index as usize];
        let is_whole = piece.born == start && piece.gone == end;
        // Among those that never die the order is that of the list.
        let (size, born) = if is_whole { (0, 0) } else { (piece.size, piece.born) };
        (!is_whole, Reverse(size), born, index)
    });
    fit::pack(arena, &order, Gap::Best)
}

/// The first and the last moment of all lives.
fn bounds(arena: &Arena) -> (u32, u32) {
    let start = arena.pieces.iter().map(|piece| piece.born).min().unwrap_or_default();
    let end = arena.pieces.iter().map(|piece| piece.gone).max().unwrap_or_default();
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::arena::{Piece, sections};

    /// By hand, as the original: the first, which never dies, below all though it is the smallest; then 32 and, in the smaller of
    /// two gaps, what fits both; of equal ones what is made earlier first.
    #[test]
    fn what_never_dies_is_below() {
        let lives = [(0, 6, 8), (1, 3, 32), (2, 4, 16), (1, 2, 16), (4, 6, 24)];
        let mut pieces: Vec<Piece> =
            lives.map(|(born, gone, size)| Piece { lo: 0, hi: 0, size, born, gone, pin: None }).into();
        let load = sections(&mut pieces);
        let arena = Arena { pieces, load, ..Arena::default() };
        assert_eq!(pack(&arena).offsets, [0, 8, 40, 40, 8]);
    }
}
