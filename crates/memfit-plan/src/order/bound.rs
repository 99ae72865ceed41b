//! A lower bound on the peak of every order.
//!
//! Source: the largest working set, as every memory planner uses it; sharpened by what is certainly resident.
//! Never above the optimum; far below it where many values must be live at once. O(ops + operands).

use memfit_ir::OpId;

use super::Model;

/// The bound described at [`Model::lower_bound`].
pub(super) fn of(model: &Model) -> i64 {
    let bytes = |value: usize| model.size[value];
    let permanent: i64 =
        (0..model.size.len()).filter(|&value| model.permanent[value] && model.source[value]).map(bytes).sum();
    let alone = |op: usize| {
        let reads = model.reads.row(op).iter().map(|&value| value as usize);
        let inputs: i64 = reads.filter(|&value| !model.permanent[value]).map(bytes).sum();
        permanent + inputs + model.needs[op] - most_taken(model, OpId::at(op))
    };
    let most = (0..model.op_count()).map(alone).max().unwrap_or(0);
    most.max(model.floor())
}

/// The most bytes that `op` may take over, if all its inputs end with it.
fn most_taken(model: &Model, op: OpId) -> i64 {
    let mut sum = 0;
    let mut inputs: Vec<u32> = Vec::new();
    let mut served = None;
    for &(output, input) in model.takes.row(op.index()) {
        if served != Some(output) && !model.kept[input as usize] && !inputs.contains(&input) {
            sum += model.size[input as usize];
            served = Some(output);
            inputs.push(input);
        }
    }
    sum
}
