//! A part of an order, small enough for sets of ops to be machine words.

use memfit_ir::{Csr, OpId};

use super::{Ledger, Model};

/// A set of ops of a [`Part`], by their index in it.
pub(super) type Set = u128;

/// The most ops of a part.
pub(super) const WIDEST: usize = 128;

/// Consecutive ops of an order, freed from their order: what is before and after them stays as it is.
///
/// The needs of an op here are a function of the set of the part's ops that have run, so that exact search
/// needs no history. A part can be read backwards: then the sets are those of the ops that have been taken
/// back, and peaks are the same.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The ops; indices of sets are positions here.
    pub(super) ops: Vec<OpId>,
    /// Live bytes before the first.
    pub(super) live: i64,
    /// By op: the ops of the part it depends on, and those that depend on it.
    preds: Vec<Set>,
    succs: Vec<Set>,
    /// By op: as in the model.
    needs: Vec<i64>,
    makes: Vec<i64>,
    /// By op: the inputs that may die in this part: their readers in it, their size, their value.
    inputs: Csr<(Set, i64, u32)>,
    /// By op: permitted takeovers, as `(output, position in inputs)`.
    takes: Csr<(u32, u32)>,
    backwards: bool,
}

impl Part {
    /// The part `ops` (at most [`WIDEST`]) that follows what `before` has run. `local` is scratch by op, all
    /// `u32::MAX`, and is left so. Time O(operands of the ops and readers of their inputs).
    pub(super) fn new(model: &Model, before: &Ledger<'_>, ops: &[OpId], local: &mut [u32]) -> Part {
        for (at, op) in ops.iter().enumerate() {
            local[op.index()] = super::model::index(at);
        }
        let set = |of: &[OpId]| {
            let inside = of.iter().map(|op| local[op.index()]).filter(|&at| at != u32::MAX);
            inside.fold(0, |all: Set, at| all | 1 << at)
        };
        let mut part = Part {
            ops: ops.to_vec(),
            live: before.live(),
            preds: ops.iter().map(|&op| set(model.deps.preds(op))).collect(),
            succs: ops.iter().map(|&op| set(model.deps.succs(op))).collect(),
            needs: ops.iter().map(|&op| model.needs[op.index()]).collect(),
            makes: ops.iter().map(|&op| model.makes[op.index()]).collect(),
            inputs: Csr::default(),
            takes: Csr::default(),
            backwards: false,
        };
        for &op in ops {
            let inputs = model.reads.row(op.index()).iter().filter_map(|&value| {
                // A value may have as many readers as the graph has ops: only few left can all be inside.
                let few = before.unread(value) as usize <= ops.len() && !model.kept[value as usize];
                let readers = few.then(|| set(model.readers.row(value as usize)))?;
                let all = readers.count_ones() == before.unread(value);
                all.then_some((readers, model.size[value as usize], value))
            });
            let inputs: Vec<_> = inputs.collect();
            part.takes.push(model.takes.row(op.index()).iter().filter_map(|&(output, input)| {
                let at = inputs.iter().position(|&(_, _, value)| value == input)?;
                Some((output, super::model::index(at)))
            }));
            part.inputs.push(inputs);
        }
        ops.iter().for_each(|op| local[op.index()] = u32::MAX);
        part
    }

    /// The same part, read from its end.
    pub(super) fn reversed(&self) -> Part {
        let mut part = self.clone();
        std::mem::swap(&mut part.preds, &mut part.succs);
        part.backwards = !self.backwards;
        part.live = self.end();
        part
    }

    /// The set of all its ops.
    pub(super) fn all(&self) -> Set {
        if self.ops.len() == WIDEST { Set::MAX } else { (1 << self.ops.len()) - 1 }
    }

    /// Live bytes at the other end.
    fn end(&self) -> i64 {
        let (mut live, mut done) = (self.live, 0);
        while let Some(at) = members(self.ready(done)).next() {
            live += self.cost(done, at).1;
            done |= 1 << at;
        }
        live
    }

    /// The ops that may follow when `done` are done.
    pub(super) fn ready(&self, done: Set) -> Set {
        let open = members(self.all() & !done).filter(|&at| self.preds[at] & !done == 0);
        open.fold(0, |all, at| all | 1 << at)
    }

    /// The ops that may follow only since `at` has been added to `done`.
    pub(super) fn opened(&self, done: Set, at: usize) -> Set {
        members(self.succs[at])
            .filter(|&next| self.preds[next] & !done == 0)
            .fold(0, |all, next| all | 1 << next)
    }

    /// What op `at` needs on top of the live bytes when it follows `done`, and how it changes them.
    pub(super) fn cost(&self, done: Set, at: usize) -> (i64, i64) {
        let done = if self.backwards { self.all() & !done & !(1 << at) } else { done };
        let inputs = self.inputs.row(at);
        let dies = |readers: Set| readers & !done == 1 << at;
        let freed: i64 = inputs.iter().filter(|input| dies(input.0)).map(|input| input.1).sum();
        let (mut taken, mut served, mut used): (i64, u32, Set) = (0, u32::MAX, 0);
        for &(output, input) in self.takes.row(at) {
            let (readers, size, _) = inputs[input as usize];
            // Beyond 128 inputs a takeover is not followed; the model's account stays the judge.
            if served != output && input < 128 && used >> input & 1 == 0 && dies(readers) {
                taken += size;
                served = output;
                used |= 1 << input;
            }
        }
        let (needs, leaves) = (self.needs[at] - taken, self.makes[at] - freed);
        if self.backwards { (needs - leaves, -leaves) } else { (needs, leaves) }
    }

    /// The ops of a path of indices, in the order in which they run.
    pub(super) fn order(&self, path: &[usize]) -> Vec<OpId> {
        let mut order: Vec<OpId> = path.iter().map(|&at| self.ops[at]).collect();
        if self.backwards {
            order.reverse();
        }
        order
    }
}

/// The indices in a set, ascending.
pub(super) fn members(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            at
        })
    })
}
