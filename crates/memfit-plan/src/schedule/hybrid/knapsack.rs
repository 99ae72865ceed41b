//! What is worth most to keep, by a knapsack over bytes and run time; the rest is made again.
//!
//! Source: the activation memory budget of PyTorch's compiler (`torch/_functorch/partitioners.py`, 2024), whose default solver is a
//! dynamic programme over a share of the bytes that may be saved. What the forward pass makes for the backward pass, and what
//! convolutions and products make, is worth the run time of the op that makes it; all that is not kept is made again, one copy
//! each, before its first use. We differ: a budget is bytes, so shares are tried, every twentieth from all down to
//! nothing, and the fastest that fits is taken, as somebody does who tunes that option; cheap ops between two candidates are no
//! min-cut's; generators are replayed or kept, never redrawn. Sizes are rounded up to 1/1000 of all of them. Time
//! O(shares × operands + values × 1000). Ties go to what is made last. Wrong choice at tight budgets: all that is read early in the backward pass
//! is made at once and kept, so that the peak rises where the share falls (pytorch#197838).

use memfit_ir::{Bytes, ValueId};

use super::mixed::{Mix, Transfers, better, crossing};
use super::{Front, Infeasible, Layer, RunList, Scheduler, Task, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Knapsack;

/// Sizes that are told apart.
const SLOTS: usize = 1000;

/// Shares of what may be saved that are tried, beside nothing.
const SHARES: usize = 20;

impl Scheduler for Knapsack {
    fn info(&self) -> Info {
        Info {
            name: "knapsack",
            summary: "keeps what is worth most by a knapsack, runs the rest again",
            source: "PyTorch, activation_memory_budget (torch/_functorch/partitioners.py)",
            year: 2024,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let items = candidates(task);
        let total: i64 = items.iter().map(|&(_, size, _)| size).sum();
        let unit = (total / i64::try_from(SLOTS).unwrap_or(1)).max(1);
        let weighed: Vec<(usize, u64)> =
            items.iter().map(|&(_, size, time)| (slots(size, unit), time)).collect();
        let table = Packing::of(&weighed, SLOTS);
        let plain = RunList::plain(task).cost(task).map(|cost| cost.peak);
        let mut best = Err(Infeasible::new(task, budget, plain));
        for share in (0..=SHARES).rev() {
            if (context.stop)() {
                break;
            }
            let kept = table.chosen(SLOTS * share / SHARES);
            let again = items.iter().zip(kept).filter(|(_, kept)| !kept).map(|(&(value, ..), _)| value);
            let mix = Mix { recomputed: again.collect(), ..Mix::default() };
            best = better(best, mix.step(task, budget, &Transfers::Hidden, context));
        }
        best
    }
}

fn slots(size: i64, unit: i64) -> usize {
    usize::try_from((size + unit - 1) / unit).unwrap_or(usize::MAX)
}

/// What may be saved: with its bytes and the time of the op that makes it.
fn candidates(task: &Task<'_>) -> Vec<(ValueId, i64, u64)> {
    let turn = turn(task);
    let mut values = crossing(task, turn);
    let is_dear = |node: &super::NodeId| task.layer(*node) != Layer::Cheap;
    let dear = task.node_ids().take(turn).filter(is_dear).flat_map(|node| task.writes_of(node, true));
    values.extend(dear.filter(|value| task.size[value.index()] > 0));
    values.sort_unstable_by_key(|value| (task.producer[value.index()], *value));
    values.dedup();
    let time = |value: ValueId| task.producer[value.index()].map(|node| task.later_cost[node.index()]);
    let may = values.into_iter().filter(|&value| task.is_recomputable(value));
    may.filter_map(|value| Some((value, task.size[value.index()], time(value)?))).collect()
}

/// The table of a knapsack: by item and room, the most that the items up to it are worth.
struct Packing<'a> {
    items: &'a [(usize, u64)],
    worth: Vec<Vec<u64>>,
}

impl<'a> Packing<'a> {
    /// That of `items`, each with its size and its worth, for up to `most` of room.
    fn of(items: &'a [(usize, u64)], most: usize) -> Packing<'a> {
        let mut worth = vec![vec![0u64; most + 1]];
        for &(size, value) in items {
            let before = &worth[worth.len() - 1];
            let with = |room: usize| room.checked_sub(size).map(|left| before[left].saturating_add(value));
            let row = (0..=most).map(|room| before[room].max(with(room).unwrap_or(0))).collect();
            worth.push(row);
        }
        Packing { items, worth }
    }

    /// Which items are worth most together, of those that have room.
    fn chosen(&self, mut room: usize) -> Vec<bool> {
        let mut chosen = vec![false; self.items.len()];
        for at in (0..self.items.len()).rev() {
            let (size, value) = self.items[at];
            let with = room.checked_sub(size).map(|left| self.worth[at][left].saturating_add(value));
            if with.is_some_and(|with| with >= self.worth[at + 1][room]) {
                chosen[at] = true;
                room -= size;
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use memfit_testkit::Rng;

    use super::*;

    #[test]
    fn nothing_is_worth_more() {
        let mut tight = 0;
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let count = 1 + rng.below(9);
            let items: Vec<(usize, u64)> =
                (0..count).map(|_| (rng.below(12), rng.below(30) as u64)).collect();
            let table = Packing::of(&items, 60);
            for room in [0, 5, 17, 30, 60] {
                let sums = |chosen: &dyn Fn(usize) -> bool| {
                    let sum = (0..count).filter(|&at| chosen(at));
                    sum.fold((0, 0), |(size, worth), at| (size + items[at].0, worth + items[at].1))
                };
                let all = (0u32..1 << count).map(|set| sums(&|at| set >> at & 1 == 1));
                let most = all.filter(|&(size, _)| size <= room).map(|(_, worth)| worth).max();
                let chosen = table.chosen(room);
                let (size, worth) = sums(&|at| chosen[at]);
                assert!(size <= room && Some(worth) == most, "seed {seed}, room {room}: {items:?}");
                tight += usize::from(chosen.iter().any(|taken| !taken));
            }
        }
        assert!(tight > 300, "{tight}");
    }
}
