//! Swaps that cost nothing first; then of swapping and recomputing, for each value, what adds less.
//!
//! Source: Peng, Shi, Dai, Jin, Ma, Xiong, Yang and Qian, "Capuchin: Tensor-based GPU Memory Management for Deep
//! Learning", ASPLOS 2020, §4. Candidates are the values that are not used while the most is live. By free time, the time
//! between the two uses less both transfers, those that the link has time for are swapped, until enough is saved. Of what is
//! left, a value is swapped or recomputed, whichever adds less: transfers beyond the free time, or the ops from what is there
//! to it, those that other choices have dropped included. What is recomputed together is kept together (collective
//! recomputation). Feedback: where the clock finds too much live, more is saved the next time. We differ: the measured step is
//! that of the device's costs, and the clock, not the next step, says what came too late. Time O(rounds × candidates × ops).
//! Ties go to the larger value. Wrong choice where memory is short in several places of the step.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use memfit_ir::{Bytes, ValueId};

use super::mixed::longest;
use super::{Chooser, Front, Gap, Gaps, Infeasible, RunList, Scheduler, Task, rebuild, signed, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Capuchin;

/// How often more is saved, where it was not enough.
const ROUNDS: usize = 16;

impl Scheduler for Capuchin {
    fn info(&self) -> Info {
        Info {
            name: "capuchin",
            summary: "swaps that cost nothing, then swapping or recomputing, whichever adds less",
            source: "Peng et al., Capuchin, ASPLOS 2020",
            year: 2020,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let plain = RunList::plain(task);
        let mut chooser = Chooser::of(task, &plain, budget, context)?;
        let (highest, most) = Gaps::highest(&chooser.step().live).unwrap_or_default();
        let limit = chooser.limit();
        if most <= limit {
            let moved = chooser.run(&[]);
            return chooser.found(moved);
        }
        let mut missed = Err(Infeasible::new(task, budget, None));
        let mut saving = most - limit;
        for _ in 0..ROUNDS {
            if (context.stop)() {
                break;
            }
            let Some(choice) = Choice::of(task, chooser.step(), highest, saving) else { break };
            let dropped = |value: ValueId| choice.recomputed.contains(&value);
            let runs = rebuild(task, turn(task), |value| !dropped(value), |_, _| true);
            let mut again = Chooser::of(task, &runs, budget, context)?;
            let swapped = longest(again.step(), &choice.swapped);
            let moved = again.run(&swapped);
            let over = again.lowest().map_or(0, |lowest| signed(lowest) - limit);
            missed = again.found(moved);
            if missed.is_ok() {
                break;
            }
            saving += over.max(saving / 16).max(1);
        }
        missed
    }
}

/// What is away while the most is live.
#[derive(Default)]
struct Choice {
    swapped: BTreeSet<ValueId>,
    recomputed: BTreeSet<ValueId>,
}

impl Choice {
    /// One that saves so many bytes at the run `highest`; `None` if there is not so much to save.
    fn of(task: &Task<'_>, step: &Gaps, highest: usize, mut saving: i64) -> Option<Choice> {
        let mut choice = Choice::default();
        let mut candidates: Vec<&Gap> =
            step.gaps.iter().filter(|gap| gap.away(step.live.len()).contains(&highest)).collect();
        candidates.sort_by(|one, other| {
            other.slack(step).total_cmp(&one.slack(step)).then(Reverse(one.size).cmp(&Reverse(other.size)))
        });
        // What the link has time for, before the most is live and after it.
        let end = step.begins.last().copied().unwrap_or(0);
        let (mut before, mut after) = (step.begins[highest], end - step.begins[highest]);
        let mut rest = Vec::new();
        for gap in candidates {
            let free = gap.slack(step) >= 0.0 && gap.out <= before && gap.back <= after;
            if saving > 0 && free {
                (before, after) = (before - gap.out, after - gap.back);
                choice.swapped.insert(gap.value);
                saving -= gap.size;
            } else {
                rest.push(gap);
            }
        }
        while saving > 0 {
            // The least time for what it saves.
            let rated = rest.iter().enumerate().map(|(place, gap)| {
                let swap =
                    (gap.out + gap.back) as f64 - gap.slack(step).max(0.0).min(before.min(after) as f64);
                let (added, swaps) = match recompute_time(task, gap, highest, &choice.recomputed) {
                    Some(time) if (time as f64) < swap => (time as f64, false),
                    _ => (swap.max(0.0), true),
                };
                (added / gap.size.max(1) as f64, place, swaps)
            });
            let (_, place, swaps) =
                rated.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)))?;
            let gap = rest.remove(place);
            let kind = if swaps { &mut choice.swapped } else { &mut choice.recomputed };
            kind.insert(gap.value);
            saving -= gap.size;
        }
        Some(choice)
    }
}

/// Ns of the ops that make the value of `gap` again from what is there at its end; `None` if it can't be made again.
fn recompute_time(task: &Task<'_>, gap: &Gap, highest: usize, dropped: &BTreeSet<ValueId>) -> Option<u64> {
    let mut time = 0u64;
    let mut seen = BTreeSet::new();
    let mut todo = vec![gap.value];
    while let Some(value) = todo.pop() {
        let producer = task.producer[value.index()];
        // What is used after the most was live is there, unless it was dropped.
        let last = task.readers.row(value.index()).last().map_or(0, |reader| reader.index());
        let there = producer.is_none() || task.live_out[value.index()] || last > highest;
        if value != gap.value && there && !dropped.contains(&value) || !seen.insert(producer) {
            continue;
        }
        let producer = producer?.index();
        let in_time = task.deadline[producer].is_none_or(|deadline| deadline.index() >= gap.to);
        if !task.recomputable[producer] || !in_time {
            return None;
        }
        time = time.saturating_add(task.later_cost[producer]);
        todo.extend(task.later_reads.row(producer));
    }
    Some(time)
}
