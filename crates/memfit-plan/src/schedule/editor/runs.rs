//! Runs in order: their names, their positions, and how many there are of each node.
//!
//! A run that comes or goes moves all runs after it. Positions are kept in blocks, each of some first runs on end and the
//! later runs before each of them: numbered anew are those of one block, and where the blocks after it begin.

use crate::schedule::RunList;
use crate::schedule::ids::{NodeId, Place, RunId};

/// Log₂ of the first runs in a block.
const BLOCK: usize = 5;

/// See the head of the file. The last run is the end, whose node is one beyond those of the task. A run's name stays while
/// others come and go: first runs are named as their nodes are, then come the end and later runs.
pub(in crate::schedule) struct Runs {
    seq: Vec<RunId>,
    /// By run: its block, and its place in it.
    pos: Vec<(u32, u32)>,
    /// By block: the position where it begins.
    begins: Vec<u32>,
    node: Vec<NodeId>,
    /// Runs that are not first ones, in no order, and where each is in that list.
    extra: Vec<RunId>,
    slot: Vec<Option<Place>>,
    unused: Vec<RunId>,
    /// By node: how many runs it has.
    copies: Vec<u32>,
}

impl Runs {
    /// Those of `schedule`, which has all of `nodes` nodes, first runs in their order.
    pub(in crate::schedule) fn new(nodes: usize, schedule: &RunList) -> Runs {
        let mut runs = Runs {
            seq: Vec::with_capacity(schedule.len() + 1),
            pos: vec![(0, 0); nodes + 1],
            begins: vec![0; (nodes >> BLOCK) + 1],
            node: (0..=nodes).map(NodeId::at).collect(),
            extra: Vec::new(),
            slot: vec![None; nodes + 1],
            unused: Vec::new(),
            copies: vec![1; nodes + 1],
        };
        let mut next = 0;
        for &node in schedule.runs.iter().chain([&NodeId::at(nodes)]) {
            let block = next >> BLOCK;
            let first = node.index() == next;
            let run = if first { RunId::first(node) } else { runs.name(node) };
            let position = narrow(runs.seq.len());
            // Where no run of a block stands yet, this one begins it.
            if block > 0 && runs.begins[block] == 0 {
                runs.begins[block] = position;
            }
            runs.pos[run.index()] = (narrow(block), position - runs.begins[block]);
            runs.seq.push(run);
            next += usize::from(first);
        }
        runs
    }

    pub(in crate::schedule) fn len(&self) -> usize {
        self.seq.len()
    }

    pub(in crate::schedule) fn at(&self, position: usize) -> RunId {
        self.seq[position]
    }

    pub(in crate::schedule) fn position(&self, run: RunId) -> usize {
        let (block, place) = self.pos[run.index()];
        self.begins[block as usize] as usize + place as usize
    }

    /// The number of blocks.
    pub(in crate::schedule) fn blocks(&self) -> usize {
        self.begins.len()
    }

    /// The block in which `run` stands.
    pub(in crate::schedule) fn block_of(&self, run: RunId) -> usize {
        self.pos[run.index()].0 as usize
    }

    /// The positions of `block`.
    pub(in crate::schedule) fn positions(&self, block: usize) -> std::ops::Range<usize> {
        let end = self.begins.get(block + 1).map_or(self.seq.len(), |&next| next as usize);
        self.begins[block] as usize..end
    }

    pub(in crate::schedule) fn node(&self, run: RunId) -> NodeId {
        self.node[run.index()]
    }

    /// Runs that are not first ones, in no order.
    pub(in crate::schedule) fn extra(&self) -> &[RunId] {
        &self.extra
    }

    pub(in crate::schedule) fn is_extra(&self, run: RunId) -> bool {
        self.slot[run.index()].is_some()
    }

    /// How many runs `node` has, the first one included.
    pub(in crate::schedule) fn copies(&self, node: NodeId) -> usize {
        self.copies[node.index()] as usize
    }

    pub(in crate::schedule) fn schedule(&self) -> RunList {
        let runs = self.seq[..self.seq.len() - 1].iter().map(|&run| self.node[run.index()]);
        RunList { runs: runs.collect() }
    }

    /// Inserts a later run of `node` before `position`.
    pub(in crate::schedule) fn insert(&mut self, node: NodeId, position: usize) -> RunId {
        let run = self.name(node);
        let (block, _) = self.pos[self.seq[position].index()];
        self.pos[run.index()].0 = block;
        self.seq.insert(position, run);
        self.renumber(block, position, 1);
        run
    }

    /// Removes a run that is not a first one: its name is free for another.
    pub(in crate::schedule) fn remove(&mut self, run: RunId) {
        let position = self.position(run);
        let (block, _) = self.pos[run.index()];
        self.seq.remove(position);
        self.renumber(block, position, -1);
        self.copies[self.node[run.index()].index()] -= 1;
        let slot = self.slot[run.index()].take();
        if let Some(slot) = slot {
            self.extra.swap_remove(slot.index());
            if let Some(&moved) = self.extra.get(slot.index()) {
                self.slot[moved.index()] = Some(slot);
            }
        }
        self.unused.push(run);
    }

    fn name(&mut self, node: NodeId) -> RunId {
        let run = match self.unused.pop() {
            Some(run) => run,
            None => {
                self.node.push(node);
                self.pos.push((0, 0));
                self.slot.push(None);
                RunId::at(self.node.len() - 1)
            }
        };
        self.node[run.index()] = node;
        self.slot[run.index()] = Some(Place::at(self.extra.len()));
        self.extra.push(run);
        self.copies[node.index()] += 1;
        run
    }

    /// Gives the runs of `block` from `position` on their places, and moves the blocks after it.
    fn renumber(&mut self, block: u32, position: usize, by: i32) {
        for begin in &mut self.begins[block as usize + 1..] {
            *begin = begin.wrapping_add_signed(by);
        }
        let begin = self.begins[block as usize] as usize;
        for (at, &run) in self.seq.iter().enumerate().skip(position) {
            let pos = &mut self.pos[run.index()];
            if pos.0 != block {
                break;
            }
            pos.1 = narrow(at - begin);
        }
    }
}

/// A number of runs, of which there are no more than ids.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
