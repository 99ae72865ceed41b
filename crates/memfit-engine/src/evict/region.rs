//! Walks over what is evicted around a storage.

use crate::state::State;

/// Marks for walks; one walk after another without clearing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    marks: Vec<u32>,
    epoch: u32,
    stack: Vec<u32>,
    /// The most storages that a walk visits; 0 for no limit.
    most: usize,
}

impl Walk {
    /// Walks that visit at most `most` storages.
    pub(crate) fn capped(most: usize) -> Walk {
        Walk { most, ..Walk::default() }
    }

    /// Starts a walk in which only `start` has been seen.
    pub(crate) fn begin(&mut self, state: &State, start: u32) {
        if self.epoch == u32::MAX {
            self.marks.clear();
            self.epoch = 0;
        }
        self.epoch += 1;
        self.marks.resize(state.storages.len(), 0);
        self.marks[start as usize] = self.epoch;
    }

    /// Bytes of the marks.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.marks.capacity() + self.stack.capacity())
    }

    /// Marks `storage`; false if it was marked in this walk already.
    pub(crate) fn mark(&mut self, storage: u32) -> bool {
        std::mem::replace(&mut self.marks[storage as usize], self.epoch) != self.epoch
    }

    /// Σ cost of the evicted storages that `start` depends on through evicted ones.
    pub(crate) fn ancestors(&mut self, state: &State, start: u32) -> i128 {
        self.reach(state, start, true)
    }

    /// Σ cost of the evicted storages that depend on `start` through evicted ones.
    pub(crate) fn descendants(&mut self, state: &State, start: u32) -> i128 {
        self.reach(state, start, false)
    }

    fn reach(&mut self, state: &State, start: u32, up: bool) -> i128 {
        let mut sum = 0;
        let mut visited = 0;
        self.stack.clear();
        self.stack.push(start);
        while let Some(at) = self.stack.pop() {
            visited += 1;
            if self.most > 0 && visited > self.most {
                break;
            }
            if up {
                for next in state.parents(at) {
                    sum += self.visit(state, next);
                }
            } else {
                for next in state.children(at) {
                    sum += self.visit(state, next);
                }
            }
        }
        sum
    }

    fn visit(&mut self, state: &State, next: u32) -> i128 {
        let storage = state.storage(next);
        if storage.resident || !self.mark(next) {
            return 0;
        }
        // What has a copy comes back by that, and asks for nothing else.
        if !storage.is_stored {
            self.stack.push(next);
        }
        i128::from(state.back(next))
    }
}
