//! Blocks of a network, and what of each may be kept, made again or moved.

use std::collections::BTreeMap;

use memfit_ir::{Device, ValueId};

use super::super::blocks::blocks;
use super::{Task, crossing, link, turn};

/// What is smaller than so many bytes is not moved; of small budgets a thousandth.
const LEAST_MOVED: i64 = 1 << 20;

/// A graph without names is cut into so many blocks at most.
const CUTS: usize = 24;

/// A value that may be kept, made again or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Candidate {
    pub(in super::super) value: ValueId,
    pub(super) size: i64,
    /// Ns of the op that makes it.
    pub(super) time: u64,
    pub(in super::super) may_run: bool,
    pub(in super::super) may_move: bool,
    /// It is used neither by forward nor by backward from one of these nodes of the plain step until before the other.
    pub(super) idle: (usize, usize),
}

/// A block.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) candidates: Vec<Candidate>,
    /// Ns of its forward ops.
    pub(super) time: u64,
    /// Bytes that it makes and backward doesn't read.
    pub(super) temporaries: i64,
    /// The nodes of its backward pass, half-open.
    pub(super) backward: (usize, usize),
}

/// All blocks.
pub(super) struct Cells {
    /// By forward node.
    pub(super) of: Vec<Option<usize>>,
    pub(super) all: Vec<Cell>,
}

impl Cells {
    /// The blocks that names of modules tell apart: everything up to the first number in a path, that included. Where names tell
    /// fewer than two, the forward pass is cut where least crosses.
    pub(super) fn of(task: &Task<'_>, device: &Device) -> Cells {
        let turn = turn(task);
        let mut of = named(task, turn);
        if of.iter().flatten().max().is_none_or(|&last| last == 0) {
            let cut = blocks(task, turn, CUTS);
            let index = |node: usize| cut.iter().position(|block| (block.from..block.until).contains(&node));
            of = (0..turn).map(index).collect();
        }
        let count = of.iter().flatten().max().map_or(0, |last| last + 1);
        let mut all = vec![Cell::default(); count];
        for (node, cell) in of.iter().enumerate() {
            let Some(cell) = cell.and_then(|cell| all.get_mut(cell)) else { continue };
            cell.time = cell.time.saturating_add(task.cost[node]);
            let is_temporary = |value: &&ValueId| {
                task.readers.row(value.index()).last().is_none_or(|last| last.index() < turn)
            };
            let made = task.writes.row(node).iter().filter(is_temporary);
            cell.temporaries += made.map(|value| task.size[value.index()]).sum::<i64>();
        }
        let crossing = crossing(task, turn);
        let all_moved: i64 = crossing.iter().map(|value| task.size[value.index()]).sum();
        let least = LEAST_MOVED.min(all_moved / 1000).max(super::super::LEAST);
        for value in crossing {
            let Some(producer) = task.producer[value.index()] else { continue };
            let Some(cell) = of[producer.index()] else { continue };
            let readers = task.readers.row(value.index());
            let early = readers.iter().take_while(|reader| reader.index() < turn);
            let leaves = early.clone().any(|reader| of[reader.index()] != Some(cell));
            let from = early.last().map_or(producer.index(), |last| last.index());
            let Some(to) = readers.iter().map(|reader| reader.index()).find(|&reader| reader >= turn) else {
                continue;
            };
            let last = readers.last().map_or(to, |last| last.index());
            let backward = &mut all[cell].backward;
            *backward = match *backward {
                (0, 0) => (to, last + 1),
                (first, end) => (first.min(to), end.max(last + 1)),
            };
            if leaves {
                continue;
            }
            let size = task.size[value.index()];
            all[cell].candidates.push(Candidate {
                value,
                size,
                time: task.later_cost[producer.index()],
                may_run: task.is_recomputable(value) && !task.live_out[value.index()],
                may_move: size >= least && task.may_move(value) && link(device).is_some(),
                idle: (from + 1, to),
            });
        }
        Cells { of, all }
    }
}

/// By forward node, the number of its block in the order in which blocks begin, by name.
fn named(task: &Task<'_>, turn: usize) -> Vec<Option<usize>> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let number = |node: usize| {
        let path = task.graph.op(task.order[node]).module;
        let mut end = 0;
        for part in path.split('.') {
            end += part.len();
            if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
                let next = known.len();
                return Some(*known.entry(&path[..end]).or_insert(next));
            }
            end += 1;
        }
        None
    };
    (0..turn).map(number).collect()
}
