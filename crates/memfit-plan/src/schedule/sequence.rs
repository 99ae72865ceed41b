//! A schedule: which node runs when; what it takes; and its program.

use memfit_ir::{Bytes, Csr, Nanos, Program};

use super::Task;
use super::lower::Lowering;
use super::task::{NONE, bytes, narrow};

/// A sequence of runs of a task's nodes. First runs are in the order of the nodes; every read finds the latest
/// run of the node that makes its value; a value is freed after its last use before it is made again.
///
/// So a schedule is a list of numbers and nothing else: what is freed, taken over in place and made again
/// follows from it, and no other choice of frees for the same runs needs fewer bytes at any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Nodes of the task, in the order they run.
    pub(super) runs: Vec<u32>,
}

/// What a schedule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Largest sum of live bytes, each buffer rounded up to the alignment.
    pub peak: Bytes,
    /// Sum of the run times.
    pub time: Nanos,
}

impl Schedule {
    /// Every node once.
    #[must_use]
    pub fn plain(task: &Task<'_>) -> Schedule {
        Schedule { runs: (0..narrow(task.nodes())).collect() }
    }

    /// Number of runs, first and later ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What it takes, or `None` if it is no schedule of `task`: a read finds nothing, an op runs again that
    /// must not, or first runs are out of order. Time O(operands of all runs).
    #[must_use]
    pub fn cost(&self, task: &Task<'_>) -> Option<Cost> {
        let mut time = 0u64;
        let mut next = 0;
        let mut again = vec![false; task.nodes()];
        for &node in &self.runs {
            let at = node as usize;
            if node == next {
                next += 1;
                time = time.checked_add(task.cost[at])?;
            } else if node > next || !task.recomputable[at] {
                return None;
            } else {
                time = time.checked_add(task.later_cost[at])?;
                if !std::mem::replace(&mut again[at], true) {
                    time = time.checked_add(task.later_cost[at] - task.cost[at])?; // Taking the snapshot.
                }
            }
        }
        if next as usize != task.nodes() {
            return None;
        }
        let mut peak = 0;
        self.backward(task, |_, mem, _| peak = peak.max(mem))?;
        let unused = |value: usize| {
            task.producer[value] == NONE && !task.live_out[value] && task.readers.row(value).is_empty()
        };
        if self.runs.is_empty() && !(0..task.size.len()).any(unused) {
            return Some(Cost { peak: Bytes::ZERO, time: Nanos(time) }); // A program without steps.
        }
        peak = peak.max(task.sources);
        Some(Cost { peak: bytes(task.constant + peak), time: Nanos(time) })
    }

    /// Walks the runs from the last to the first. Calls `visit` for each with its index, the live bytes
    /// meanwhile (without the constant), and the table of values that are needed after it; operands of the
    /// run are in the table as they are *after* the run. `None` if a read finds nothing.
    fn backward(&self, task: &Task<'_>, mut visit: impl FnMut(usize, i64, &[bool])) -> Option<()> {
        let mut needed = task.live_out.clone();
        let mut live: i64 = (0..needed.len()).filter(|&value| needed[value]).map(|v| task.size[v]).sum();
        let mut left = vec![0u32; task.nodes()];
        for &node in &self.runs {
            *left.get_mut(node as usize)? += 1;
        }
        let mut again = vec![false; task.nodes()];
        for (at, &id) in self.runs.iter().enumerate().rev() {
            let node = id as usize;
            left[node] -= 1;
            let first = left[node] == 0;
            if !first && !std::mem::replace(&mut again[node], true) {
                live += task.snapshot[node]; // Up to its last later run.
            }
            let taken = task.taken(node, |value| !needed[value as usize]);
            let (mut mem, mut before) = (live + task.workspace_of(id, first) - taken, live);
            for &value in task.writes_of(id, first) {
                let size = task.size[value as usize];
                if needed[value as usize] { before -= size } else { mem += size }
            }
            for &value in task.reads_of(id, first) {
                if !needed[value as usize] {
                    mem += task.size[value as usize];
                    before += task.size[value as usize];
                } else if task.mutator[value as usize] == id {
                    return None; // Read after it was mutated.
                }
            }
            visit(at, mem, &needed);
            for &value in task.writes_of(id, first) {
                needed[value as usize] = false;
            }
            for &value in task.reads_of(id, first) {
                needed[value as usize] = true;
            }
            live = before;
            if first && again[node] {
                live -= task.snapshot[node];
            }
        }
        let missing = (0..needed.len()).any(|value| needed[value] && task.producer[value] != NONE);
        (!missing).then_some(())
    }

    /// Live bytes during each run, the constant included. `None` if this is no schedule of `task`.
    #[must_use]
    pub fn profile(&self, task: &Task<'_>) -> Option<Vec<Bytes>> {
        let mut profile = vec![Bytes::ZERO; self.runs.len()];
        self.backward(task, |at, mem, _| profile[at] = bytes(task.constant + mem))?;
        Some(profile)
    }

    /// The program: each run a compute step, each buffer freed right after its last use or taken over.
    /// `None` if this is no schedule of `task`. Time O(operands of all runs).
    #[must_use]
    pub fn program(&self, task: &Task<'_>) -> Option<Program> {
        self.cost(task)?;
        // For each run, which of its operands end with it: reads first, then writes.
        let mut pairs: Vec<(usize, u32)> = Vec::new();
        self.backward(task, |at, _, needed| {
            let node = self.runs[at] as usize;
            let operands = task.reads.row(node).iter().chain(task.writes.row(node)).copied();
            pairs.extend(operands.filter(|&value| !needed[value as usize]).map(|value| (at, value)));
        })?;
        let dying = Csr::from_pairs(self.runs.len(), pairs.iter().copied());
        let mut lowering = Lowering::new(task, &self.runs);
        lowering.sources();
        for (at, &node) in self.runs.iter().enumerate() {
            lowering.run(node, dying.row(at))?;
        }
        Some(lowering.program)
    }
}
