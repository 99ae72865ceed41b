//! Of each run of consecutive tensors one or two are swapped, the others are computed again from them.
//!
//! Source: Rajbhandari, Ruwase, Rasley, Smith and He, "ZeRO-Infinity", SC 2021, §5.1: of a stretch of layers only the checkpoint
//! stays, in host memory, and the rest is computed again from it. What the forward pass makes for the backward pass is cut, in the
//! order in which it is made, into runs of 2 to 24; the first of each, or the first and the middle one, wait in host memory, and
//! what can't be made again waits there as well. Runs are treated from the first on, until the rest fits: the fewest that
//! do are found by halving. We differ: each length is tried, and the clock says which is the fastest. Time
//! O(lengths × log(values) × operands). Ties go to the shorter run. Wrong choice where memory is short in the backward pass alone,
//! or where one tensor of many is large.

use memfit_ir::{Bytes, ValueId};

use super::mixed::{Mix, Transfers, better, crossing};
use super::{Front, Infeasible, RunList, Scheduler, Task, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct SwapFew;

/// Tensors of a run, and how many of them are swapped.
const SHAPES: [(usize, usize); 9] =
    [(2, 1), (3, 1), (4, 1), (4, 2), (6, 1), (8, 1), (8, 2), (12, 1), (24, 1)];

impl Scheduler for SwapFew {
    fn info(&self) -> Info {
        Info {
            name: "swap-few-recompute-rest",
            summary: "of a run of tensors one or two are swapped, the others computed from them",
            source: "Rajbhandari et al., ZeRO-Infinity, SC 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let values = crossing(task, turn(task));
        let plain = RunList::plain(task).cost(task).map(|cost| cost.peak);
        let mut best = Err(Infeasible::new(task, budget, plain));
        for (length, few) in SHAPES.into_iter().filter(|(length, _)| *length == 2 || *length <= values.len())
        {
            if (context.stop)() {
                break;
            }
            let runs = values.len().div_ceil(length);
            let found = |count: usize| {
                let mix = mix(task, values.chunks(length).take(count), few);
                mix.step(task, budget, &Transfers::Hidden, context)
            };
            // More runs treated seldom hold more.
            let (mut low, mut high, mut found_at) = (0, runs, found(runs));
            while low < high && found_at.is_ok() {
                let middle = low + (high - low) / 2;
                match found(middle) {
                    Ok(front) => (high, found_at) = (middle, better(found_at, Ok(front))),
                    Err(_) => low = middle + 1,
                }
            }
            best = better(best, found_at);
        }
        best
    }
}

/// Of each of `runs` some swapped and the rest made again.
fn mix<'v>(task: &Task<'_>, runs: impl Iterator<Item = &'v [ValueId]>, few: usize) -> Mix {
    let mut mix = Mix::default();
    for run in runs {
        for (at, &value) in run.iter().enumerate() {
            let is_swapped = at == 0 || few == 2 && at == run.len() / 2 || !task.is_recomputable(value);
            let kind = if is_swapped { &mut mix.swapped } else { &mut mix.recomputed };
            kind.insert(value);
        }
    }
    mix
}
