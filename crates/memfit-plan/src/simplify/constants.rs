//! Values that can be computed ahead: by pure ops from constants alone.
//!
//! Source: Aho, Sethi and Ullman, "Compilers" (1986), constant folding. A graph has no contents, so nothing is folded here: what a host
//! could fold is told, by its size. What is computed ahead stays in memory for the whole step, so it is told only where the
//! peak of live bytes does not rise by it. Only what the graph calls constant counts: parameters change between steps.
//! Time O(ops + operands) a trial.

use memfit_ir::{Device, Effect, Graph, GraphBuilder, GraphError, OpId, Role, ValueId};

use super::{Finding, parts, trial};

/// By value that others need and that can be computed ahead: the ops that it takes.
pub(super) fn find(graph: &Graph, device: &Device) -> Vec<Finding> {
    let mut fixed: Vec<bool> = graph.value_ids().map(|value| is_constant(graph, value)).collect();
    let mut folded = vec![false; graph.op_count()];
    for id in graph.op_ids() {
        let op = graph.op(id);
        let is_plain =
            op.effect == Effect::Pure && !op.writes.is_empty() && op.reuses.iter().all(|pair| !pair.must);
        let stays = |value: &ValueId| graph.value(*value).mutator.is_none();
        if is_plain && op.reads.iter().all(|value| fixed[value.index()]) && op.writes.iter().all(stays) {
            folded[id.index()] = true;
            op.writes.iter().for_each(|value| fixed[value.index()] = true);
        }
    }
    let ops: Vec<OpId> = graph.op_ids().filter(|id| folded[id.index()]).collect();
    let groups = parts::joined(graph, &ops, |value| folds(graph, &folded, value));
    let findings: Vec<Finding> = groups.into_iter().map(|ops| parts::finding(graph, device, ops)).collect();
    trial::kept(graph, device.align, findings, ahead)
}

fn is_constant(graph: &Graph, id: ValueId) -> bool {
    let value = graph.value(id);
    value.producer.is_none() && value.role == Role::Constant && value.mutator.is_none()
}

/// Whether the op that computes `value` is one of those.
fn folds(graph: &Graph, folded: &[bool], value: ValueId) -> bool {
    graph.value(value).producer.is_some_and(|op| folded[op.index()])
}

/// The graph in which the results of `findings` are constants, and constants that nobody reads any more are not there.
fn ahead(graph: &Graph, findings: &[Finding]) -> Result<Graph, GraphError> {
    let mut gone = vec![false; graph.op_count()];
    let mut absent = vec![false; graph.value_count()];
    for finding in findings {
        finding.ops.iter().for_each(|op| gone[op.index()] = true);
        finding.inner.iter().for_each(|value| absent[value.index()] = true);
    }
    let still = |op: &OpId| !gone[op.index()];
    for id in graph.value_ids().filter(|&id| is_constant(graph, id)) {
        let readers = graph.value(id).readers;
        absent[id.index()] = !readers.is_empty() && !readers.iter().any(still);
    }
    let mut builder = GraphBuilder::new(graph.name());
    let mut new: Vec<Option<ValueId>> = vec![None; graph.value_count()];
    for id in graph.value_ids().filter(|id| !absent[id.index()]) {
        let mut spec = graph.value(id).to_spec();
        if graph.value(id).producer.is_some_and(|op| gone[op.index()]) {
            spec.role = Role::Constant;
        }
        new[id.index()] = Some(builder.value(spec)?);
    }
    for id in graph.op_ids().filter(still) {
        builder.op(parts::renamed(graph.op(id).to_spec(), &new))?;
    }
    for value in graph.results() {
        new[value.index()].map_or(Ok(()), |value| builder.result(value))?;
    }
    builder.finish()
}
