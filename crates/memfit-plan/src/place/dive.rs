//! Always place a piece that can lie lowest, at its lowest offset: one canonical packing, without a search.
//!
//! Source: the first descent of MiniMalloc (Moffitt, ASPLOS 2023, doi 10.1145/3623278.3624752), made
//! independent of pairs: the lowest plateau of the skyline takes the preferred piece of those that lie wholly
//! within it, or rises to its neighbour (`plateau.rs`); with pins and pieces to keep apart, a heap of
//! possibly outdated lowest offsets over a segment tree does the same (`descent.rs`). The tie-break decides
//! which of the pieces that can lie equally low goes first; all of `Order::STATIC` are tried, in parallel,
//! and the lowest result kept; birth and death are each other in reversed time, the others are symmetric. No
//! bound on the height: within 0.3 % of the load on large programs, 10 to 25 % over it on tight instances.
//! Time O(n log n) in practice for each order, space O(n). Ties: the order's keys, then the lower index; of
//! equal heights the first order wins. Wrong choice for a few hundred pieces without slack: see `exact/`.

use super::arena::{Does, place};
use super::{Placement, Placer, Problem, Unplaced, descent, fit};
use crate::{Context, Info};

/// The best of the canonical dives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dive;

impl Placer for Dive {
    fn info(&self) -> Info {
        Info {
            name: "dive",
            summary: "always what can lie lowest, under several tie-breaks",
            source: "the first descent of Moffitt, MiniMalloc, ASPLOS 2023",
            year: 2023,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| {
            let found = descent::pack(arena, &descent::orders(arena), u64::MAX, context.stop);
            Ok(found.unwrap_or_else(|| fit::separate(arena)))
        })
    }
}
