//! Outputs of convolutions go while forward runs on to the next convolution, and come back one convolution ahead.
//!
//! Source: Wang, Ye, Zhao, Wu, Li, Song, Xu and Kraska, "SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural
//! Networks", PPoPP 2018, §3.3, "unified tensor pool": the output of a convolution is copied until the next convolution begins;
//! in the backward pass a convolution fetches what the one before it left. `hybrid:superneurons` is the whole system, with its cache and
//! recomputation. We differ: what a convolution fetches is there before it runs, not after. What moves does not depend on
//! the budget. Time O(maps × runs). Wrong choice where no convolutions are, and where memory is not that short.

use memfit_ir::Bytes;

use super::{Chooser, Front, Gap, Infeasible, RunList, Scheduler, Task, Window, leave_when_copied, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct SuperNeurons;

impl Scheduler for SuperNeurons {
    fn info(&self) -> Info {
        Info {
            name: "superneurons",
            summary: "outputs of convolutions, until the next one; back one convolution ahead",
            source: "Wang et al., SuperNeurons, PPoPP 2018",
            year: 2018,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let (step, turn) = (chooser.step(), turn(task));
        let convolutions = task.node_ids().filter(|&node| task.is_convolution(node));
        let convolutions: Vec<usize> = convolutions.map(|node| node.index()).collect();
        let made_by_one = |gap: &&Gap| gap.crosses(turn) && task.is_of_convolution(gap.value);
        let maps = step.gaps.iter().filter(made_by_one);
        let mut windows: Vec<Window> = maps.map(|&gap| Window::beside(gap)).collect();
        leave_when_copied(step, &mut windows);
        windows.retain_mut(|window| {
            // Behind the last convolution of the forward pass nothing waits for the copy.
            let next = convolutions.iter().find(|&&at| at > window.gap.from && at < turn);
            let Some(&next) = next else { return false };
            window.gone = window.gone.min(next).max(window.store.max(window.gap.from + 1) - 1);
            let ahead = convolutions.iter().rev().find(|&&at| at < window.gap.to);
            window.back = ahead.map_or(window.gap.to, |&at| at.max(window.gone + 2));
            window.back <= window.gap.to && window.gone + 2 <= window.back
        });
        let moved = chooser.run_at(&windows);
        chooser.found(moved)
    }
}
