//! Runs in order: their names, their positions, and how many there are of each node.
//!
//! A run that comes or goes moves all runs after it. Positions are kept in blocks, each of some first runs on end and the
//! later runs before each of them: numbered anew are those of one block, and where the blocks after it begin.

use super::RunList;
use super::task::{NONE, narrow};

/// A run's name, which stays while others come and go: below the number of nodes the first runs, then the
/// end, then later runs.
pub(super) type RunId = u32;

/// Log₂ of the first runs in a block.
const BLOCK: usize = 5;

/// See the head of the file. The last run is the end, whose node is one beyond those of the task.
pub(super) struct Runs {
    seq: Vec<RunId>,
    /// By run: its block, and its place in it.
    pos: Vec<(u32, u32)>,
    /// By block: the position where it begins.
    begins: Vec<u32>,
    node: Vec<u32>,
    /// Runs that are not first ones, in no order, and where each is in that list.
    extra: Vec<RunId>,
    slot: Vec<u32>,
    unused: Vec<RunId>,
    /// By node: how many runs it has.
    copies: Vec<u32>,
}

impl Runs {
    /// Those of `schedule`, which has all of `nodes` nodes, first runs in their order.
    pub(super) fn new(nodes: usize, schedule: &RunList) -> Runs {
        let mut runs = Runs {
            seq: Vec::with_capacity(schedule.len() + 1),
            pos: vec![(0, 0); nodes + 1],
            begins: vec![0; (nodes >> BLOCK) + 1],
            node: (0..=narrow(nodes)).collect(),
            extra: Vec::new(),
            slot: vec![NONE; nodes + 1],
            unused: Vec::new(),
            copies: vec![1; nodes + 1],
        };
        let mut next = 0;
        for &node in schedule.runs.iter().chain([&narrow(nodes)]) {
            let block = next >> BLOCK;
            let run = if node as usize == next { node } else { runs.name(node) };
            let position = narrow(runs.seq.len());
            // Where no run of a block stands yet, this one begins it.
            if block > 0 && runs.begins[block] == 0 {
                runs.begins[block] = position;
            }
            runs.pos[run as usize] = (narrow(block), position - runs.begins[block]);
            runs.seq.push(run);
            next += usize::from(run == node);
        }
        runs
    }

    pub(super) fn len(&self) -> usize {
        self.seq.len()
    }

    pub(super) fn at(&self, position: usize) -> RunId {
        self.seq[position]
    }

    pub(super) fn position(&self, run: RunId) -> usize {
        let (block, place) = self.pos[run as usize];
        self.begins[block as usize] as usize + place as usize
    }

    pub(super) fn node(&self, run: RunId) -> u32 {
        self.node[run as usize]
    }

    /// Runs that are not first ones, in no order.
    pub(super) fn extra(&self) -> &[RunId] {
        &self.extra
    }

    pub(super) fn is_extra(&self, run: RunId) -> bool {
        self.slot[run as usize] != NONE
    }

    /// How many runs `node` has, the first one included.
    pub(super) fn copies(&self, node: u32) -> usize {
        self.copies[node as usize] as usize
    }

    pub(super) fn schedule(&self) -> RunList {
        let runs = self.seq[..self.seq.len() - 1].iter().map(|&run| self.node[run as usize]);
        RunList { runs: runs.collect() }
    }

    /// Inserts a later run of `node` before `position`.
    pub(super) fn insert(&mut self, node: u32, position: usize) -> RunId {
        let run = self.name(node);
        let (block, _) = self.pos[self.seq[position] as usize];
        self.pos[run as usize].0 = block;
        self.seq.insert(position, run);
        self.renumber(block, position, 1);
        run
    }

    /// Removes a run that is not a first one: its name is free for another.
    pub(super) fn remove(&mut self, run: RunId) {
        let position = self.position(run);
        let (block, _) = self.pos[run as usize];
        self.seq.remove(position);
        self.renumber(block, position, -1);
        self.copies[self.node[run as usize] as usize] -= 1;
        let slot = self.slot[run as usize] as usize;
        self.extra.swap_remove(slot);
        if let Some(&moved) = self.extra.get(slot) {
            self.slot[moved as usize] = narrow(slot);
        }
        self.slot[run as usize] = NONE;
        self.unused.push(run);
    }

    fn name(&mut self, node: u32) -> RunId {
        let run = match self.unused.pop() {
            Some(run) => run,
            None => {
                self.node.push(node);
                self.pos.push((0, 0));
                self.slot.push(NONE);
                narrow(self.node.len() - 1)
            }
        };
        self.node[run as usize] = node;
        self.slot[run as usize] = narrow(self.extra.len());
        self.extra.push(run);
        self.copies[node as usize] += 1;
        run
    }

    /// Gives the runs of `block` from `position` on their places, and moves the blocks after it.
    fn renumber(&mut self, block: u32, position: usize, by: i32) {
        for begin in &mut self.begins[block as usize + 1..] {
            *begin = begin.wrapping_add_signed(by);
        }
        let begin = self.begins[block as usize] as usize;
        for (at, &run) in self.seq.iter().enumerate().skip(position) {
            let pos = &mut self.pos[run as usize];
            if pos.0 != block {
                break;
            }
            pos.1 = narrow(at - begin);
        }
    }
}
