//! Walks over what is evicted around a storage.

use std::ops::ControlFlow;

use crate::state::State;

/// Marks for walks; one walk after another without clearing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    marks: Vec<u32>,
    epoch: u32,
    stack: Vec<u32>,
    /// Where a walk that comes back through all that it has seen stands.
    path: Vec<Seen>,
    /// The most storages that a walk visits; 0 for no limit.
    most: usize,
}

/// A storage whose children are being looked at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    storage: u32,
    /// Of the children that have been looked at.
    children: usize,
    /// Whether it's held, or something found so far that is held is computed from it.
    needed: bool,
}

impl Walk {
    /// Walks that visit at most `most` storages.
    pub(crate) fn capped(most: usize) -> Walk {
        Walk { most, ..Walk::default() }
    }

    /// Starts a walk in which only `start` has been seen.
    pub(crate) fn begin(&mut self, state: &State, start: u32) {
        // In each walk a mark says that a storage was seen, and the next number that it's needed, too.
        if self.epoch >= u32::MAX - 2 {
            self.marks.clear();
            self.epoch = 0;
        }
        self.epoch += 2;
        self.marks.resize(state.storages.len(), 0);
        self.marks[start as usize] = self.epoch;
    }

    /// Bytes of the marks.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.marks.capacity() + self.stack.capacity()) + size_of::<Seen>() * self.path.capacity()
    }

    /// Marks `storage`; false if it was marked in this walk already.
    pub(crate) fn mark(&mut self, storage: u32) -> bool {
        std::mem::replace(&mut self.marks[storage as usize], self.epoch) < self.epoch
    }

    /// Σ cost of the evicted storages that `start` depends on through evicted ones.
    pub(crate) fn ancestors(&mut self, state: &State, start: u32) -> i128 {
        self.reach(state, start, true)
    }

    /// Σ cost of the evicted storages that depend on `start` through evicted ones.
    pub(crate) fn descendants(&mut self, state: &State, start: u32) -> i128 {
        self.reach(state, start, false)
    }

    /// As [`Walk::descendants`], of those alone that are held, or that something evicted and held is computed from; what has a copy needs
    /// nothing. What is seen where the walk ends counts if it is held itself.
    pub(crate) fn needed(&mut self, state: &State, start: u32) -> i128 {
        let (mut sum, mut visited) = (0, 0);
        self.path.clear();
        self.path.push(Seen { storage: start, children: 0, needed: false });
        while let Some(at) = self.path.last_mut() {
            let Some(next) = state.child(at.storage, &mut at.children) else {
                let Seen { storage, needed, .. } = *at;
                self.path.pop();
                if let Some(before) = self.path.last_mut().filter(|_| needed) {
                    before.needed = true;
                    self.marks[storage as usize] = self.epoch + 1;
                    sum += i128::from(state.back(storage));
                }
                continue;
            };
            let storage = state.storage(next);
            if storage.resident || storage.is_stored {
                continue;
            }
            let mark = &mut self.marks[next as usize];
            if *mark >= self.epoch {
                at.needed |= *mark > self.epoch;
                continue;
            }
            *mark = self.epoch;
            visited += 1;
            let children = if self.most > 0 && visited >= self.most { usize::MAX } else { 0 };
            self.path.push(Seen { storage: next, children, needed: storage.held > 0 });
        }
        sum
    }

    /// Whether something evicted that is held is computed from `start`, through what is evicted: a walk of its own. Where it ends without
    /// a word it is taken to be so.
    pub(crate) fn serves(&mut self, state: &State, start: u32) -> bool {
        self.begin(state, start);
        self.goes_on(start, |walk, at| {
            !state.children(at).any(|next| {
                let storage = state.storage(next);
                let is_new = !storage.resident && !storage.is_stored && walk.mark(next);
                if is_new {
                    walk.stack.push(next);
                }
                is_new && storage.held > 0
            })
        })
        .is_break()
    }

    fn reach(&mut self, state: &State, start: u32, up: bool) -> i128 {
        let mut sum = 0;
        let _ = self.goes_on(start, |walk, at| {
            sum += match up {
                true => state.parents(at).map(|next| walk.visit(state, next)).sum::<i128>(),
                false => state.children(at).map(|next| walk.visit(state, next)).sum(),
            };
            true
        });
        sum
    }

    /// From `start` on, what is on the stack, the last first, as long as `look` says so. A break: it said no, or the walk has seen all
    /// that it may.
    fn goes_on(&mut self, start: u32, mut look: impl FnMut(&mut Walk, u32) -> bool) -> ControlFlow<()> {
        let mut visited = 0;
        self.stack.clear();
        self.stack.push(start);
        while let Some(at) = self.stack.pop() {
            visited += 1;
            if (self.most > 0 && visited > self.most) || !look(self, at) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
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
