//! Searches at pairs of budgets that are the same whatever the budgets at hand, and what of all that fits those.
//!
//! A chain of budgets leads down from what keeping everything needs: the next one is a byte less than what the plan for the one
//! before takes, or a step less than that one was, if that is lower. At each, a chain of amounts of host memory leads down from
//! all there is to be had in the same way. The fastest of all that fits a budget and an amount is at least as fast as what fits
//! less of either. Between two steps up to one part in [`STEPS`] of the memory above the floor stays unused.

use memfit_ir::{Bytes, Device, Nanos, Tier};
use memfit_sim::simulate;

use super::{Front, Infeasible, Moved, Others, Point, Task, within};
use crate::Context;

/// Steps of a chain of budgets, and of one of amounts of host memory.
const STEPS: (u64, u64) = (24, 6);

/// What has been found for a task, by the device without its host memory, seed and effort.
#[derive(Default)]
pub(super) struct Lattices(Vec<(Device, (u64, u32), Vec<Found>)>);

/// A plan with what it holds in host memory.
#[derive(Clone)]
struct Found {
    moved: Moved,
    host: Bytes,
}

impl Lattices {
    /// All that fits, or that nothing does; `None` if there was no time to look everywhere.
    pub(super) fn fitting(
        &mut self,
        task: &Task<'_>,
        budget: Bytes,
        others: Others,
        context: &Context<'_>,
    ) -> Option<Result<Vec<Moved>, Infeasible>> {
        let host = context.device.host_memory;
        let device = Device { host_memory: everything(context.device), ..context.device.clone() };
        let key = (context.seed, context.effort);
        let known = self.0.iter().position(|(known, with, _)| *known == device && *with == key);
        let at = match known {
            Some(at) => at,
            None => {
                let found = search(task, (&device, others), context)?;
                self.0.push((device, key, found));
                self.0.len() - 1
            }
        };
        let all = self.0[at].2.iter().filter(|found| found.host <= host);
        let fits = all.clone().filter(|found| found.moved.peak <= budget);
        let fitting: Vec<Moved> = fits.map(|found| found.moved.clone()).collect();
        let least = all.map(|found| found.moved.peak).min();
        Some(if fitting.is_empty() { Err(Infeasible::new(task, budget, least)) } else { Ok(fitting) })
    }
}

/// All the host memory there might be.
fn everything(device: &Device) -> Bytes {
    if device.link.is_some() { Bytes::MAX } else { Bytes::ZERO }
}

/// All plans of the lattice.
fn search(task: &Task<'_>, (device, others): (&Device, Others), context: &Context<'_>) -> Option<Vec<Found>> {
    let (floor, peak) = (task.floor().0, task.reference());
    let step = Bytes(peak.0.saturating_sub(floor.0) / STEPS.0);
    let mut all: Vec<Found> = Vec::new();
    let mut budget = peak;
    loop {
        let found = at(task, budget, (device, everything(device), others), context)?;
        let lowest = found.iter().map(|found| found.moved.peak).min();
        if let Some(most) = found.iter().map(|found| found.host).max() {
            all.extend(found);
            fewer(task, (budget, most), (device, others), context, &mut all)?;
        }
        if budget <= floor {
            return Some(all);
        }
        // A byte below what was found, or a step; and at last the floor.
        let next = lowest.unwrap_or(budget).min(budget.saturating_sub(step)).saturating_sub(Bytes(1));
        budget = next.max(floor);
    }
}

/// Adds plans for `budget` that hold less in host memory than `most`.
fn fewer(
    task: &Task<'_>,
    (budget, most): (Bytes, Bytes),
    (device, others): (&Device, Others),
    context: &Context<'_>,
    all: &mut Vec<Found>,
) -> Option<()> {
    let step = Bytes(most.0 / STEPS.1);
    let mut host = most;
    while host > Bytes::ZERO {
        host = host.saturating_sub(step.max(Bytes(1)));
        let fits = |found: &&Found| found.moved.peak <= budget && found.host <= host;
        // Nothing is faster than what needs no wait.
        let known = all.iter().filter(fits).min_by_key(|found| found.moved.time);
        if let Some(known) = known.filter(|known| known.moved.time <= task.base_time()) {
            host = host.min(known.host);
            continue;
        }
        let found = at(task, budget, (device, host, others), context)?;
        let Some(lower) = found.iter().map(|found| found.host).max() else { break };
        host = host.min(lower);
        all.extend(found);
    }
    Some(())
}

/// What one search finds.
fn at(
    task: &Task<'_>,
    budget: Bytes,
    (device, host, others): (&Device, Bytes, Others),
    context: &Context<'_>,
) -> Option<Vec<Found>> {
    if (context.stop)() {
        return None;
    }
    let device = Device { host_memory: host, ..device.clone() };
    let front: Result<Front, Infeasible> =
        within(task, budget, others, &Context { device: &device, ..*context });
    let points = front.map_or_else(|_| Vec::new(), |front| front.points);
    let found = points.into_iter().filter_map(|Point { cost, moved, .. }| {
        let program = moved?;
        let host = simulate(task.graph, &program, None, &device).tier_peaks[Tier::Host.index()];
        let (peak, time): (Bytes, Nanos) = (cost.peak, cost.time);
        Some(Found { moved: Moved { program, peak, time }, host })
    });
    Some(found.collect())
}
