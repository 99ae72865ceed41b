//! Live bytes as ops are run and taken back one by one.

use memfit_ir::{Bytes, OpId, Reuse, ValueId};

use super::Model;
use crate::problem::bytes;

/// The account of live bytes after some ops have run, in any order their dependencies allow.
///
/// What is live depends only on *which* ops have run: a value is live from the run of the op that defines it
/// to the run of its last reader, whether its bytes are then freed or taken over. And what an op needs while
/// it runs depends only on which ran before it. So ops can be taken back as well, and exact search may keep
/// sets instead of sequences. Running or taking back an op is O(operands).
#[derive(Clone, Debug)]
pub struct Ledger<'m> {
    model: &'m Model,
    /// By value: readers that have not run, and the exclusive or of their ids: with one left, its id.
    unread: Vec<(u32, u32)>,
    live: i64,
}

impl<'m> Ledger<'m> {
    /// Nothing has run.
    #[must_use]
    pub fn new(model: &'m Model) -> Ledger<'m> {
        let unread = (0..model.problem.value_count()).map(|value| {
            let readers = model.problem.readers.row(value);
            (super::model::index(readers.len()), readers.iter().fold(0, |all, reader| all ^ reader.0))
        });
        Ledger { model, unread: unread.collect(), live: model.start }
    }

    /// Everything has run.
    #[must_use]
    pub fn finished(model: &'m Model) -> Ledger<'m> {
        Ledger { model, unread: vec![(0, 0); model.problem.value_count()], live: model.end }
    }

    /// Bytes live now, between two ops.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live
    }

    /// Bytes that `op` needs on top of [`Ledger::live`] while it runs, if it is the next to run.
    #[must_use]
    pub fn needs(&self, op: OpId) -> i64 {
        self.model.needs[op.index()] - self.taken(op, 1)
    }

    /// Change of [`Ledger::live`] if `op` is the next to run.
    #[must_use]
    pub fn leaves(&self, op: OpId) -> i64 {
        self.model.makes[op.index()] - self.freed(op, 1)
    }

    /// The same as [`Ledger::needs`] and [`Ledger::leaves`] were when `op` ran, if it was the last to run.
    #[must_use]
    pub fn last(&self, op: OpId) -> (i64, i64) {
        let needs = self.model.needs[op.index()] - self.taken(op, 0);
        (needs, self.model.makes[op.index()] - self.freed(op, 0))
    }

    /// Runs `op`; returns the bytes that are live meanwhile.
    pub fn run(&mut self, op: OpId) -> i64 {
        let hill = self.live + self.needs(op);
        self.live += self.leaves(op);
        for &value in self.model.problem.reads.row(op.index()) {
            let (count, ids) = &mut self.unread[value.index()];
            *count -= 1;
            *ids ^= op.0;
        }
        hill
    }

    /// Takes `op` back, after which nothing that depends on it has run.
    pub fn unrun(&mut self, op: OpId) {
        self.live -= self.last(op).1;
        for &value in self.model.problem.reads.row(op.index()) {
            let (count, ids) = &mut self.unread[value.index()];
            *count += 1;
            *ids ^= op.0;
        }
    }

    /// The only reader of `value` that has not run, if there is just one.
    #[must_use]
    pub fn last_reader(&self, value: ValueId) -> Option<OpId> {
        let (count, ids) = self.unread[value.index()];
        (count == 1).then_some(OpId(ids))
    }

    /// Number of readers of `value` that have not run.
    #[must_use]
    pub fn unread(&self, value: ValueId) -> u32 {
        self.unread[value.index()].0
    }

    fn dies(&self, value: ValueId, unread: u32) -> bool {
        !self.model.problem.live_out[value.index()] && self.unread[value.index()].0 == unread
    }

    fn freed(&self, op: OpId, unread: u32) -> i64 {
        let dying =
            self.model.problem.reads.row(op.index()).iter().filter(|&&value| self.dies(value, unread));
        dying.map(|&value| self.model.problem.bytes[value.index()]).sum()
    }

    /// Bytes of permitted takeovers, chosen as [`memfit_ir::InPlace::May`] says.
    fn taken(&self, op: OpId, unread: u32) -> i64 {
        let permitted = self.model.problem.permitted(op.index());
        if permitted.is_empty() {
            return 0;
        }
        let mut sum = 0;
        let mut inputs: Vec<ValueId> = Vec::new(); // Allocates only once something is taken.
        let mut served = None;
        for &Reuse { output, input, .. } in permitted {
            if served != Some(output) && self.dies(input, unread) && !inputs.contains(&input) {
                sum += self.model.problem.bytes[input.index()];
                served = Some(output);
                inputs.push(input);
            }
        }
        sum
    }
}

impl Model {
    /// The largest sum of live bytes when the ops run in `order`, which the dependencies allow: the peak of
    /// [`crate::liveness::Profile`] of the program in that order. Time O(ops + operands).
    #[must_use]
    pub fn peak(&self, order: &[OpId]) -> Bytes {
        bytes(self.highest(order))
    }

    /// The same, as the orders count.
    pub(super) fn highest(&self, order: &[OpId]) -> i64 {
        let mut ledger = Ledger::new(self);
        order.iter().map(|&op| ledger.run(op)).fold(self.floor(), i64::max)
    }
}
