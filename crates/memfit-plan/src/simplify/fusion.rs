//! Groups of element-wise ops that a compiler may run as one: what they compute for themselves alone is never stored.
//!
//! Source: Inductor and XLA fuse loops of the same elements; here it is the tree below one op, its *sink*: an op joins the group of
//! its readers if all of them are in one group, in the same part of the step, and read it element by element (the graph has
//! an in-place pair for it). So no path leaves a group and comes back. A group is told only if the peak of live bytes does
//! not rise by it, since operands are read as late as the sink runs. It's told to hosts that fuse, and no plan counts on it.
//! Time O(operands), and O(ops + operands) a trial.

use memfit_ir::{Device, Effect, Graph, GraphBuilder, GraphError, OpId, OpSpec, Reuse, ValueId};

use super::{Finding, parts, trial};

/// The groups of two and more ops, by their sinks.
pub(super) fn find(graph: &Graph, device: &Device) -> Vec<Finding> {
    let mut group: Vec<Option<OpId>> = vec![None; graph.op_count()];
    let mut members: Vec<Vec<OpId>> = vec![Vec::new(); graph.op_count()];
    for id in graph.op_ids().rev().filter(|&id| is_element_wise(graph, id)) {
        let sink = joins(graph, id, &group).unwrap_or(id);
        group[id.index()] = Some(sink);
        members[sink.index()].push(id);
    }
    let groups = members.into_iter().filter(|ops| ops.len() > 1);
    let findings = groups
        .map(|mut ops| {
            ops.reverse();
            parts::finding(graph, device, ops)
        })
        .collect();
    trial::kept(graph, device.align, findings, fused)
}

fn is_element_wise(graph: &Graph, id: OpId) -> bool {
    let op = graph.op(id);
    op.effect == Effect::Pure
        && op.writes.len() == 1
        && !op.reuses.is_empty()
        && op.reuses.iter().all(|pair| !pair.must)
}

/// The group that `id` can join.
fn joins(graph: &Graph, id: OpId, group: &[Option<OpId>]) -> Option<OpId> {
    let op = graph.op(id);
    let out = op.writes[0];
    let value = graph.value(out);
    if graph.is_result(out) || value.mutator.is_some() || value.pin.is_some() {
        return None;
    }
    let sink = group[value.readers.first()?.index()]?;
    let fits = |&reader: &OpId| {
        let by = graph.op(reader);
        group[reader.index()] == Some(sink)
            && by.phase == op.phase
            && by.reuses.iter().any(|pair| pair.input == out)
    };
    value.readers.iter().all(fits).then_some(sink)
}

/// The graph with each of the groups as one op, at the place of its sink: what a host that fuses runs.
///
/// # Errors
///
/// If an operand of a group is overwritten before its sink runs.
pub fn fused(graph: &Graph, groups: &[Finding]) -> Result<Graph, GraphError> {
    let mut absent = vec![false; graph.value_count()];
    let mut at: Vec<Option<usize>> = vec![None; graph.op_count()];
    for (index, group) in groups.iter().enumerate() {
        group.inner.iter().for_each(|value| absent[value.index()] = true);
        group.ops.iter().for_each(|op| at[op.index()] = Some(index));
    }
    let mut builder = GraphBuilder::new(graph.name());
    builder.replays_random(graph.replays_random());
    let mut new: Vec<Option<ValueId>> = vec![None; graph.value_count()];
    for id in graph.value_ids().filter(|id| !absent[id.index()]) {
        new[id.index()] = Some(builder.value(graph.value(id).to_spec())?);
    }
    for id in graph.op_ids() {
        let spec = match at[id.index()].map(|index| &groups[index]) {
            None => graph.op(id).to_spec(),
            Some(group) if group.ops.last() == Some(&id) => whole(graph, group),
            Some(_) => continue,
        };
        builder.op(parts::renamed(spec, &new))?;
    }
    for value in graph.results() {
        new[value.index()].map_or(Ok(()), |value| builder.result(value))?;
    }
    builder.finish()
}

/// A group as one op.
fn whole(graph: &Graph, group: &Finding) -> OpSpec {
    let sink = graph.op(group.ops[group.ops.len() - 1]);
    let all = || group.ops.iter().map(|&id| graph.op(id));
    let mut reads: Vec<ValueId> = all().flat_map(|op| op.reads).copied().collect();
    reads.sort_unstable();
    reads.dedup();
    reads.retain(|value| group.inner.binary_search(value).is_err());
    let output = sink.writes[0];
    let by_element = |value: ValueId| {
        all().all(|op| !op.reads.contains(&value) || op.reuses.iter().any(|pair| pair.input == value))
    };
    let fits = |value: ValueId| graph.value(value).size == graph.value(output).size && by_element(value);
    let over = reads.iter().copied().filter(|&value| fits(value));
    OpSpec {
        kind: "fused".to_owned(),
        attributes: None,
        flops: all().map(|op| op.flops).sum(),
        moved: all().map(|op| op.moved).sum::<memfit_ir::Bytes>().saturating_sub(group.moved),
        time: all().map(|op| op.time).sum(),
        workspace: all().map(|op| op.workspace).max().unwrap_or_default(),
        reuses: over.map(|input| Reuse { input, output, must: false }).collect(),
        reads,
        needs: Vec::new(),
        algorithms: Vec::new(),
        ..sink.to_spec()
    }
}
