//! Values that wait encoded between two uses, one and all.

use memfit_ir::Bytes;

use super::{Chooser, Codecs, Front, Gap, Infeasible, RunList, Task, Waits, Window, turn};
use crate::Context;

/// Every map waits for its backward use in the codec that makes it smallest.
pub(super) fn maps(
    task: &Task<'_>,
    codecs: Codecs,
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let turn = turn(task);
    every(task, codecs, |gap| gap.crosses(turn), budget, context)
}

/// What is in one of the gaps for which `waits` holds does so, likewise.
pub(super) fn every(
    task: &Task<'_>,
    codecs: Codecs,
    waits: impl Fn(&Gap) -> bool,
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let runs = RunList::plain(task);
    let mut chooser = Chooser::waiting(task, &runs, Waits::Encoded(codecs), budget, context)?;
    let gaps = chooser.step().gaps.iter().filter(|gap| waits(gap));
    let windows: Vec<Window> = gaps.map(|&gap| Window::whole(gap)).collect();
    let moved = chooser.run_at(&windows);
    chooser.found(moved)
}
