//! Ops that give back more than they make, brought forward.

use memfit_ir::{Bytes, Graph, InPlace, OpId};

use crate::order::{Ledger, Model};
use crate::problem::signed;

/// `order`, with every op that leaves fewer bytes live than it found run as soon as it may, as long as that
/// doesn't raise the peak: an optimizer's update right after its gradient instead of after all gradients, which
/// nothing but running the backward pass again could make room for. Time O(ops + operands).
#[must_use]
pub fn early(graph: &Graph, order: &[OpId], in_place: InPlace, align: Bytes) -> Vec<OpId> {
    early_of(&Model::new(graph, align, in_place), order)
}

/// The same, of a model.
pub(super) fn early_of(model: &Model, order: &[OpId]) -> Vec<OpId> {
    let deps = model.dependencies();
    if !deps.allow(order) {
        return order.to_vec();
    }
    let peak = signed(model.peak(order));
    let mut left: Vec<usize> = (0..model.op_count()).map(|op| deps.preds(OpId::at(op)).len()).collect();
    let mut done = vec![false; order.len()];
    let mut ledger = Ledger::new(model);
    let mut early = Vec::with_capacity(order.len());
    for &next in order {
        let mut todo = vec![next];
        while let Some(op) = todo.pop() {
            let small = || ledger.leaves(op) < 0 && ledger.live().saturating_add(ledger.needs(op)) <= peak;
            if done[op.index()] || left[op.index()] > 0 || (op != next && !small()) {
                continue;
            }
            ledger.run(op);
            done[op.index()] = true;
            early.push(op);
            for &after in deps.succs(op) {
                left[after.index()] -= 1;
            }
            // Whoever may run now, or is the last to read something now; lowest number first.
            let last =
                model.problem.reads.row(op.index()).iter().filter_map(|&value| ledger.last_reader(value));
            let from = todo.len();
            todo.extend(deps.succs(op).iter().copied().chain(last));
            todo[from..].sort_unstable_by_key(|&op| std::cmp::Reverse(op));
        }
    }
    early
}
