//! Every item has bytes of its own: the sum of all sizes.
//!
//! What a framework without any reuse takes, and the anchor every other placer is compared with. With
//! in-place chains already merged into items it is what in-place alone gives. No item shares a byte, so it
//! keeps ops on parallel lanes unordered. Time O(n), O(n p) with p pins. Ties: the problem's order. Never
//! the right choice.

use super::arena::{Does, place};
use super::{Placement, Placer, Problem, Unplaced, fit};
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
        place(problem, context, Does::ALL, &|arena| Ok(fit::separate(arena)))
    }
}
