//! Segments whose ends are bred: thresholds on live bytes, then a genetic search over the cuts.
//!
//! Source: MegEngine's static-graph Sublinear (`seq_sublinear_memory.cpp`), which searches segmentations of
//! Chen et al. (arXiv:1604.06174) by thresholds and by a genetic algorithm. We differ: the fitness is the
//! true live peak with parameters, gradients and workspace, every evaluated schedule joins the front, so time
//! counts as well as bytes, and a value dropped is made again wherever it is read. No guarantee. Time
//! O(evaluations × operands); every evaluation is the same whatever the budget, so a larger one is never
//! slower. Ties go to the earlier individual. Wrong choice where time matters more than memory.

use memfit_ir::{Bytes, Nanos};

use super::layers::turn;
use super::random::Random;
use super::rebuild::segmented;
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::{Context, Info};

/// Breeds segmentations. Defaults as in MegEngine, except that it breeds at all.
#[derive(Clone, Copy, Debug)]
pub struct Sublinear {
    /// Thresholds to try: so many from above, and so many around the best.
    pub thresholds: usize,
    /// Generations.
    pub generations: usize,
    /// Individuals of a generation.
    pub pool: usize,
}

impl Sublinear {
    /// What the table holds.
    pub const DEFAULT: Sublinear = Sublinear { thresholds: 10, generations: 20, pool: 20 };
}

impl Scheduler for Sublinear {
    fn info(&self) -> Info {
        Info {
            name: "sublinear",
            summary: "segments by thresholds on live bytes and a genetic search",
            source: "MegEngine, seq_sublinear_memory.cpp",
            year: 2020,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        let mut herd: Vec<(Bytes, Vec<usize>)> = Vec::new();
        let judge = |cuts: Vec<usize>, front: &mut Front| {
            let schedule = segmented(task, turn, &cuts);
            let peak = schedule.cost(task).map_or(Bytes::MAX, |cost| cost.peak);
            front.add_schedule(task, schedule);
            (peak, cuts)
        };
        let total: i64 = (0..turn).map(|node| made(task, node)).sum();
        let tries = i64::try_from(self.thresholds.max(2)).unwrap_or(10);
        let halves = (0..20).map(|k| total >> k).take_while(|&size| size >= 1024);
        let steps = (1..=tries).map(|k| total / (tries + 1) * k);
        for size in halves.chain(steps).collect::<Vec<_>>() {
            herd.push(judge(split(task, turn, size), &mut front));
        }
        herd.sort();
        // Large tasks get fewer generations: the same work for all.
        let generations = self.generations.min(400_000 / (task.nodes() + 1) / self.pool.max(1)).max(1);
        let random = &mut Random::new(context.seed ^ 2333);
        for _ in 0..generations * context.effort.max(1) as usize {
            if (context.stop)() || turn < 2 {
                break;
            }
            herd.truncate(self.pool.max(2));
            for _ in 0..self.pool {
                // The better half has twice the children.
                let pick = |random: &mut Random| random.below(herd.len()).min(random.below(herd.len()));
                let (mother, father) = (pick(random), pick(random));
                let point = random.below(turn);
                let mut child: Vec<usize> =
                    herd[mother].1.iter().copied().filter(|&cut| cut < point).collect();
                child.extend(herd[father].1.iter().copied().filter(|&cut| cut >= point));
                mutate(&mut child, turn, random);
                mutate(&mut child, turn, random);
                let child = judge(child, &mut front);
                herd.push(child);
            }
            herd.sort();
            herd.dedup();
        }
        front.within(task, budget, Nanos::ZERO)
    }
}

fn made(task: &Task<'_>, node: usize) -> i64 {
    task.writes.row(node).iter().map(|&value| task.size[value.index()]).sum()
}

/// Cuts where a segment has made `size` bytes that live to its end.
fn split(task: &Task<'_>, turn: usize, size: i64) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut live = 0;
    for node in 0..turn {
        live += made(task, node);
        for &value in task.reads.row(node) {
            if task.readers.row(value.index()).last().is_some_and(|last| last.index() == node) {
                live -= task.size[value.index()].min(live);
            }
        }
        if live >= size && node + 1 < turn {
            cuts.push(node + 1);
            live = 0;
        }
    }
    cuts
}

/// One in four each: a cut more, one less, one moved, nothing.
fn mutate(cuts: &mut Vec<usize>, turn: usize, random: &mut Random) {
    match random.below(4) {
        0 => cuts.push(1 + random.below(turn - 1)),
        1 if !cuts.is_empty() => {
            cuts.remove(random.below(cuts.len()));
        }
        2 if !cuts.is_empty() => {
            let at = random.below(cuts.len());
            cuts[at] = 1 + random.below(turn - 1);
        }
        _ => {}
    }
    cuts.sort_unstable();
    cuts.dedup();
}
