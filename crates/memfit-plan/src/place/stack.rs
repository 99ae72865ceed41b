//! Each buffer on top of all it conflicts with that are placed already; no gap is ever filled.
//!
//! Source: Apache TVM, unified static memory planner, `greedy.cc`: greedy by size (size, then number of
//! conflicts) and greedy by conflicts (number of conflicts, then size). No bound on the height; O(n log n)
//! time and O(n) space here, by a skyline instead of lists of conflicts. Ties go to the lower index (there to
//! the name). Wrong choice everywhere but as a peer to compare with: see `largest_first.rs`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::{Placement, Placer, Problem, Unplaced, fit};
use crate::{Context, Info};

/// Stacking in one of two orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Largest first.
    BySize,
    /// Most conflicts first.
    ByConflicts,
}

impl Placer for Stack {
    fn info(&self) -> Info {
        let (name, summary) = match self {
            Stack::BySize => ("stack-by-size", "largest first, on top of all placed conflicts, as TVM"),
            Stack::ByConflicts => {
                ("stack-by-conflicts", "most conflicts first, on top of all placed, as TVM")
            }
        };
        Info { name, summary, source: "Apache TVM, USMP greedy", year: 2021 }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(self.pack(arena)))
    }
}

impl Stack {
    pub(crate) fn pack(self, arena: &Arena) -> Packing {
        let conflicts = conflicts(arena);
        let mut order = arena.ids();
        order.sort_by_key(|&index| {
            let (size, conflicts) = (arena.pieces[index as usize].size, conflicts[index as usize]);
            Reverse(match self {
                Stack::BySize => (size, conflicts),
                Stack::ByConflicts => (conflicts, size),
            })
        });
        fit::stack(arena, &order)
    }
}

/// For each piece the number of others it meets or is kept apart from.
fn conflicts(arena: &Arena) -> Vec<u64> {
    let mut starts: Vec<u32> = arena.pieces.iter().map(|piece| piece.lo).collect();
    let mut ends: Vec<u32> = arena.pieces.iter().map(|piece| piece.hi).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let count = |(index, piece): (usize, &super::arena::Piece)| {
        let begun = starts.partition_point(|&start| start < piece.hi);
        let over = ends.partition_point(|&end| end <= piece.lo);
        (begun - over - 1 + arena.apart.row(index).len()) as u64
    };
    arena.pieces.iter().enumerate().map(count).collect()
}
