//! From "swap these, make those again, keep the rest" to a step: what hybrids that decide by value have in common.

use std::collections::{BTreeMap, BTreeSet};

use memfit_ir::{Bytes, ValueId};

use super::{
    Algorithms, Chooser, Front, Gaps, Infeasible, RunList, Task, Window, link, rebuild, timed, turn,
};
use crate::Context;

/// What of the forward pass does not stay for the backward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mix {
    /// What waits in other memory.
    pub(super) swapped: BTreeSet<ValueId>,
    /// What is made again, once, before its first use.
    pub(super) recomputed: BTreeSet<ValueId>,
}

/// Where transfers stand that [`Mix::step`] has to lower.
pub(super) enum Transfers<'a> {
    /// As early and as late as hides them, where there is room.
    Hidden,
    /// As the rule has it.
    By(&'a dyn Fn(&RunList, &[Window]) -> Vec<Window>),
}

impl Mix {
    /// Every node once, and what is made again before its first use in the backward pass.
    pub(super) fn runs(&self, task: &Task<'_>) -> RunList {
        rebuild(task, turn(task), |value| !self.recomputed.contains(&value), |_, _| true)
    }

    /// The step.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if it does not fit: with the least live bytes that it came to.
    pub(super) fn step(
        &self,
        task: &Task<'_>,
        budget: Bytes,
        transfers: &Transfers<'_>,
        context: &Context<'_>,
    ) -> Result<Front, Infeasible> {
        of_runs(task, (&self.runs(task), &self.swapped), budget, transfers, context)
    }
}

/// `runs` with `swapped` away for the longest of the times in which they are not used.
///
/// # Errors
///
/// [`Infeasible`] if that does not fit: with the least live bytes that it came to.
pub(super) fn of_runs(
    task: &Task<'_>,
    (runs, swapped): (&RunList, &BTreeSet<ValueId>),
    budget: Bytes,
    transfers: &Transfers<'_>,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    // More runs than that are no plan for anybody, and take long to look at.
    if runs.len() > task.nodes().saturating_mul(40) {
        return Err(Infeasible::new(task, budget, None));
    }
    if swapped.is_empty() || link(context.device).is_none() {
        let told = timed(task, (runs, &[], &Algorithms::default()), budget, context.device);
        return match told {
            Some(Ok(moved)) => Ok(moved.front(task, runs)),
            Some(Err(peak)) => Err(Infeasible::new(task, budget, Some(peak))),
            None => Err(Infeasible::new(task, budget, None)),
        };
    }
    let mut chooser = Chooser::of(task, runs, budget, context)?;
    let chosen = longest(chooser.step(), swapped);
    let moved = match transfers {
        Transfers::Hidden => chooser.run(&chosen),
        Transfers::By(rule) => {
            let whole: Vec<Window> =
                chosen.iter().map(|&at| Window::whole(chooser.step().gaps[at])).collect();
            chooser.run_at(&rule(runs, &whole))
        }
    };
    chooser.found(moved)
}

/// Of each of `values` the longest gap.
pub(super) fn longest(step: &Gaps, values: &BTreeSet<ValueId>) -> Vec<usize> {
    let mut longest = BTreeMap::new();
    for (at, gap) in step.gaps.iter().enumerate().filter(|(_, gap)| values.contains(&gap.value)) {
        let time = step.begins[gap.to] - step.begins[gap.from + 1];
        let best = longest.entry(gap.value).or_insert((time, at));
        if time > best.0 {
            *best = (time, at);
        }
    }
    longest.into_values().map(|(_, at)| at).collect()
}

/// What forward makes and backward reads and that takes memory, in the order in which it is made.
pub(super) fn crossing(task: &Task<'_>, turn: usize) -> Vec<ValueId> {
    let made = (0..turn).flat_map(|node| task.writes.row(node)).copied();
    let late = |value: &ValueId| {
        let last = task.readers.row(value.index()).last();
        task.size[value.index()] > 0 && last.is_some_and(|last| last.index() >= turn)
    };
    made.filter(late).collect()
}

/// The faster of two, or that both are none, with the least that was needed.
pub(super) fn better(
    one: Result<Front, Infeasible>,
    other: Result<Front, Infeasible>,
) -> Result<Front, Infeasible> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(if other.time() < one.time() { other } else { one }),
        (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
        (Err(one), Err(other)) => Err(if other.needed < one.needed { other } else { one }),
    }
}
