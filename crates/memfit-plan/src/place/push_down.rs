//! Online best fit, and then everything as far down as what lies beneath it allows.
//!
//! Source: MegEngine, static memory allocation by pushing down: the addresses of an online best fit give an
//! order in which the buffers lie upon each other; in that order each sinks to the highest end beneath it.
//! We repeat until nothing sinks. Never above `best-fit`. O(k n log n) time for k passes, O(n) space. Ties go
//! to the lower index. Wrong choice where the order itself is bad, as for long-lived buffers born late.

use super::arena::{Arena, Does, Packing, place};
use super::{Placement, Placer, Problem, Unplaced, fit, heap};
use crate::{Context, Info};

/// Best fit pushed down.
#[derive(Clone, Copy, Debug, Default)]
pub struct PushDown;

impl Placer for PushDown {
    fn info(&self) -> Info {
        Info {
            name: "push-down",
            summary: "online best fit, then pushed down, as MegEngine",
            source: "MegEngine, static memory allocation, pushdown",
            year: 2020,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(pack(arena)))
    }
}

pub(crate) fn pack(arena: &Arena) -> Packing {
    let mut packing = heap::online(arena);
    loop {
        let mut order = arena.ids();
        order.sort_by_key(|&index| packing.offsets[index as usize]);
        let lower = fit::stack(arena, &order);
        let sum = |packing: &Packing| packing.offsets.iter().map(|&offset| u128::from(offset)).sum::<u128>();
        if lower.height > packing.height || sum(&lower) >= sum(&packing) {
            return packing;
        }
        packing = lower;
    }
}
