//! From "keep these, drop those" to a schedule: what was dropped is made again when it is read.

use memfit_ir::ValueId;

use super::ids::{NodeId, earlier};
use super::layers::turn;
use super::{RunList, Task};

/// Runs every node in order. A value that `keeps` refuses is forgotten at `turn`, and made again, with all it
/// needs, when a node reads it after that. What is made again is remembered up to its last use, or, where
/// `remembers(place, batch)` refuses the one at that place of the nodes that run again together, up to the end of the node
/// it was made for.
pub(in crate::schedule) fn rebuild(
    task: &Task<'_>,
    turn: usize,
    keeps: impl Fn(ValueId) -> bool,
    remembers: impl Fn(usize, &[NodeId]) -> bool,
) -> RunList {
    let mut runs = Vec::new();
    let mut here = vec![false; task.size.len()];
    let mut mutated = vec![false; task.size.len()];
    for value in (0..here.len()).filter(|&value| task.producer[value].is_none()) {
        here[value] = true;
    }
    for node in task.node_ids() {
        if node.index() == turn {
            forget(task, &mut here, &mutated, node, &keeps);
        }
        let batch = missing(task, &here, task.reads.row(node.index()));
        for &producer in &batch {
            runs.push(producer);
            for &value in task.writes_of(producer, false) {
                here[value.index()] = true;
            }
            mutate(task, producer, false, &mut here, &mut mutated);
        }
        runs.push(node);
        for &value in task.writes.row(node.index()) {
            here[value.index()] = true;
        }
        mutate(task, node, true, &mut here, &mut mutated);
        for (place, &producer) in batch.iter().enumerate() {
            if !remembers(place, &batch) {
                for &value in task.writes_of(producer, false) {
                    here[value.index()] = false;
                }
            }
        }
    }
    RunList { runs }
}

fn mutate(task: &Task<'_>, node: NodeId, first: bool, here: &mut [bool], mutated: &mut [bool]) {
    for &value in task.reads_of(node, first) {
        if task.mutator[value.index()] == Some(node) {
            here[value.index()] = false;
            mutated[value.index()] = true;
        }
    }
}

/// Forgets what is not kept, but only what can be made again from what then remains, and until its last reader.
fn forget(
    task: &Task<'_>,
    here: &mut [bool],
    mutated: &[bool],
    now: NodeId,
    keeps: &impl Fn(ValueId) -> bool,
) {
    // By value: whether it is there or can be made again, looked at in the order of the producers; and the last node
    // before which it can be made again, with all that is not there by then.
    let mut can = vec![false; here.len()];
    let mut until: Vec<Option<NodeId>> = vec![None; here.len()];
    for value in 0..here.len() {
        can[value] = task.producer[value].is_none() && !mutated[value];
    }
    for producer in task.node_ids().take(now.index()) {
        let reads = task.reads_of(producer, false);
        let again = task.recomputable[producer.index()] && reads.iter().all(|&read| can[read.index()]);
        // What is there and is never mutated sets no deadline.
        let stays = |read: usize| here[read] && task.mutator[read].is_none();
        let late = reads.iter().map(|read| read.index()).filter(|&read| !stays(read));
        let deadline = late.map(|read| until[read]).fold(task.deadline[producer.index()], earlier);
        for &value in task.writes.row(producer.index()) {
            let at = value.index();
            let in_time = deadline.is_none_or(|deadline| {
                !task.live_out[at] && task.readers.row(at).last().is_none_or(|&last| last <= deadline)
            });
            // What is kept and no first run reads any more serves as a checkpoint, or is freed if nothing needs it.
            if here[at] && again && in_time && !keeps(value) {
                here[at] = false;
            }
            can[at] = here[at] || again;
            until[at] = if again { deadline } else { task.mutator[at] };
        }
    }
}

/// The schedule that keeps of the forward pass what is read beyond the end of its segment. `cuts` are the
/// first nodes of all segments but the first.
pub(super) fn segmented(task: &Task<'_>, turn: usize, cuts: &[usize]) -> RunList {
    let segment = |node: NodeId| cuts.partition_point(|&cut| cut <= node.index());
    let keeps = |value: ValueId| {
        let Some(producer) = task.producer[value.index()] else { return true };
        let mut readers = task.readers.row(value.index()).iter();
        readers.any(|&reader| reader.index() < turn && segment(reader) != segment(producer))
            || segment(producer) == cuts.len()
    };
    rebuild(task, turn, keeps, |_, _| true)
}

/// Segments of equal bytes, for 24 sizes: from all of the forward pass down to a thousandth, each three
/// quarters of the one before.
pub(super) fn by_bytes(task: &Task<'_>, stop: &(dyn Fn() -> bool + Sync)) -> Vec<RunList> {
    let turn = turn(task);
    let made = |node: usize| task.writes.row(node).iter().map(|&v| task.size[v.index()]).sum::<i64>();
    let mut size: i64 = (0..turn).map(made).sum();
    let mut schedules = Vec::new();
    while schedules.len() < 24 && !stop() {
        let mut cuts = Vec::new();
        let mut filled = 0;
        for node in 0..turn {
            filled += made(node);
            if filled > size {
                cuts.push(node + 1);
                filled = 0;
            }
        }
        schedules.push(segmented(task, turn, &cuts));
        size = size / 4 * 3;
    }
    schedules
}

/// Nodes that must run again so that all of `wanted` are there, each after what it needs.
fn missing(task: &Task<'_>, here: &[bool], wanted: &[ValueId]) -> Vec<NodeId> {
    let mut batch: Vec<NodeId> = Vec::new();
    let mut todo: Vec<ValueId> = wanted.iter().copied().filter(|&value| !here[value.index()]).collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(value) = todo.pop() {
        let Some(producer) = task.producer[value.index()].filter(|&producer| seen.insert(producer)) else {
            continue;
        };
        batch.push(producer);
        todo.extend(task.reads_of(producer, false).iter().copied().filter(|&read| !here[read.index()]));
    }
    batch.sort_unstable();
    batch
}
