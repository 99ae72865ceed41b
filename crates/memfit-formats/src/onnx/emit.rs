//! From tasks to the graph: a value for each storage that is used.

use memfit_ir::{Bytes, Graph, GraphBuilder, GraphError, OpSpec, Reuse, Role, ValueId, ValueSpec};

use super::elem::Class;
use super::lower::{Lowered, Storage};
use crate::FormatError;

/// Makes the graph called `name`. Constants that no task reads are left out; inputs never are.
pub(super) fn emit(lowered: Lowered, name: &str) -> Result<Graph, FormatError> {
    let refused = |error: GraphError| FormatError::new("", error.to_string());
    let mut written = vec![false; lowered.storages.len()];
    let mut used: Vec<bool> = lowered.storages.iter().map(|storage| storage.role == Role::Input).collect();
    let mut output = vec![false; lowered.storages.len()];
    for task in &lowered.tasks {
        task.reads.iter().for_each(|&at| used[at] = true);
        task.writes.iter().for_each(|&at| (used[at], written[at]) = (true, true));
    }
    for &at in &lowered.outputs {
        (used[at], output[at]) = (true, true);
    }
    let elsewhere: Vec<bool> = lowered.storages.iter().map(|storage| storage.elsewhere).collect();
    let mut builder = GraphBuilder::new(name);
    let mut values: Vec<Option<ValueId>> = vec![None; lowered.storages.len()];
    for (at, storage) in lowered.storages.into_iter().enumerate().filter(|(at, _)| used[*at]) {
        let role = match (written[at], output[at]) {
            (true, true) => Role::Output,
            (true, false) => Role::Activation,
            (false, _) if storage.elsewhere => Role::Input,
            (false, _) => storage.role,
        };
        values[at] = Some(builder.value(value(storage, role)?).map_err(refused)?);
    }
    let ids = |all: &[usize]| all.iter().filter_map(|&at| values[at]).collect::<Vec<_>>();
    for task in lowered.tasks {
        let pair = |&(from, to): &(usize, usize)| {
            if elsewhere[from] || elsewhere[to] {
                return None;
            }
            Some(Reuse { input: values[from]?, output: values[to]?, must: false })
        };
        let spec = OpSpec {
            reads: ids(&task.reads),
            writes: ids(&task.writes),
            reuses: task.reuses.iter().filter_map(pair).collect(),
            name: task.name,
            kind: task.kind,
            attributes: task.attributes,
            module: task.module,
            flops: task.flops,
            moved: Bytes(task.moved),
            workspace: Bytes(task.workspace),
            dtype: task.dtype,
            effect: task.effect,
            ..OpSpec::default()
        };
        builder.op(spec).map_err(refused)?;
    }
    for value in ids(&lowered.outputs) {
        builder.result(value).map_err(refused)?;
    }
    builder.finish().map_err(refused)
}

fn value(storage: Storage, role: Role) -> Result<ValueSpec, FormatError> {
    let place = || format!("value `{}`", storage.name);
    if storage.tensor.elem.class() == Class::Text {
        return Err(FormatError::new(place(), "it holds strings, whose size only a run can tell"));
    }
    let bytes = storage.tensor.bytes().map_err(|trouble| FormatError::new(place(), trouble.message))?;
    Ok(ValueSpec {
        size: if storage.elsewhere { Bytes::ZERO } else { Bytes(bytes) },
        dtype: storage.tensor.elem.dtype(),
        shape: storage.tensor.shape,
        name: storage.name,
        role,
        ..ValueSpec::default()
    })
}
