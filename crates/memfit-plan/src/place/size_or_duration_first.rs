//! Best fit twice, largest first and longest-lived first; the lower of both.
//!
//! Source: XLA, `heap_simulator`: the global decreasing-size best-fit heap with its spatial order (size, then
//! duration) and its temporal one (duration, then size), of which the better is kept. Colocated buffers are
//! one item here already. No bound on the height; O(n²) time, O(n) space. Ties go to the lower index and to
//! the spatial order. Wrong choice on tight instances: see `exact/`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// The better of two best fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeOrDurationFirst;

impl Placer for SizeOrDurationFirst {
    fn info(&self) -> Info {
        Info {
            name: "size-or-duration-first",
            summary: "the better of size-first and duration-first best fit, as XLA",
            source: "XLA, service/heap_simulator",
            year: 2019,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let size = |index: &u32| arena.pieces[*index as usize].size;
    let duration = |index: &u32| {
        let piece = &arena.pieces[*index as usize];
        piece.gone - piece.born
    };
    let mut order = arena.ids();
    order.sort_by_key(|index| Reverse((size(index), duration(index))));
    let spatial = fit::pack(arena, &order, Gap::Best);
    order = arena.ids();
    order.sort_by_key(|index| Reverse((duration(index), size(index))));
    let temporal = fit::pack(arena, &order, Gap::Best);
    if temporal.height < spatial.height { temporal } else { spatial }
}
