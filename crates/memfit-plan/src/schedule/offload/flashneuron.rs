//! In the order in which they are made, until the rest fits.
//!
//! Source: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks", FAST 2021, §4.2: what
//! the forward pass makes for the backward pass goes, the first layers first, until the rest fits; it is fetched ahead of its use.
//! We differ: copies go to the disk, and to host memory only where the device has no disk; nothing is compressed, so the second phase, which prefers what compresses well, is
//! left out, and a choice that takes longer on the link than the forward pass is a slow step instead of none. Time O(chosen ×
//! (gaps + runs)). Ties go to the larger value. Wrong choice where the first values are cheap to keep.

use memfit_ir::Bytes;

use super::{Chooser, Front, Gap, Infeasible, Pressure, RunList, Scheduler, Task, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct FlashNeuron;

impl Scheduler for FlashNeuron {
    fn info(&self) -> Info {
        Info {
            name: "flashneuron",
            summary: "what the forward pass makes, in that order, until the rest fits",
            source: "Bae et al., FlashNeuron, FAST 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let turn = turn(task);
        let order = |_: usize, gap: &Gap, _: &Pressure| gap.crosses(turn).then_some(-(gap.from as f64));
        let moved = chooser.greedy(order).and_then(|chosen| chooser.run_on_disk(&chosen));
        chooser.found(moved)
    }
}
