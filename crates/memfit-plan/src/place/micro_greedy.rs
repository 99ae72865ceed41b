//! Largest buffer first, each in the first gap that is free for its whole lifespan: the planner of TensorFlow Lite Micro.
//!
//! Source: TensorFlow Lite Micro, `GreedyMemoryPlanner::CalculateOffsetsIfNeeded`. Buffers with a fixed offset are placed before.
//! No bound on the height; O(n²) time, O(n) space. Ties go to the *higher* index: its table is filled from the end and sorted
//! stably. `largest-first` differs in ties alone. Wrong choice when small long-lived buffers must go under large short ones: see
//! `dive.rs`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// First fit in descending order of size, later buffers first.
#[derive(Clone, Copy, Debug, Default)]
pub struct MicroGreedy;

impl Placer for MicroGreedy {
    fn info(&self) -> Info {
        Info {
            name: "tflite-micro",
            summary: "largest buffer first, each in its first free gap, as TensorFlow Lite Micro's greedy planner",
            source: "TensorFlow Lite Micro, greedy_memory_planner.cc",
            year: 2019,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let mut order = arena.ids();
    order.sort_by_key(|&index| (Reverse(arena.pieces[index as usize].size), Reverse(index)));
    fit::pack(arena, &order, Gap::First)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::arena::Piece;

    /// By hand, as the original: the last, of 24 bytes, at 0; of the equal ones the third, the second, the first, each in its
    /// first gap.
    #[test]
    fn ties_go_to_the_later_buffer() {
        let lives = [(0, 2, 16), (1, 4, 16), (0, 3, 16), (3, 5, 24)];
        let mut pieces = lives.map(|(born, gone, size)| Piece { lo: 0, hi: 0, size, born, gone, pin: None });
        let load = crate::place::arena::sections(&mut pieces);
        let arena = Arena { pieces: pieces.into(), load, ..Arena::default() };
        assert_eq!(pack(&arena).offsets, [40, 24, 0, 0]);
        assert_eq!(pack(&arena).height, 56);
    }
}
