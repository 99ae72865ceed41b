//! The fastest step in which every op runs once and values are moved until it fits.

use memfit_ir::Bytes;

use super::moves::Choices;
use super::refine::{refine, tiers};
use super::transfers::Chooser;
use super::{Front, Infeasible, RunList, Task};
use crate::Context;

/// Gaps are chosen by several scores and weightings of them, the clock tells the fastest, and local search over what is away and
/// for how long makes that faster.
///
/// # Errors
///
/// [`Infeasible`] if nothing fits that was chosen, or there is no link.
pub(super) fn moving(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
    let runs = RunList::plain(task);
    let mut chooser = Chooser::of(task, &runs, budget, context)?;
    // What is at home elsewhere takes room beside its uses as well, which choices are to leave.
    let found = if task.is_parked() { chooser.settled(Chooser::fastest) } else { chooser.fastest() };
    let Some((chosen, moved)) = found else { return chooser.found(None) };
    let away = chooser.away(&chosen);
    let choices = Choices::default().and_waits(task, &tiers(context.device), context.device);
    Ok(refine(task, (&runs, &away), &choices, (moved, budget), context))
}
