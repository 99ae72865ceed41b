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

use memfit_ir::{Bytes, Nanos};

use super::blocks::{self, Block, blocks};
use super::layers::turn;
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::{Context, Info};

/// The programme over (first block, last block, slots of memory).
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain;

/// Blocks of the chain, at most.
const BLOCKS: usize = 40;
/// Sizes of memory that are told apart.
const SLOTS: usize = 100;

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
        let blocks = blocks(task, turn, BLOCKS);
        if blocks.len() > 1 {
            let table = Table::new(&blocks);
            for slots in (2..=SLOTS).step_by(7) {
                if (context.stop)() {
                    break;
                }
                if let Some(again) = table.unroll(slots) {
                    let schedule = blocks::schedule(task, turn, &blocks, &again);
                    front.add_schedule(task, blocks::pruned(task, schedule, context));
                }
            }
        }
        front.within(task, budget, Nanos::ZERO)
    }
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
