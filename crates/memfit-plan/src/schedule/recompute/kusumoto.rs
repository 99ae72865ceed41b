//! An increasing sequence of lower sets: keep what crosses from one to the next, make each block again once.
//!
//! Source: Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient
//! Backpropagation" (NeurIPS 2019, arXiv:1905.11722), the approximate dynamic programme over the lower sets
//! that single nodes span, time-centric. We differ: times are put into 100 classes, the family is thinned to
//! 48 sets, the block's own need is counted as twice its bytes, and what the programme returns is measured
//! as a whole schedule, parameters, gradients and workspace included. Optimal within the family and
//! the paper's account of memory; none once measured. Time O(family² × classes × budgets). The budgets it is
//! solved for are fixed, so a larger one is never slower. Wrong choice below what one block needs: no node
//! runs more than twice.

use memfit_ir::{Bytes, Nanos, ValueId};

use super::ids::NodeId;
use super::layers::turn;
use super::rebuild::rebuild;
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::{Context, Info};

/// The approximate dynamic programme.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kusumoto;

const FAMILY: usize = 48;
const CLASSES: usize = 100;
const BUDGETS: i64 = 16;

/// A set of forward nodes that is closed under predecessors.
struct Lower {
    inside: Vec<bool>,
    /// Bytes of its values that are read outside of it.
    boundary: i64,
    /// Those values.
    crossing: Vec<ValueId>,
}

