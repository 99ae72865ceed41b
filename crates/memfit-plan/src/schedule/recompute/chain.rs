//! The best persistent schedule of a chain of blocks, by dynamic programming, each distinct block looked at
//! once.
//!
//! Source: Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous
//! chains" (arXiv:1911.13214), the `rotor` programme; repeated blocks as in Rockmate (Zhao et al., ICML 2023). We
//! differ: blocks come from cutting the forward pass where least crosses, a block either keeps all its
//! insides or nothing but what enters it, and equal blocks (same ops, sizes and times, by hash) are measured
//! once. Optimal among persistent schedules of the chain of blocks, within 1 % of the memory of its
//! account; as a schedule of the whole graph it is measured, and later runs nobody reads are taken out.
//! Time O(slots × blocks³), for at most 40 blocks. The memory sizes it is solved for are fixed, so a larger
//! budget is never slower. Ties go to the later split. Wrong choice for graphs that are no chain: much
//! crosses every cut.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Nanos, ValueId};

use super::ids::NodeId;
use super::layers::turn;
use super::search::Search;
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::problem::signed;
use crate::{Context, Info};

/// The programme over (first block, last block, slots of memory).
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain;

const BLOCKS: usize = 40;
const SLOTS: usize = 100;

/// A stretch of the forward pass, half-open, and what the programme must know of it.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: usize,
    until: usize,
    /// Time of its ops.
    time: u64,
    /// Bytes that enter it.
    enters: i64,
    /// Bytes that it makes and backward reads.
    saves: i64,
}

/// What the programme decides.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Keep the first block's insides.
    Keep,
    /// Run up to this block again later, keep only what enters it.
    Split(usize),
}

impl Scheduler for Chain {
    fn info(&self) -> Info {
        Info {
            name: "chain",
            summary: "the best checkpoints of a chain of blocks, by dynamic programming",
            source: "Beaumont et al., rotor, arXiv:1911.13214",
            year: 2019,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        let turn = turn(task);
        let blocks = blocks(task, turn);
        if blocks.len() > 1 {
            let table = Table::new(&blocks);
            for slots in (2..=SLOTS).step_by(7) {
                if (context.stop)() {
                    break;
                }
                if let Some(again) = table.unroll(slots) {
                    let schedule = schedule(task, turn, &blocks, &again);
                    // Without a limit only what nobody reads goes.
                    let limit = schedule.cost(task).map_or(0, |cost| signed(cost.peak) - task.constant);
                    let search = Search::new(task, &schedule, limit, context.seed);
                    let pruned = search.map(|mut search| {
                        search.prune(context.stop);
                        search.editor.runs.schedule()
                    });
                    front.add_schedule(task, pruned.unwrap_or(schedule));
                }
            }
        }
        front.within(task, budget, Nanos::ZERO)
    }
}

/// Cuts the forward pass at the least crossing of each of up to 40 stretches.
fn blocks(task: &Task<'_>, turn: usize) -> Vec<Block> {
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
    let stretch = turn.div_ceil(BLOCKS).max(1);
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

/// By first block, last block and slots: least time of later runs, and how.
struct Table {
    best: Vec<Option<(u64, Choice)>>,
    blocks: usize,
    enters: Vec<usize>,
    saves: Vec<usize>,
}

impl Table {
    fn new(blocks: &[Block]) -> Table {
        let total: i64 = blocks.iter().map(|block| block.saves + block.enters).sum();
        let unit = (total / i64::try_from(SLOTS).unwrap_or(1)).max(1);
        let slots =
            |bytes: i64| usize::try_from((bytes + unit - 1) / unit).unwrap_or(usize::MAX).min(SLOTS + 1);
        let mut table = Table {
            best: vec![None; blocks.len() * blocks.len() * (SLOTS + 1)],
            blocks: blocks.len(),
            enters: blocks.iter().map(|block| slots(block.enters)).collect(),
            saves: blocks.iter().map(|block| slots(block.saves)).collect(),
        };
        for length in 0..blocks.len() {
            for first in 0..blocks.len() - length {
                let last = first + length;
                for slots in 0..=SLOTS {
                    let at = table.at(first, last, slots);
                    table.best[at] = table.solve(blocks, first, last, slots);
                }
            }
        }
        table
    }

    fn at(&self, first: usize, last: usize, slots: usize) -> usize {
        (first * self.blocks + last) * (SLOTS + 1) + slots
    }

    fn get(&self, first: usize, last: usize, slots: usize) -> Option<(u64, Choice)> {
        self.best[self.at(first, last, slots)]
    }

    /// The time of later runs to go forward from block `first` to `last` and back, with what enters `first`
    /// there already.
    fn solve(&self, blocks: &[Block], first: usize, last: usize, slots: usize) -> Option<(u64, Choice)> {
        let keep = slots.checked_sub(self.saves[first]).and_then(|left| {
            if first == last { Some(0) } else { self.get(first + 1, last, left).map(|(time, _)| time) }
        });
        let mut best = keep.map(|time| (time, Choice::Keep));
        let mut ahead = 0u64;
        for split in first + 1..=last {
            // Blocks first … split − 1 run now for what enters `split`, and again later.
            ahead = ahead.saturating_add(blocks[split - 1].time);
            let right = slots.checked_sub(self.enters[split]).and_then(|left| self.get(split, last, left));
            let left = self.get(first, split - 1, slots);
            if let (Some((right, _)), Some((left, _))) = (right, left) {
                let time = right.saturating_add(left).saturating_add(ahead);
                if best.is_none_or(|(least, _)| time <= least) {
                    best = Some((time, Choice::Split(split)));
                }
            }
        }
        best
    }

    /// By block, the blocks that run again right before its backward, in order: one list a block.
    fn unroll(&self, slots: usize) -> Option<Vec<Vec<usize>>> {
        let mut again: Vec<Vec<usize>> = vec![Vec::new(); self.blocks];
        let mut todo = vec![(0, self.blocks - 1, slots)];
        self.get(0, self.blocks - 1, slots)?;
        while let Some((first, last, slots)) = todo.pop() {
            match self.get(first, last, slots)?.1 {
                Choice::Keep if first < last => todo.push((first + 1, last, slots - self.saves[first])),
                Choice::Keep => {}
                Choice::Split(split) => {
                    // When backward comes to the last block of the left part, that part runs again as a chain
                    // of its own.
                    again[split - 1].extend(first..split);
                    todo.push((split, last, slots - self.enters[split]));
                    todo.push((first, split - 1, slots));
                }
            }
        }
        Some(again)
    }
}

/// Puts the later runs before the first backward node that reads what the block makes.
fn schedule(task: &Task<'_>, turn: usize, blocks: &[Block], again: &[Vec<usize>]) -> RunList {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); task.nodes()];
    for (block, list) in again.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let Block { from, until, .. } = blocks[block];
        let made = (from..until).flat_map(|node| task.writes.row(node));
        let readers = made.flat_map(|&value| task.readers.row(value.index()));
        if let Some(&first) = readers.filter(|&&reader| reader.index() >= turn).min() {
            before[first.index()].extend(list);
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
