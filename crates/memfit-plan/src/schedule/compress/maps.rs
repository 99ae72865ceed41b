//! Maps that wait encoded for their backward use, one and all.

use memfit_ir::Bytes;

use super::{Chooser, Codecs, Front, Infeasible, RunList, Task, Waits, Window, turn};
use crate::Context;

/// Every map waits for its backward use in the codec that makes it smallest.
pub(super) fn maps(
    task: &Task<'_>,
    codecs: Codecs,
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let runs = RunList::plain(task);
    let mut chooser = Chooser::waiting(task, &runs, Waits::Encoded(codecs), budget, context)?;
    let turn = turn(task);
    let gaps = chooser.step().gaps.iter().filter(|gap| gap.crosses(turn));
    let windows: Vec<Window> = gaps.map(|&gap| Window::whole(gap)).collect();
    let moved = chooser.run_at(&windows);
    chooser.found(moved)
}
