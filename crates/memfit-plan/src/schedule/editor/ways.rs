//! Algorithms that are chosen: the scratch memory and the time of all runs of a node change.

use super::{Edit, Editor};
use crate::schedule::Algorithms;
use crate::schedule::ids::{NodeId, RunId};

impl Editor<'_, '_> {
    /// By which algorithms ops run.
    pub(in crate::schedule) fn algorithms(&self) -> &Algorithms {
        &self.algorithms
    }

    /// Has all runs of `node` go by another of its algorithms.
    pub(in crate::schedule) fn choose(&mut self, node: NodeId, algorithm: usize) {
        let (mark, was) = (self.profile.mark(), self.algorithms.of(node.index()));
        let bytes = self.switch(node, algorithm);
        for run in self.runs_of(node) {
            let position = self.runs.position(run);
            self.profile.add(position, position, bytes);
        }
        self.done.push((Edit::Chosen(node, was), mark));
    }

    /// The same everywhere but in the profile; the bytes that each run takes more.
    pub(super) fn switch(&mut self, node: NodeId, algorithm: usize) -> i64 {
        let before = self.algorithms.more(self.task, node.index());
        self.algorithms.set(self.task, node.index(), algorithm);
        let after = self.algorithms.more(self.task, node.index());
        let runs = self.runs_of(node);
        self.work += runs.len() as u64;
        for run in runs {
            self.cost = self.cost.saturating_add_signed(after.1 - before.1);
            self.touch(run);
        }
        after.0 - before.0
    }

    /// Ns that a run of `node` takes more than by its own algorithm.
    pub(super) fn longer(&self, node: NodeId) -> i64 {
        self.algorithms.more(self.task, node.index()).1
    }

    fn runs_of(&self, node: NodeId) -> Vec<RunId> {
        let later = self.runs.extra().iter().copied().filter(|&run| self.runs.node(run) == node);
        std::iter::once(RunId::first(node)).chain(later).collect()
    }
}
