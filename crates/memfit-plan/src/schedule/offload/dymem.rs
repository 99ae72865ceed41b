//! Maps go when they are copied, and two convolutions are kept ahead in the backward pass.
//!
//! Source: Bae et al. ("Dymem"), "Efficient memory management for training deep nonlinear networks", HPDC 2020: what the
//! backward pass needs is copied while ops run on, and goes when its copy is there and no reader is left; in the backward pass
//! all is fetched that is needed until two inputs of convolutions are ahead of the layer that runs. We differ: its arena with
//! two ends is the placer's business here, and kinds that it never moves (fully connected, softmax, dropout) move as well. What
//! moves does not depend on the budget. Time O(maps × log maps). Wrong choice where memory is not that short, and where layers
//! are so short that two are not ahead enough.

use memfit_ir::Bytes;

use super::{Chooser, Front, Infeasible, RunList, Scheduler, Task, Window, leave_when_copied, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Dymem;

/// Inputs of convolutions that are kept ahead.
const AHEAD: usize = 2;

impl Scheduler for Dymem {
    fn info(&self) -> Info {
        Info {
            name: "dymem",
            summary: "every map, when it is copied; back when two convolutions ahead of its layer",
            source: "Dymem, HPDC 2020",
            year: 2020,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let (step, turn) = (chooser.step(), turn(task));
        let crossing = step.gaps.iter().filter(|gap| gap.crosses(turn));
        let mut windows: Vec<Window> = crossing.map(|&gap| Window::beside(gap)).collect();
        leave_when_copied(step, &mut windows);
        let convolutions = windows.iter().filter(|window| task.is_map_of_convolution(window.gap.value, turn));
        let mut uses: Vec<usize> = convolutions.map(|window| window.gap.to).collect();
        uses.sort_unstable();
        for window in &mut windows {
            // It comes with the first convolution that is not used before it.
            let next = uses.partition_point(|&to| to < window.gap.to);
            let done = next.checked_sub(AHEAD).and_then(|done| uses.get(done));
            let from = done.map_or(turn, |&done| done + 1);
            window.back = from.clamp(window.gone + 2, window.gap.to);
        }
        let moved = chooser.run_at(&windows);
        chooser.found(moved)
    }
}
