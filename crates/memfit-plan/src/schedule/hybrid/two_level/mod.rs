//! torchtitan's planner of keep, recompute and offload: how much of each block by a linear programme, which values by an integer
//! programme or greedily, lowered by the rules of its passes, and calibrated on what comes out.
//!
//! What is published of it is in pull requests (pytorch/torchtitan 3881, 3975, 4636; nothing is copied). As there: offload costs
//! nothing in the programme, a block's copies have as long as the mean block runs, nodes between candidates are made again and
//! cost nothing, what a block hands to another stays, equal blocks are decided once, what is left over is handed out to late
//! blocks first, and at most 12 rounds move the cap of the programme until the plan is at most 2 % under the budget. We differ: a
//! round keeps what was fastest by the clock, no round ends the search by failing, and both directions of the link carry at once.

mod cells;
mod inner;
mod lower;
mod outer;

use memfit_ir::Bytes;

use super::mixed::{Mix, Transfers, crossing};
use super::{Front, Infeasible, RunList, Task, Window, link, signed, solver, turn};
use crate::Context;
pub(super) use cells::Candidate;
use cells::Cells;
pub(super) use inner::Fate;
use inner::Inner;
use outer::Outer;

/// Rounds of calibration, at most.
const ROUNDS: usize = 12;

/// How the two levels decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planner {
    outer: Outer,
    inner: Inner,
}

/// torchtitan's planner.
pub(super) const EXACT: Planner = Planner { outer: Outer::Blocks, inner: Inner::Exact };

/// The same, with values selected greedily.
pub(super) const GREEDY: Planner = Planner { outer: Outer::Blocks, inner: Inner::Greedy };

/// Its ablation: the same shares for all blocks.
pub(super) const UNIFORM: Planner = Planner { outer: Outer::Uniform, inner: Inner::Exact };

impl Planner {
    /// The fastest that fits of all rounds.
    pub(super) fn plan(
        self,
        task: &Task<'_>,
        budget: Bytes,
        context: &Context<'_>,
    ) -> Result<Front, Infeasible> {
        let plain = RunList::plain(task);
        let cells = Cells::of(task, context.device);
        let programme = outer::Programme::of(task, &plain, &cells, context.device);
        let (mut below, mut above) = (None, None);
        let (mut best, mut lowest): (Option<Front>, Option<Bytes>) = (None, None);
        let limit = signed(budget);
        let mut cap = limit;
        for _ in 0..ROUNDS {
            if (context.stop)() {
                break;
            }
            let mix = match programme.solve(self.outer, cap) {
                Some(shares) => self.inner.select(&cells, &shares),
                // Nothing that the programme knows is as low: a larger cap may do.
                None => {
                    below = Some(cap);
                    match above {
                        Some(above) if above - cap > limit / 288 => cap += (above - cap) / 2,
                        _ => break,
                    }
                    continue;
                }
            };
            let rule = |runs: &RunList, whole: &[Window]| lower::deferred(task, &cells, runs, whole);
            match mix.step(task, budget, &Transfers::By(&rule), context) {
                Ok(front) => {
                    let peak = front.points.last().map_or(0, |point| signed(point.cost.peak));
                    let is_faster = best.as_ref().is_none_or(|best| front.time() < best.time());
                    best = if is_faster { Some(front) } else { best };
                    if peak >= limit - limit / 50 || mix == Mix::default() {
                        break;
                    }
                    below = Some(cap);
                    cap = above.map_or(cap + (limit - peak).max(1), |above| cap + (above - cap) / 2);
                }
                Err(missed) => {
                    lowest = Some(lowest.map_or(missed.needed, |lowest| lowest.min(missed.needed)));
                    above = Some(cap);
                    let over = (signed(missed.needed) - limit).max(limit / 100).max(1);
                    cap = below.map_or(cap - over, |below: i64| below + (cap - below) / 2);
                }
            }
            let bracket = below.zip(above).map(|(below, above): (i64, i64)| above - below);
            if cap <= 0 || bracket.is_some_and(|bracket| bracket <= limit / 288) {
                break;
            }
        }
        best.ok_or_else(|| Infeasible::new(task, budget, lowest))
    }
}

/// The step of one rule for the values of all blocks, told whether the block is the last, lowered as the planner's are.
///
/// # Errors
///
/// [`Infeasible`] if it does not fit: a rule knows no budget.
pub(super) fn ruled(
    task: &Task<'_>,
    budget: Bytes,
    context: &Context<'_>,
    rule: impl Fn(&Candidate, bool) -> Fate,
) -> Result<Front, Infeasible> {
    let cells = Cells::of(task, context.device);
    let last = cells.all.len().saturating_sub(1);
    let fates = cells.all.iter().enumerate().flat_map(|(at, cell)| {
        let rule = &rule;
        cell.candidates.iter().map(move |candidate| rule(candidate, at == last))
    });
    let mix = inner::mix(&cells, fates);
    let lower = |runs: &RunList, whole: &[Window]| lower::deferred(task, &cells, runs, whole);
    mix.step(task, budget, &Transfers::By(&lower), context)
}
