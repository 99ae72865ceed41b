//! The forward pass as a chain of blocks: where it is cut, what of it is equal, and what runs if blocks run again.

use std::collections::BTreeMap;

use memfit_ir::ValueId;

use super::ids::NodeId;
use super::search::Search;
use super::{RunList, Task};
use crate::Context;
use crate::problem::signed;

/// A stretch of the forward pass, half-open, and what the programme must know of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) from: usize,
    pub(super) until: usize,
    /// Time of its ops.
    pub(super) time: u64,
    /// Bytes that enter it.
    pub(super) enters: i64,
    /// Bytes that it makes and backward reads.
    pub(super) saves: i64,
}

impl Block {
    /// The first backward node that reads what it makes.
    pub(super) fn backward(&self, task: &Task<'_>, turn: usize) -> Option<usize> {
        let made = (self.from..self.until).flat_map(|node| task.writes.row(node));
        let readers = made.flat_map(|&value| task.readers.row(value.index()));
        readers.map(|reader| reader.index()).filter(|&reader| reader >= turn).min()
    }

    /// What is made before it and read by forward in it or after it.
    pub(super) fn entering(&self, task: &Task<'_>, turn: usize) -> Vec<ValueId> {
        let made = (0..self.from).flat_map(|node| task.writes.row(node)).copied();
        let read = |value: &ValueId| {
            let readers = task.readers.row(value.index()).iter().map(|reader| reader.index());
            readers.into_iter().any(|reader| (self.from..turn).contains(&reader))
        };
        made.filter(read).collect()
    }
}

/// Cuts the forward pass at the least crossing of each of up to `most` stretches.
pub(super) fn blocks(task: &Task<'_>, turn: usize, most: usize) -> Vec<Block> {
    // Bytes made before each node and read by forward at or after it.
    let mut crossing = vec![0i64; turn + 1];
    for value in 0..task.size.len() {
        let producer = task.producer[value];
        let last = task.readers.row(value).iter().filter(|&&reader| reader.index() < turn).max();
        let producer = producer.filter(|producer| producer.index() < turn);
        if let Some((producer, last)) = producer.zip(last) {
            for bytes in &mut crossing[producer.index() + 1..=last.index()] {
                *bytes += task.size[value];
            }
        }
    }
    let stretch = turn.div_ceil(most.max(1)).max(1);
    let mut cuts: Vec<usize> = (1..turn.div_ceil(stretch))
        .filter_map(|k| (k * stretch..((k + 1) * stretch).min(turn)).min_by_key(|&at| (crossing[at], at)))
        .collect();
    cuts.insert(0, 0);
    cuts.push(turn);
    cuts.dedup();
    // Equal blocks are measured once: op kinds, sizes and times, and how far back each operand lies.
    let mut known: BTreeMap<Vec<u64>, (u64, i64)> = BTreeMap::new();
    let ends = cuts.windows(2).filter(|ends| ends[0] < ends[1]);
    ends.map(|ends| {
        let (from, until) = (ends[0], ends[1]);
        let key = shape(task, from, until);
        let (time, saves) = *known.entry(key).or_insert_with(|| measure(task, turn, from, until));
        Block { from, until, time, enters: crossing[from], saves }
    })
    .collect()
}

/// What two blocks must agree in to be equal: exact, so that no collision can mislead.
fn shape(task: &Task<'_>, from: usize, until: usize) -> Vec<u64> {
    let mut key = Vec::new();
    for node in from..until {
        key.extend([
            task.later_cost[node],
            u64::from(task.recomputable[node]),
            task.reads.row(node).len() as u64,
        ]);
        for &value in task.reads.row(node) {
            let producer = task.producer[value.index()].map(NodeId::index);
            let inside = producer.filter(|producer| (from..node).contains(producer));
            key.push(inside.map_or(0, |producer| (node - producer) as u64));
        }
        for &value in task.writes.row(node) {
            let last = task.readers.row(value.index()).last().map_or(0, |last| last.index());
            let later = if last < until { 0 } else { 1 };
            key.extend([task.size[value.index()].unsigned_abs(), later]);
        }
    }
    key
}

fn measure(task: &Task<'_>, turn: usize, from: usize, until: usize) -> (u64, i64) {
    let again = (from..until).filter(|&node| task.recomputable[node]);
    let time = again.map(|node| task.later_cost[node]).fold(0u64, u64::saturating_add);
    let late =
        |value: &&ValueId| task.readers.row(value.index()).last().is_some_and(|last| last.index() >= turn);
    let saved = (from..until).flat_map(|node| task.writes.row(node)).filter(late);
    (time, saved.map(|&value| task.size[value.index()]).sum())
}

/// Every node once, and by block those blocks that run again right before its backward: later runs are put before the first
/// backward node that reads what the block makes.
pub(super) fn schedule(task: &Task<'_>, turn: usize, blocks: &[Block], again: &[Vec<usize>]) -> RunList {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); task.nodes()];
    for (block, list) in again.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        if let Some(first) = blocks[block].backward(task, turn) {
            before[first].extend(list);
        }
    }
    let mut runs = Vec::new();
    for (node, list) in before.iter().enumerate() {
        let mut list = list.clone();
        list.sort_unstable();
        list.dedup();
        for block in list {
            let nodes = (blocks[block].from..blocks[block].until).map(NodeId::at);
            let fit = |again: &NodeId| {
                let deadline = task.deadline[again.index()];
                let in_time = deadline.is_none_or(|deadline| node <= deadline.index());
                task.recomputable[again.index()] && in_time
            };
            runs.extend(nodes.filter(fit));
        }
        runs.push(NodeId::at(node));
    }
    RunList { runs }
}

/// `schedule` without the runs that nobody reads anything of.
pub(super) fn pruned(task: &Task<'_>, schedule: RunList, context: &Context<'_>) -> RunList {
    // Without a limit only what nobody reads goes.
    let limit = schedule.cost(task).map_or(0, |cost| signed(cost.peak) - task.constant);
    let search = Search::new(task, &schedule, limit, context.seed);
    let pruned = search.map(|mut search| {
        search.prune(context.stop);
        search.editor.runs.schedule()
    });
    pruned.unwrap_or(schedule)
}
