//! A part of an order, small enough for sets of its ops to be a few machine words.

use memfit_ir::{Csr, OpId, Reuse, ValueId};

use super::{Ledger, Model};

/// A set of ops of a [`Part`], by their index in it: `W` words of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set<const W: usize>([u64; W]);

impl<const W: usize> Set<W> {
    /// No op.
    pub(super) const EMPTY: Set<W> = Set([0; W]);

    pub(super) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    #[must_use]
    pub(super) fn with(mut self, at: usize) -> Set<W> {
        self.0[at / 64] |= 1 << (at % 64);
        self
    }

    #[must_use]
    pub(super) fn without(mut self, at: usize) -> Set<W> {
        self.0[at / 64] &= !(1 << (at % 64));
        self
    }

    /// The indices in it, ascending.
    pub(super) fn members(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let at = bits.trailing_zeros() as usize;
                (bits != 0).then(|| {
                    bits &= bits - 1;
                    64 * word + at
                })
            })
        })
    }
}

/// The most ops of a part.
pub(super) const WIDEST: usize = 2048;

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
    preds: Csr<u32>,
    succs: Csr<u32>,
    /// By op: as in the model.
    needs: Vec<i64>,
    makes: Vec<i64>,
    /// By op: the inputs that may die in this part: their row in `others`, their size, their value.
    inputs: Csr<(u32, i64, ValueId)>,
    /// By op and such an input: the other ops of the part that read it.
    others: Csr<u32>,
    /// By op: permitted takeovers, as `(output, position in inputs)`.
    reuses: Csr<(ValueId, u32)>,
    backwards: bool,
}

impl Part {
    /// The part `ops` (at most [`WIDEST`]) that follows what `before` has run. `local` is scratch by op, all
    /// `None`, and is left so. Time O(operands of the ops and readers of their inputs).
    pub(super) fn new(model: &Model, before: &Ledger<'_>, ops: &[OpId], local: &mut [Option<u32>]) -> Part {
        for (at, op) in ops.iter().enumerate() {
            local[op.index()] = Some(super::model::index(at));
        }
        let inside = |of: &[OpId]| of.iter().filter_map(|op| local[op.index()]).collect::<Vec<u32>>();
        let mut part = Part {
            ops: ops.to_vec(),
            live: before.live(),
            preds: Csr::default(),
            succs: Csr::default(),
            needs: ops.iter().map(|&op| model.needs[op.index()]).collect(),
            makes: ops.iter().map(|&op| model.makes[op.index()]).collect(),
            inputs: Csr::default(),
            others: Csr::default(),
            reuses: Csr::default(),
            backwards: false,
        };
        for &op in ops {
            part.preds.push(inside(model.deps.preds(op)));
            part.succs.push(inside(model.deps.succs(op)));
            let mut inputs = Vec::new();
            for &value in model.problem.reads.row(op.index()) {
                // A value may have as many readers as the graph has ops: only few left can all be inside.
                let left = before.unread(value) as usize;
                if model.problem.live_out[value.index()] || left > ops.len() {
                    continue;
                }
                let mut readers = inside(model.problem.readers.row(value.index()));
                if readers.len() == left {
                    readers.retain(|&reader| Some(reader) != local[op.index()]);
                    let row = super::model::index(part.others.rows());
                    part.others.push(readers);
                    inputs.push((row, model.problem.bytes[value.index()], value));
                }
            }
            let permitted = model.problem.permitted(op.index()).iter();
            part.reuses.push(permitted.filter_map(|&Reuse { output, input, .. }| {
                let at = inputs.iter().position(|&(_, _, value)| value == input)?;
                Some((output, super::model::index(at)))
            }));
            part.inputs.push(inputs);
        }
        ops.iter().for_each(|op| local[op.index()] = None);
        part
    }

    /// The same part, read from its end.
    pub(super) fn reversed(&self) -> Part {
        let mut part = self.clone();
        std::mem::swap(&mut part.preds, &mut part.succs);
        part.backwards = !self.backwards;
        // Each op in any order there is: what is live at the end depends on none.
        let mut done = vec![false; self.ops.len()];
        let order = if self.backwards {
            (0..done.len()).rev().collect()
        } else {
            (0..done.len()).collect::<Vec<_>>()
        };
        for at in order {
            part.live += self.cost_after(|other| done[other], at).1;
            done[at] = true;
        }
        part
    }

    /// The ops that may follow when none is done.
    pub(super) fn first<const W: usize>(&self) -> Set<W> {
        let free = (0..self.ops.len()).filter(|&at| self.preds.row(at).is_empty());
        free.fold(Set::EMPTY, Set::with)
    }

    /// The ops that may follow only since `at` has been added to `done`.
    pub(super) fn opened<const W: usize>(&self, done: &Set<W>, at: usize) -> impl Iterator<Item = usize> {
        let next = self.succs.row(at).iter().map(|&next| next as usize);
        next.filter(|&next| self.preds.row(next).iter().all(|&before| done.has(before as usize)))
    }

    /// What op `at` needs on top of the live bytes when it follows `done`, and how it changes them.
    pub(super) fn cost<const W: usize>(&self, done: &Set<W>, at: usize) -> (i64, i64) {
        self.cost_after(|other| done.has(other), at)
    }

    fn cost_after(&self, done: impl Fn(usize) -> bool, at: usize) -> (i64, i64) {
        // Backwards, the ops that have run are those that have not been taken back.
        let ran = |other: &u32| done(*other as usize) != self.backwards;
        let inputs = self.inputs.row(at);
        let dies = |row: u32| self.others.row(row as usize).iter().all(ran);
        let freed: i64 = inputs.iter().filter(|input| dies(input.0)).map(|input| input.1).sum();
        let (mut taken, mut served, mut used): (i64, Option<ValueId>, u128) = (0, None, 0);
        for &(output, input) in self.reuses.row(at) {
            let (others, size, _) = inputs[input as usize];
            // Beyond 128 inputs a takeover is not followed; the model's account stays the judge.
            if served != Some(output) && input < 128 && used >> input & 1 == 0 && dies(others) {
                taken += size;
                served = Some(output);
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
