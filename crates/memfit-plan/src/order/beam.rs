//! Beam search: many orders grown side by side, the lowest few kept at each length.
//!
//! From each state the ops that leave least are tried. Before a state is compared, all that is safe is run: an
//! op that leaves no more bytes live than before and rises no higher than the peak so far costs nothing
//! (`order/exact.rs` says why), so a state is judged by the valley it leads to and not by the hill it stands on:
//! that is the lookahead. States with the same ops done are one; the lower peak stays. Kept are those with the
//! least `(peak, live bytes)`. Source: Lowerre's beam search (1976), as the anytime improver that the notes on
//! ordering ask for; here without a learned score. No bound on the peak; never returns what is not below the
//! peak to beat. O(n · width · (n + e)) time at worst, bounded by the work allowed; space O(width · (n + e)).
//! Ties go to the state found first. The wrong choice where one early decision matters late: the beam has
//! forgotten the others by then.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use memfit_ir::OpId;

use super::{Ledger, Model};
use crate::Context;

/// An order below `below`, from a beam of `width` states that grows forwards or backwards; `work` is what may be spent, in ops looked at and
/// numbers copied, and is reduced by what was.
pub(super) fn search(
    model: &Model,
    below: i64,
    bound: i64,
    (width, backwards): (usize, bool),
    work: &mut usize,
    context: &Context<'_>,
) -> Option<Vec<OpId>> {
    let mut steps: Vec<(usize, OpId)> = Vec::new(); // Orders as paths in a tree: `(step before + 1, op)`.
    let mut layers: BTreeMap<usize, Vec<Next>> = BTreeMap::new();
    let mut start = Beam::start(model, bound, backwards);
    start.settle(&mut steps, work, context);
    if start.done == model.op_count() {
        return Some(start.order(&steps));
    }
    start.spread(width, below, &mut layers, work);
    while let Some((_, mut layer)) = layers.pop_first() {
        layer.sort_by_key(|next| (next.peak, next.live));
        let mut seen: HashSet<u64> = HashSet::new();
        layer.retain(|next| seen.insert(next.hash));
        layer.truncate(width);
        for Next { from, op, .. } in layer {
            if *work == 0 || (context.stop)() {
                return None;
            }
            // The last of a state's offspring takes its place without a copy.
            let mut state = Rc::try_unwrap(from).unwrap_or_else(|shared| {
                *work = work.saturating_sub(shared.size());
                (*shared).clone()
            });
            state.run(op, &mut steps);
            state.settle(&mut steps, work, context);
            if state.done == model.op_count() {
                // No other that is as long can be lower: layers are taken by length, states by peak.
                return Some(state.order(&steps));
            }
            state.spread(width, below, &mut layers, work);
        }
    }
    None
}

/// A state to be made: `from`, then `op`.
struct Next<'m> {
    peak: i64,
    live: i64,
    hash: u64,
    from: Rc<Beam<'m>>,
    op: OpId,
}

#[derive(Clone)]
struct Beam<'m> {
    model: &'m Model,
    ledger: Ledger<'m>,
    /// Orders grow from their last op: to run one is to take it back.
    backwards: bool,
    waiting: Vec<u32>,
    ready: Vec<OpId>,
    done: usize,
    peak: i64,
    /// Names the set of ops that have run.
    hash: u64,
    /// The last of its steps, plus one.
    step: usize,
}

impl<'m> Beam<'m> {
    fn start(model: &'m Model, bound: i64, backwards: bool) -> Beam<'m> {
        let deps = &model.deps;
        let before = |op| if backwards { deps.succs(op) } else { deps.preds(op) };
        let ops = || (0..model.op_count()).map(OpId::at);
        let waiting: Vec<u32> = ops().map(|op| super::model::index(before(op).len())).collect();
        let ready = ops().filter(|op| waiting[op.index()] == 0).collect();
        let ledger = if backwards { Ledger::finished(model) } else { Ledger::new(model) };
        Beam { model, ledger, backwards, waiting, ready, done: 0, peak: bound, hash: 0, step: 0 }
    }

    /// What a ready op needs on top of the live bytes, and how it changes them.
    fn cost(&self, op: OpId) -> (i64, i64) {
        if self.backwards {
            let (needs, leaves) = self.ledger.last(op);
            (needs - leaves, -leaves)
        } else {
            (self.ledger.needs(op), self.ledger.leaves(op))
        }
    }

    /// Numbers that a copy copies.
    fn size(&self) -> usize {
        self.model.problem.value_count() + self.waiting.len() / 2 + self.ready.len() / 2
    }

    fn run(&mut self, op: OpId, steps: &mut Vec<(usize, OpId)>) {
        self.peak = self.peak.max(self.ledger.live() + self.cost(op).0);
        if self.backwards {
            self.ledger.unrun(op);
        } else {
            self.ledger.run(op);
        }
        self.hash ^= name(op);
        self.done += 1;
        steps.push((self.step, op));
        self.step = steps.len();
        self.ready.retain(|&other| other != op);
        let deps = &self.model.deps;
        for &next in if self.backwards { deps.preds(op) } else { deps.succs(op) } {
            self.waiting[next.index()] -= 1;
            if self.waiting[next.index()] == 0 {
                self.ready.push(next);
            }
        }
    }

    /// Runs all that is safe.
    fn settle(&mut self, steps: &mut Vec<(usize, OpId)>, work: &mut usize, context: &Context<'_>) {
        while !(context.stop)() {
            let room = self.peak - self.ledger.live();
            let safe = |&op: &OpId| {
                let (needs, leaves) = self.cost(op);
                leaves <= 0 && needs <= room
            };
            *work = work.saturating_sub(2 * self.ready.len());
            let Some(op) = self.ready.iter().copied().find(safe) else { return };
            self.run(op, steps);
        }
    }

    /// Proposes what may come next: the `width` ops that leave least.
    fn spread(self, width: usize, below: i64, layers: &mut BTreeMap<usize, Vec<Next<'m>>>, work: &mut usize) {
        *work = work.saturating_sub(self.ready.len());
        let live = self.ledger.live();
        let way = |&op: &OpId| {
            let (needs, leaves) = self.cost(op);
            (live + needs, live + leaves, op)
        };
        let mut ways: Vec<(i64, i64, OpId)> = self.ready.iter().map(way).collect();
        ways.retain(|&(hill, ..)| hill < below);
        ways.sort_unstable_by_key(|&(hill, live, op)| (hill.max(self.peak), live, op));
        ways.truncate(width);
        let from = Rc::new(self);
        let layer = layers.entry(from.done + 1).or_default();
        layer.extend(ways.into_iter().map(|(hill, live, op)| Next {
            peak: from.peak.max(hill),
            live,
            hash: from.hash ^ name(op),
            from: Rc::clone(&from),
            op,
        }));
    }

    fn order(&self, steps: &[(usize, OpId)]) -> Vec<OpId> {
        let (mut order, mut step) = (Vec::with_capacity(self.done), self.step);
        while step > 0 {
            let (before, op) = steps[step - 1];
            order.push(op);
            step = before;
        }
        if !self.backwards {
            order.reverse();
        }
        order
    }
}

/// A number that stands for an op, so that the exclusive or of many stands for a set.
fn name(op: OpId) -> u64 {
    // SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    let mut z = (u64::from(op.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
