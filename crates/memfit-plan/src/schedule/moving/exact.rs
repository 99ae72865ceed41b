//! All there is to choose where few values can be away: which are, in which tier, from when until when.
//!
//! Depth-first over the gaps, each kept first and then away in every way. A branch ends where live bytes exceed the budget even
//! with all gaps that are left away for as long as they last, and where what is away so far takes as long as the fastest step
//! that is known: more transfers end nothing earlier, as long as the two directions of a link don't share its rate.
//! Time O(product of the ways, each a run of the clock), which [`MOST`] bounds.

use memfit_ir::{Bytes, Device, Form, Nanos, Tier};

use super::{Algorithms, Gap, Gaps, Leave, Moved, RunList, Task, live_of, timed};
use crate::Context;
use crate::problem::signed;

/// Ways of all gaps together, at most.
const MOST: usize = 20_000;

/// The gaps of a task, each with all the ways in which its value may be away.
pub(super) struct Space<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) runs: &'a RunList,
    /// Live bytes by run, all kept.
    live: Vec<i64>,
    gaps: Vec<(Gap, Vec<Leave>)>,
    /// Whether no transfer makes another one faster.
    is_monotone: bool,
}

/// A step that is being chosen.
struct Branch<'a> {
    budget: Bytes,
    context: &'a Context<'a>,
    chosen: Vec<Leave>,
    fastest: Option<Nanos>,
    best: Option<Moved>,
}

impl<'a> Space<'a> {
    /// That of a step; `None` if there is too much to choose, or a choice of algorithms beside. Budgets don't matter.
    pub(super) fn of(
        task: &'a Task<'a>,
        runs: &'a RunList,
        step: &Gaps,
        device: &Device,
    ) -> Option<Space<'a>> {
        if task.has_choices() {
            return None;
        }
        let tiers: Vec<Tier> = Tier::ALL
            .into_iter()
            .map(|(tier, _)| tier)
            .filter(|&tier| device.link_to(tier).is_some())
            .collect();
        let mut all = 1usize;
        let mut gaps = Vec::new();
        for &gap in &step.gaps {
            let ways = ways(&gap, &tiers);
            all = all.checked_mul(ways.len() + 1).filter(|&all| all <= MOST)?;
            gaps.push((gap, ways));
        }
        let shares = |tier: &Tier| {
            device.link_to(*tier).is_some_and(|link| link.duplex_cap < link.out_bandwidth + link.in_bandwidth)
        };
        let is_monotone = !tiers.iter().any(shares);
        Some(Space { task, runs, live: step.live.clone(), gaps, is_monotone })
    }

    /// The fastest step within the budgets, if one is faster than `known`.
    pub(super) fn faster(&self, known: Option<Nanos>, budget: Bytes, context: &Context<'_>) -> Option<Moved> {
        let mut branch = Branch { budget, context, chosen: Vec::new(), fastest: known, best: None };
        self.choose(&mut branch, 0);
        branch.best
    }

    fn choose(&self, branch: &mut Branch<'_>, at: usize) {
        let base = self.task.base_time();
        if (branch.context.stop)() || branch.fastest.is_some_and(|time| time <= base) {
            return;
        }
        let open: Vec<Gap> = self.gaps[at..].iter().map(|(gap, _)| *gap).collect();
        let least = live_of(&self.live, &branch.chosen, &open, |leave| self.size(leave));
        if least.iter().any(|&live| live > signed(branch.budget)) {
            return;
        }
        let Some((_, ways)) = self.gaps.get(at) else {
            self.count(branch);
            return;
        };
        self.choose(branch, at + 1);
        for &way in ways {
            branch.chosen.push(way);
            if !self.is_vain(branch) {
                self.choose(branch, at + 1);
            }
            branch.chosen.pop();
        }
    }

    fn size(&self, leave: &Leave) -> i64 {
        self.task.size[leave.value.index()]
    }

    /// Whether what is away so far takes too long already.
    fn is_vain(&self, branch: &Branch<'_>) -> bool {
        let Some(fastest) = branch.fastest.filter(|_| self.is_monotone) else { return false };
        let as_given = Algorithms::default();
        let device = Device { host_memory: Bytes::MAX, ..branch.context.device.clone() };
        let found = timed(self.task, (self.runs, &branch.chosen, &as_given), Bytes::MAX, &device);
        matches!(found, Some(Ok(moved)) if moved.time >= fastest)
    }

    /// Takes what is chosen if it is faster and fits.
    fn count(&self, branch: &mut Branch<'_>) {
        let as_given = Algorithms::default();
        let found =
            timed(self.task, (self.runs, &branch.chosen, &as_given), branch.budget, branch.context.device);
        if let Some(Ok(moved)) = found
            && branch.fastest.is_none_or(|fastest| moved.time < fastest)
        {
            branch.fastest = Some(moved.time);
            branch.best = Some(moved);
        }
    }
}

/// In which tier, copied from when on, there until when, and back when.
fn ways(gap: &Gap, tiers: &[Tier]) -> Vec<Leave> {
    let first = if gap.made { gap.from + 1 } else { gap.from };
    let mut ways = Vec::new();
    for &tier in tiers {
        for store in first..gap.to {
            // Before the run `store` it is still there: it goes right then, or after a run that follows.
            for gone in (store.max(gap.from + 1) - 1)..gap.to - 1 {
                for back in gone + 2..=gap.to {
                    let form = Form::Tier(tier);
                    ways.push(Leave { value: gap.value, form, store, gone, back, used: gap.to, kept: false });
                }
            }
        }
    }
    ways
}
