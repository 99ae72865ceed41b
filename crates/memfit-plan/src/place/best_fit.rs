//! Online best fit in one arena: each buffer, when it is born, in the smallest gap that holds it.
//!
//! Source: Knuth, The Art of Computer Programming, volume 1, §2.5; the classic that run-time allocators
//! refine. What can be done without knowing the future. No bound on the height: 1.0002 times the lower bound
//! on training-like programs, above 2 on random dissections. O(n log n) time, O(n) space; with pins or
//! pieces to keep apart O(n²). Ties: buffers born together in the problem's order; the lowest of equal gaps.
//! Wrong choice where lifetimes vary without a pattern.

use super::arena::{Does, place};
use super::{Placement, Placer, Problem, Unplaced, heap};
use crate::{Context, Info};

/// Online best fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

impl Placer for BestFit {
    fn info(&self) -> Info {
        Info {
            name: "best-fit",
            summary: "online best fit in one arena, in program order",
            source: "Knuth, The Art of Computer Programming, volume 1, section 2.5",
            year: 1968,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(heap::online(arena)))
    }
}
