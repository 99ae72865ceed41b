//! Chooses gaps until the live bytes fit, by several scores, and changes the best choice as long as the clock says it helps.
//!
//! Source: ours; the scores are those of the field (`transfers/choose.rs`). We differ in that each choice is lowered to a
//! program, with waits, and timed by the clock; the fastest is what counts, improved by local search over what is away and for
//! how long. Guarantee: live bytes and copies within their
//! budgets, no op runs twice. Time O(gaps × (gaps + ops)) for a choice, and a run of the clock for each change. Ties go to
//! what was found first. Wrong choice where ops are cheaper to run again than their results to move.

use memfit_ir::Bytes;

use super::{Choices, Chooser, Front, Infeasible, RunList, Scheduler, Task, refine, tiers};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Best;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "moves what covers the peak for least time on the link, timed by the clock",
            source: "memfit; scores after G10, MICRO 2023, and AutoSwap, arXiv:1903.06631",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let Some((chosen, moved)) = chooser.fastest() else { return chooser.found(None) };
        let away = chooser.away(&chosen);
        let choices = Choices::default().and_waits(task, &tiers(context.device), context.device);
        Ok(refine(task, (&runs, &away), &choices, (moved, budget), context))
    }
}
