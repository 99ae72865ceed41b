//! Edits that bring others with them: what a run needs is made before it, and goes with it.

use memfit_ir::ValueId;

use super::Editor;
use crate::schedule::ids::{NodeId, RunId};
use crate::schedule::random::Random;

/// The most runs that one change inserts.
const CHAIN: usize = 64;

impl Editor<'_, '_> {
    /// Makes `value` again right before `use_`; what that needs and is not live there is made again too with
    /// probability `eager`, else kept until there. Whether every read finds its value.
    pub(in crate::schedule) fn make_before(
        &mut self,
        value: ValueId,
        use_: RunId,
        (eager, random): (f64, &mut Random),
    ) -> bool {
        let mut todo = vec![(value, use_)];
        let mut made = 0;
        while let Some((value, before)) = todo.pop() {
            made += 1;
            if made > CHAIN {
                return false;
            }
            let position = self.runs.position(before);
            let Some(node) = self.task.producer[value.index()] else { return false };
            if !self.in_time(node, position) {
                return false;
            }
            let (run, right) = self.insert(node, position);
            for (&read, &at) in self.values.iter().zip(&self.places) {
                if !self.task.is_recomputable(read) || self.defines(run, read) {
                    continue;
                }
                let events = self.events(read);
                let last = events[..at].last().copied();
                // Read again later, or not, before it's made again: then it's live here anyway.
                let live = events.get(at + 1).is_some_and(|&next| !self.defines(next, read));
                let mutated = last.is_none_or(|last| {
                    let mutator = self.task.mutator[read.index()];
                    mutator == Some(self.runs.node(last))
                });
                let near = last.is_some_and(|last| self.runs.position(last) + 1 >= self.runs.position(run));
                if mutated || (!live && !near && random.unit() < eager) {
                    todo.push((read, run));
                }
            }
            if !right && todo.is_empty() {
                return false;
            }
        }
        self.is_sound()
    }

    /// Whether what was inserted finds its inputs: only values that are mutated can fail.
    fn is_sound(&self) -> bool {
        self.inserted().all(|node| {
            let node = node.index();
            let operands = self.task.reads.row(node).iter().chain(self.task.writes.row(node));
            operands.copied().all(|value| self.is_found(value))
        })
    }

    /// Whether every read of `value` finds it.
    fn is_found(&self, value: ValueId) -> bool {
        let Some(mutator) = self.task.mutator[value.index()] else { return true };
        let mut here = self.task.producer[value.index()].is_none();
        for &run in self.events(value) {
            if self.defines(run, value) {
                here = true;
            } else if !here {
                return false;
            } else if self.runs.node(run) == mutator {
                here = false;
            }
        }
        true
    }

    /// Inserts a run of `node` before `position`, if it may be there; whether every read finds its value.
    pub(in crate::schedule) fn insert_in_time(&mut self, node: NodeId, position: usize) -> bool {
        self.in_time(node, position) && self.insert(node, position).1
    }

    /// Removes a later run, and the later runs that were there for it alone. Whether every read finds its value.
    pub(in crate::schedule) fn drop_run(&mut self, run: RunId) -> bool {
        let mut todo = vec![run];
        while let Some(run) = todo.pop() {
            if !self.runs.is_extra(run) {
                continue;
            }
            let node = self.runs.node(run);
            if !self.remove(run) {
                return false;
            }
            for (&read, &at) in self.values.iter().zip(&self.places) {
                if Some(node) == self.task.producer[read.index()] {
                    continue;
                }
                let producers = &self.events(read)[..at];
                let producer = producers.iter().rev().copied().find(|&run| self.defines(run, read));
                if let Some(producer) =
                    producer.filter(|&producer| self.runs.is_extra(producer) && self.is_idle(producer))
                {
                    todo.push(producer);
                }
            }
        }
        true
    }

    /// Whether nothing reads what `run` makes.
    fn is_idle(&self, run: RunId) -> bool {
        let position = self.runs.position(run);
        self.task.writes.row(self.runs.node(run).index()).iter().all(|&value| {
            let at = self.event_at(value, position) + 1;
            self.events(value).get(at).is_none_or(|&next| self.defines(next, value))
        })
    }

    /// A later run, drawn at random.
    pub(in crate::schedule) fn any_later_run(&self, random: &mut Random) -> Option<RunId> {
        let later = self.runs.extra();
        (!later.is_empty()).then(|| later[random.below(later.len())])
    }
}
