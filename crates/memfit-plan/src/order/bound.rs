//! Lower bounds on the peak of every order.
//!
//! [`of`] is the largest working set, as every memory planner uses it, with what is always resident: linear
//! time. [`around`] adds, for one op, every value that must exist while that op runs: made before it in every
//! order, and read by it or after it in every order. That is where training graphs have their peak: what the
//! forward pass saves for the backward pass is live at the loss. Both are never above the optimum; they are
//! below it where one of two values must be live, but either may be: there a minimum cut (`order/cut.rs`)
//! decides. [`strongest`] looks for the op with the
//! highest bound, given a good order: no op's bound is above what is live while it runs in *any* order, so ops
//! are asked from the highest down, until what is live is no more than the bound so far.

use std::cmp::Reverse;

use memfit_ir::{Bytes, OpId, Reuse, ValueId};

use super::{Ledger, Model};
use crate::problem::bytes;

/// See [`crate::Context::stop`].
type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// The highest bound that `effort` steps along edges are enough to find.
pub(super) fn strongest(model: &Model, order: &[OpId], effort: usize, stop: Stop<'_>) -> i64 {
    let mut ledger = Ledger::new(model);
    let mut hills: Vec<(i64, OpId)> = order.iter().map(|&op| (ledger.run(op), op)).collect();
    hills.sort_unstable_by_key(|&hill| Reverse(hill));
    let mut bound = of(model);
    let mut reached = vec![0; model.op_count()];
    let most = effort / (4 * model.problem.value_count().max(1));
    for (mark, &(hill, op)) in (1..).zip(hills.iter().take(most)) {
        if hill <= bound || stop() {
            break;
        }
        bound = bound.max(around(model, op, &mut reached, mark));
    }
    for &(hill, op) in hills.iter().take(CUTS) {
        if hill <= bound || stop() {
            break;
        }
        let Some((live, _)) = super::cut::least(model, op, effort / CUTS) else { continue };
        bound = bound.max(live + model.needs[op.index()] - most_taken(model, op));
    }
    bound
}

/// Steps along edges that a bound is worth where nothing else is said.
pub(super) const EFFORT: usize = 20_000_000;

/// Minimum cuts for so many of the highest ops.
const CUTS: usize = 16;

/// No order has a smaller peak, because of what must be live while `op` runs. `reached` is scratch by op,
/// which holds no mark `2 * mark` or `2 * mark + 1`.
fn around(model: &Model, op: OpId, reached: &mut [u32], mark: u32) -> i64 {
    let (before, after) = (2 * mark, 2 * mark + 1);
    let mut open = vec![op];
    while let Some(op) = open.pop() {
        let preds = model.deps.preds(op).iter().copied();
        open.extend(preds.filter(|pred| std::mem::replace(&mut reached[pred.index()], before) != before));
    }
    open.push(op);
    reached[op.index()] = after;
    while let Some(op) = open.pop() {
        let succs = model.deps.succs(op).iter().copied();
        open.extend(succs.filter(|succ| std::mem::replace(&mut reached[succ.index()], after) != after));
    }
    let needed = |value: usize| {
        model.problem.resident[value] && model.problem.producer[value].is_none()
            || !model.problem.resident[value]
                && model.problem.producer[value].is_none_or(|made| reached[made.index()] == before)
                && (model.problem.live_out[value]
                    || model.problem.readers.row(value).iter().any(|op| reached[op.index()] == after))
    };
    let resident: i64 =
        (0..model.problem.value_count()).filter(|&value| needed(value)).map(|v| model.problem.bytes[v]).sum();
    resident + model.needs[op.index()] - most_taken(model, op)
}

/// The bound described at [`Model::lower_bound`].
pub(super) fn of(model: &Model) -> i64 {
    let bytes = |value: usize| model.problem.bytes[value];
    let permanent: i64 = (0..model.problem.value_count())
        .filter(|&value| model.problem.resident[value] && model.problem.producer[value].is_none())
        .map(bytes)
        .sum();
    let alone = |op: usize| {
        let reads = model.problem.reads.row(op).iter().map(|value| value.index());
        let inputs: i64 = reads.filter(|&value| !model.problem.resident[value]).map(bytes).sum();
        permanent + inputs + model.needs[op] - most_taken(model, OpId::at(op))
    };
    let most = (0..model.op_count()).map(alone).max().unwrap_or(0);
    most.max(model.floor())
}

/// The most bytes that `op` may take over, if all its inputs end with it.
fn most_taken(model: &Model, op: OpId) -> i64 {
    let mut sum = 0;
    let mut inputs: Vec<ValueId> = Vec::new();
    let mut served = None;
    for &Reuse { output, input, .. } in model.problem.permitted(op.index()) {
        if served != Some(output) && !model.problem.live_out[input.index()] && !inputs.contains(&input) {
            sum += model.problem.bytes[input.index()];
            served = Some(output);
            inputs.push(input);
        }
    }
    sum
}

impl Model {
    /// A stronger bound than [`Model::lower_bound`], found by asking what must be live around the highest ops
    /// of a good `order`. Equal to its peak on most training graphs, which proves the order optimal. Work
    /// bounded to some hundred walks over the graph and a few maximum flows.
    #[must_use]
    pub fn bound_around(&self, order: &[OpId]) -> Bytes {
        bytes(strongest(self, order, EFFORT, &|| false))
    }

    /// No order of the graph has a smaller peak: the largest need of a single op, with all storages that live
    /// across the step boundary; all sources, which are there at the start; all results, which are there at
    /// the end. Time O(ops + operands).
    #[must_use]
    pub fn lower_bound(&self) -> Bytes {
        bytes(of(self))
    }
}