impl Scheduler for Kusumoto {
    fn info(&self) -> Info {
        Info {
            name: "kusumoto",
            summary: "the best sequence of lower sets, by dynamic programming",
            source: "Kusumoto et al., NeurIPS 2019, arXiv:1905.11722",
            year: 2019,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        let family = family(task, turn);
        let total: i64 =
            (0..turn).flat_map(|node| task.writes.row(node)).map(|&v| task.size[v.index()]).sum();
        for part in 1..=BUDGETS {
            if (context.stop)() {
                break;
            }
            let chosen = solve(task, turn, &family, total / BUDGETS * part);
            for sets in chosen {
                // A value is kept if some chosen set has it inside and a reader outside.
                let keeps = |value: ValueId| {
                    let producer = task.producer[value.index()].map(NodeId::index);
                    let Some(producer) = producer.filter(|&producer| producer < turn) else { return true };
                    let crosses = |set: &Lower| {
                        let out = |reader: &NodeId| reader.index() < turn && !set.inside[reader.index()];
                        set.inside[producer] && task.readers.row(value.index()).iter().any(out)
                    };
                    let last = sets.last().is_some_and(|&last| !family[last].inside[producer]);
                    last || sets.iter().any(|&set| crosses(&family[set]))
                };
                front.add_schedule(task, rebuild(task, turn, keeps, |_, _| true));
            }
        }
        front.within(task, budget, Nanos::ZERO)
    }
}

/// The lower sets of single nodes, the least boundary of each stretch of them, by size.
fn family(task: &Task<'_>, turn: usize) -> Vec<Lower> {
    let mut sets: Vec<Lower> = Vec::new();
    let stretch = turn.div_ceil(FAMILY).max(1);
    for from in (0..turn).step_by(stretch) {
        let until = (from + stretch).min(turn);
        let few = (until - from).min(4);
        let nodes = (0..few).map(|k| from + (until - from) * k / few);
        // What a node alone spans may be next to nothing, a counter that is updated beside the rest: such sets cut
        // nothing off, so that all nodes up to there stand for them.
        let whole = |node: usize| (0..turn).map(|at| at <= node).collect::<Vec<bool>>();
        let spans = nodes.map(|node| {
            let (span, whole) = (ancestors(task, turn, node), whole(node));
            let most = 2 * made(task, &span) >= made(task, &whole);
            lower(task, turn, if most { span } else { whole })
        });
        sets.extend(spans.min_by_key(|set| set.boundary));
    }
    sets.sort_by_key(|set| set.inside.iter().filter(|inside| **inside).count());
    sets
}

/// Bytes that the nodes `inside` make.
fn made(task: &Task<'_>, inside: &[bool]) -> i64 {
    let nodes = (0..inside.len()).filter(|&at| inside[at]);
    nodes.flat_map(|at| task.writes.row(at)).map(|&value| task.size[value.index()]).sum()
}

fn ancestors(task: &Task<'_>, turn: usize, node: usize) -> Vec<bool> {
    let mut inside = vec![false; turn];
    inside[node] = true;
    for at in (0..=node).rev().filter(|&at| at < turn) {
        if inside[at] {
            for &read in task.reads.row(at) {
                let producer = task.producer[read.index()];
                if let Some(producer) = producer.filter(|producer| producer.index() < at) {
                    inside[producer.index()] = true;
                }
            }
        }
    }
    inside
}

fn lower(task: &Task<'_>, turn: usize, inside: Vec<bool>) -> Lower {
    let crosses = |value: &&ValueId| {
        let out = |reader: &NodeId| reader.index() < turn && !inside[reader.index()];
        task.readers.row(value.index()).iter().any(out)
    };
    let values = (0..turn).filter(|&at| inside[at]).flat_map(|at| task.writes.row(at)).filter(crosses);
    let crossing: Vec<ValueId> = values.copied().collect();
    let boundary = crossing.iter().map(|&value| task.size[value.index()]).sum();
    Lower { inside, boundary, crossing }
}

/// Sequences of sets with the least time and with the least kept bytes whose need stays within `limit`.
fn solve(task: &Task<'_>, turn: usize, family: &[Lower], limit: i64) -> Vec<Vec<usize>> {
    let all: u64 = task.cost[..turn].iter().fold(0u64, |a, &b| a.saturating_add(b)).max(1);
    let class = |time: u64| {
        usize::try_from(u128::from(time) * CLASSES as u128 / u128::from(all)).unwrap_or(CLASSES).min(CLASSES)
    };
    // By set (0: the empty one) and class of time: least kept bytes, and from where.
    let mut best: Vec<Vec<Option<(i64, usize, usize)>>> = vec![vec![None; CLASSES + 1]; family.len() + 1];
    best[0][0] = Some((0, 0, 0));
    for to in 1..=family.len() {
        for from in 0..to {
            let before = |node: usize| from > 0 && family[from - 1].inside[node];
            let set = &family[to - 1];
            if from > 0 && (0..turn).any(|node| family[from - 1].inside[node] && !set.inside[node]) {
                continue; // Not a subset.
            }
            let (mut bytes, mut time) = (0i64, 0u64);
            for node in (0..turn).filter(|&node| set.inside[node] && !before(node)) {
                bytes += task.writes.row(node).iter().map(|&v| task.size[v.index()]).sum::<i64>();
                if task.recomputable[node] {
                    time = time.saturating_add(task.later_cost[node]);
                }
            }
            let new = set.crossing.iter().filter(|value| {
                task.producer[value.index()].is_none_or(|producer| !before(producer.index()))
            });
            let keep: i64 = new.map(|&value| task.size[value.index()]).sum();
            let step = class(time);
            for old in 0..=CLASSES - step.min(CLASSES) {
                let Some((kept, _, _)) = best[from][old] else { continue };
                let now = kept + keep;
                let fits = kept.saturating_add(bytes.saturating_mul(2)) <= limit.saturating_mul(2);
                if fits && best[to][old + step].is_none_or(|(least, _, _)| now < least) {
                    best[to][old + step] = Some((now, from, old));
                }
            }
        }
    }
    // The last block is not made again: any set may be the last one chosen.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let rest = |set: usize| -> i64 {
        let outside = (0..turn).filter(|&node| set == 0 || !family[set - 1].inside[node]);
        outside.flat_map(|node| task.writes.row(node)).map(|&value| task.size[value.index()]).sum()
    };
    let fits =
        |set: usize, class: usize| best[set][class].is_some_and(|(kept, _, _)| kept + rest(set) <= limit);
    let states = || (0..=family.len()).flat_map(|set| (0..=CLASSES).map(move |class| (set, class)));
    let quick = states().filter(|&(set, class)| fits(set, class)).min_by_key(|&(set, class)| (class, set));
    let small = states()
        .filter_map(|(set, class)| best[set][class].map(|(kept, _, _)| (kept + rest(set), class, set)))
        .min();
    ends.extend(quick);
    ends.extend(small.map(|(_, class, set)| (set, class)));
    ends.into_iter()
        .map(|(mut set, mut class)| {
            let mut sets = Vec::new();
            while set > 0 {
                sets.push(set - 1);
                let Some((_, from, old)) = best[set][class] else { break };
                (set, class) = (from, old);
            }
            sets.reverse();
            sets
        })
        .collect()
}
