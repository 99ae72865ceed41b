//! Every item has bytes of its own: the sum of all sizes.
//!
//! What a framework without any reuse takes, and the anchor every other placer is compared with. With
//! in-place chains already merged into items it is what in-place alone gives. No item shares a byte, so it
//! keeps ops on parallel lanes unordered. Time O(n), O(n p) with p pins. Ties: the problem's order. Never
//! the right choice.

use super::arena::{Arena, Does, Packing, place};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// No sharing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

impl Placer for Naive {
    fn info(&self) -> Info {
        Info {
            name: "naive",
            summary: "no sharing: every buffer has bytes of its own",
            source: "the anchor of Chen et al., MXNet, arXiv:1512.01274, figure 7",
            year: 2015,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

/// One after another; pinned pieces keep their own stretch.
pub(crate) fn pack(arena: &Arena) -> Packing {
    let mut top = 0u64;
    let mut taken: Vec<(u64, u64)> = Vec::new(); // stretches of the pins, by offset, disjoint
    for &pin in &arena.pins {
        let piece = &arena.pieces[pin as usize];
        let start = piece.pin.unwrap_or(0);
        taken.push((start, start.saturating_add(piece.size)));
    }
    let place = |piece: &super::arena::Piece| {
        if let Some(offset) = piece.pin {
            return offset;
        }
        for &(start, end) in &taken {
            if start < top.saturating_add(piece.size) && end > top {
                top = end;
            }
        }
        let offset = top;
        top = top.saturating_add(piece.size);
        offset
    };
    let offsets = arena.pieces.iter().map(place).collect();
    arena.packing(offsets)
}
