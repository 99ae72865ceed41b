//! List scheduling: at every turn one op of the ready set, forwards or backwards.

use memfit_ir::OpId;

use super::ready::Ready;
use super::{Ledger, Model};
use crate::Context;

/// An order in the making.
///
/// Forwards it grows from its first op, and an op is ready when all it depends on has run. Backwards it grows
/// from its last op: an op is ready when all that depend on it stand behind it, and running it means to take
/// it back. Both keep exact needs of all ready ops: they change only when a value is left with one reader
/// (forwards: that reader will end it) or is read for the first time (backwards: others no longer end it).
pub(super) struct List<'m> {
    model: &'m Model,
    ledger: Ledger<'m>,
    backwards: bool,
    waiting: Vec<u32>,
    order: Vec<OpId>,
    peak: i64,
    pub(super) ready: Ready,
}

impl<'m> List<'m> {
    /// Nothing is ordered yet.
    pub(super) fn new(model: &'m Model, backwards: bool) -> List<'m> {
        let deps = model.dependencies();
        let ops = || (0..model.op_count()).map(OpId::at);
        let ledger = if backwards { Ledger::finished(model) } else { Ledger::new(model) };
        let before = |op| if backwards { deps.succs(op) } else { deps.preds(op) };
        let waiting: Vec<u32> = ops().map(|op| super::model::index(before(op).len())).collect();
        let needs: Vec<i64> = if backwards {
            let outputs = |op: usize| model.needs[op] - model.makes[op];
            (0..model.op_count()).map(outputs).collect()
        } else {
            model.needs.clone()
        };
        let peak = model.floor();
        let ready = Ready::new(&needs);
        let mut list = List { model, ledger, backwards, waiting, order: Vec::new(), peak, ready };
        for op in ops() {
            if list.waiting[op.index()] == 0 {
                list.update(op);
            }
        }
        list
    }

    /// Bytes live now.
    pub(super) fn live(&self) -> i64 {
        self.ledger.live()
    }

    /// Largest sum of live bytes so far.
    pub(super) fn peak(&self) -> i64 {
        self.peak
    }

    /// What a ready op needs on top of [`List::live`], and how it changes it.
    fn cost(&self, op: OpId) -> (i64, i64) {
        if self.backwards {
            let (needs, leaves) = self.ledger.last(op);
            (needs - leaves, -leaves)
        } else {
            (self.ledger.needs(op), self.ledger.leaves(op))
        }
    }

    fn update(&mut self, op: OpId) {
        let cost = self.cost(op);
        self.ready.set(op, Some(cost));
    }

    /// Appends `op`, which is ready.
    pub(super) fn take(&mut self, op: OpId) {
        self.peak = self.peak.max(self.live() + self.cost(op).0);
        self.ready.set(op, None);
        self.order.push(op);
        if self.backwards {
            self.ledger.unrun(op);
        } else {
            self.ledger.run(op);
        }
        let model = self.model;
        for &value in model.problem.reads.row(op.index()) {
            if !self.backwards {
                let last = self.ledger.last_reader(value).filter(|&last| self.ready.contains(last));
                last.into_iter().for_each(|last| self.update(last));
            } else if self.ledger.unread(value) == 1 {
                for &reader in model.problem.readers.row(value.index()) {
                    if self.ready.contains(reader) {
                        self.update(reader);
                    }
                }
            }
        }
        let deps = model.dependencies();
        for &next in if self.backwards { deps.preds(op) } else { deps.succs(op) } {
            self.waiting[next.index()] -= 1;
            if self.waiting[next.index()] == 0 {
                self.update(next);
            }
        }
    }

    /// The whole order, where `choose` picks from the ready set until it is empty. Once stopped, what is left
    /// follows in the graph's order.
    pub(super) fn run(
        mut self,
        context: &Context<'_>,
        mut choose: impl FnMut(&Self) -> Option<OpId>,
    ) -> Vec<OpId> {
        while let Some(op) = choose(&self) {
            self.take(op);
            if self.order.len().is_multiple_of(1024) && (context.stop)() {
                break;
            }
        }
        let ops = self.model.op_count();
        if self.order.len() < ops {
            let mut done = vec![false; ops];
            self.order.iter().for_each(|op| done[op.index()] = true);
            let mut rest: Vec<OpId> = (0..ops).filter(|&op| !done[op]).map(OpId::at).collect();
            if self.backwards {
                rest.reverse();
            }
            self.order.extend(rest);
        }
        if self.backwards {
            self.order.reverse();
        }
        self.order
    }
}
