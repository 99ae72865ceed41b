//! What nobody needs: ops none of whose outputs are read or results, and inputs that nobody reads.
//!
//! Source: Kennedy, "A Survey of Data Flow Analysis Techniques" (1981): an op lives if it has an effect, or somebody who lives reads what it
//! computes. Guarantee: what is left computes the same results; parameters, state and constants stay, for they are
//! results by what they are. Time and space O(ops + operands).

use memfit_ir::{Effect, Graph};

use super::Change;

/// Ops that are dead, and inputs that nobody who lives reads.
pub(super) fn propose(graph: &Graph) -> Vec<Change> {
    let mut needed: Vec<bool> = graph.value_ids().map(|value| graph.is_result(value)).collect();
    let mut dead = Vec::new();
    for id in graph.op_ids().rev() {
        let op = graph.op(id);
        if op.effect != Effect::Pure || op.writes.iter().any(|value| needed[value.index()]) {
            op.reads.iter().for_each(|value| needed[value.index()] = true);
        } else {
            dead.push(Change::Remove(id));
        }
    }
    dead.reverse();
    let idle = |value: &memfit_ir::ValueId| {
        let there = graph.value(*value);
        !needed[value.index()] && there.producer.is_none() && there.pin.is_none()
    };
    dead.extend(graph.value_ids().filter(idle).map(Change::Forget));
    dead
}
