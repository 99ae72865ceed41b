//! Intervals of equal length: what the next one needs is fetched during this one, and what was used for the last time goes.
//!
//! Source: Ren, Luo, Wu, Zhang, Jeon and Li, "Sentinel: Efficient Tensor Migration and Allocation on Heterogeneous Memory
//! Systems for Deep Learning", HPCA 2021 (arXiv:1909.05182): the step is cut into migration intervals, what lives for no longer
//! than one never moves, all other values go after their last use within an interval and come back at the beginning of the
//! interval before the one that uses them. We differ: lengths are tried from one op up to the whole step, each twice the one before,
//! and the clock tells the best, where Sentinel computes one from profiles of pages; ops run with all they use in device
//! memory. Time O(log ops × gaps), and a run of the clock for each length. Wrong choice where layers differ much in time.

use memfit_ir::Bytes;

use super::{Chooser, Front, Infeasible, Moved, RunList, Scheduler, Task, Window};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Sentinel;

impl Scheduler for Sentinel {
    fn info(&self) -> Info {
        Info {
            name: "sentinel",
            summary: "intervals of equal length, each fetched while the one before it runs",
            source: "Ren et al., Sentinel, HPCA 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let mut best: Option<Moved> = None;
        let mut length = 1;
        while length < runs.len() && (best.is_none() || !(context.stop)()) {
            let gaps = chooser.step().gaps.iter();
            let windows: Vec<Window> = gaps
                .filter_map(|&gap| {
                    let back = (gap.to / length).saturating_sub(1) * length;
                    (back > gap.from + 1).then_some(Window { back, ..Window::beside(gap) })
                })
                .filter(|window| window.back > window.gone + 1)
                .collect();
            length *= 2;
            let Some(moved) = chooser.run_at(&windows) else { continue };
            if best.as_ref().is_none_or(|best| moved.time < best.time) {
                best = Some(moved);
            }
        }
        chooser.found(best)
    }
}
