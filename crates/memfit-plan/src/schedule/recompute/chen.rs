//! Segments: keep what crosses from one segment of the forward pass to the next, make the rest again.
//!
//! Source: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174):
//! equal segments (`chen-sqrt`), segments of a byte budget searched over a grid (`chen-greedy`, its Algorithm
//! 3), and recursion (`chen-recursive`, §4.4 with k = 1). We differ as Checkmate's "linearised" baselines do
//! (arXiv:1910.02653): any graph is cut along its order of first runs. For a chain of n equal layers √n
//! segments need O(√n) activations and one more forward pass, recursion O(log n) and O(n log n) work. Each
//! gives a few schedules whatever the budget, so a larger one is never slower. Time O(grid × operands).
//! Wrong choice for graphs with long skips, where much crosses every cut.

use memfit_ir::{Bytes, Nanos, ValueId};

use super::ids::NodeId;
use super::layers::turn;
use super::rebuild::{by_bytes, rebuild, segmented};
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::{Context, Info};

/// Equal numbers of ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChenSqrt;

/// Equal bytes, for many sizes of segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChenGreedy;

/// Segments within segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChenRecursive;

const SOURCE: &str = "Chen et al., arXiv:1604.06174";

impl Scheduler for ChenSqrt {
    fn info(&self) -> Info {
        let summary = "the forward pass in sqrt(n) segments of equal length";
        Info { name: "chen-sqrt", summary, source: SOURCE, year: 2016 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, _: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let segments = (1..).find(|&k: &usize| k * k >= turn).unwrap_or(1);
        let length = turn.div_ceil(segments.max(1)).max(1);
        let cuts: Vec<usize> = (1..segments).map(|k| k * length).collect();
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        front.add_schedule(task, segmented(task, turn, &cuts));
        front.within(task, budget, Nanos::ZERO)
    }
}

impl Scheduler for ChenGreedy {
    fn info(&self) -> Info {
        let summary = "the forward pass in segments of equal bytes, the best of many sizes";
        Info { name: "chen-greedy", summary, source: SOURCE, year: 2016 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        for schedule in by_bytes(task, context.stop) {
            front.add_schedule(task, schedule);
        }
        front.within(task, budget, Nanos::ZERO)
    }
}

impl Scheduler for ChenRecursive {
    fn info(&self) -> Info {
        let summary = "halves of halves: the least memory, for n log n work";
        Info { name: "chen-recursive", summary, source: SOURCE, year: 2016 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, _: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        for shift in [0usize, 1, 2, 3] {
            // Of what is made again, what lies 2^k steps back is remembered: the next to be asked for are those
            // right before, so half of the way is never walked twice.
            let remembers = |place: usize, batch: &[NodeId]| {
                let back = batch.len() - place;
                back.is_power_of_two() || back <= (1 << (2 * shift))
            };
            let keeps = |value: ValueId| {
                let back = task.producer[value.index()].map(|producer| turn - producer.index().min(turn));
                back.is_some_and(usize::is_power_of_two)
            };
            let schedule = rebuild(task, turn, keeps, remembers);
            // Every later run at most as often as there are nodes: beyond that it is no plan for anybody.
            if schedule.len() < task.nodes().saturating_mul(40) {
                front.add_schedule(task, schedule);
            }
        }
        front.within(task, budget, Nanos::ZERO)
    }
}
