//! What a program did in a step: the events that a replay runs again and a planner plans.

use memfit_ir::{Bytes, Effect, Graph, Nanos, Role};

use crate::call::Output;

/// One thing that a program did. Tensors are numbered in the order in which events make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Brought in the next tensor.
    Put {
        /// Bytes.
        size: Bytes,
        /// What it is to the step.
        role: Role,
    },
    /// Ran an op, which made the next `outputs.len()` tensors.
    Call {
        /// Index in [`Trace::kinds`].
        kind: usize,
        /// Tensors read.
        reads: Vec<u32>,
        /// What it made.
        outputs: Vec<Output>,
        /// How long it took.
        time: Nanos,
        /// Scratch bytes.
        workspace: Bytes,
        /// What it did besides.
        effect: Effect,
    },
    /// Took one more reference.
    Share(u32),
    /// Gave up a reference.
    Release(u32),
}

/// A recorded step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Names of ops.
    pub kinds: Vec<String>,
    /// Tensors that must be in memory together at the end, in the order in which they are asked for.
    pub held: Vec<u32>,
    /// Where the first tensors lay when the step began, in the order in which they are put; those after them, or all
    /// if it is empty, go where there is room.
    pub at: Vec<Bytes>,
}

/// What a step takes with all the memory in the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Σ time of the calls.
    pub time: Nanos,
    /// Most bytes in use, if everything goes at its last release.
    pub peak: Bytes,
    /// Calls.
    pub calls: usize,
}

/// For each value of `graph` the number of its tensor in [`Trace::of_graph`]: sources first, then by op.
pub(crate) fn numbering(graph: &Graph) -> Vec<u32> {
    let sources = graph.value_ids().filter(|&value| graph.value(value).producer.is_none());
    let made = graph.op_ids().flat_map(|op| graph.op(op).writes.iter().copied());
    let mut number = vec![0; graph.value_count()];
    for (at, value) in (0u32..).zip(sources.chain(made)) {
        number[value.index()] = at;
    }
    number
}

impl Trace {
    /// The step of `graph` in its own order, every value released after its last reader, results held.
    #[must_use]
    pub fn of_graph(graph: &Graph, time: impl Fn(memfit_ir::OpId) -> Nanos) -> Trace {
        let mut trace = Trace::default();
        let number = numbering(graph);
        let mut left: Vec<usize> = graph.value_ids().map(|value| graph.value(value).readers.len()).collect();
        for value in graph.value_ids().filter(|&value| graph.value(value).producer.is_none()) {
            trace.events.push(Event::Put { size: graph.value(value).size, role: graph.value(value).role });
        }
        let mut kinds = std::collections::BTreeMap::new();
        for id in graph.op_ids() {
            let op = graph.op(id);
            let next = trace.kinds.len();
            let kind = *kinds.entry(op.kind).or_insert(next);
            if kind == next {
                trace.kinds.push(op.kind.to_owned());
            }
            let outputs = op.writes.iter().map(|&value| {
                let value = graph.value(value);
                match value.over.and_then(|over| op.reads.iter().position(|&read| read == over)) {
                    Some(at) => Output::InPlace(at),
                    None => Output::Fresh(value.size),
                }
            });
            trace.events.push(Event::Call {
                kind,
                reads: op.reads.iter().map(|value| number[value.index()]).collect(),
                outputs: outputs.collect(),
                time: time(id),
                workspace: op.workspace,
                effect: op.effect,
            });
            let mut done = Vec::new();
            for &value in op.reads {
                left[value.index()] -= 1;
                if left[value.index()] == 0 {
                    done.push(value);
                }
            }
            done.extend(op.writes.iter().copied().filter(|value| left[value.index()] == 0));
            for value in done.into_iter().filter(|&value| !graph.is_result(value)) {
                trace.events.push(Event::Release(number[value.index()]));
            }
        }
        trace.held = graph.results().iter().map(|value| number[value.index()]).collect();
        trace
    }

    /// Time and peak without a budget.
    #[must_use]
    pub fn base(&self) -> Base {
        let mut base = Base::default();
        // For each tensor its storage; for each storage its bytes and references.
        let (mut storage_of, mut storages): (Vec<usize>, Vec<(Bytes, usize)>) = (Vec::new(), Vec::new());
        let mut live = Bytes::ZERO;
        for event in &self.events {
            match event {
                Event::Put { size, .. } => {
                    storage_of.push(storages.len());
                    storages.push((*size, 1));
                    live += *size;
                    base.peak = base.peak.max(live);
                }
                Event::Call { reads, outputs, time, workspace, .. } => {
                    for output in outputs {
                        let of = |at: usize| storage_of.get(*reads.get(at)? as usize).copied();
                        let (size, grows) = match *output {
                            Output::Fresh(size) => (size, true),
                            Output::Takes(size, at) => match of(at) {
                                Some(old) if storages[old] == (size, 1) => {
                                    (std::mem::take(&mut storages[old].0), false)
                                }
                                _ => (size, true),
                            },
                            Output::InPlace(at) => {
                                let Some(old) = of(at) else { continue };
                                (std::mem::take(&mut storages[old].0), false)
                            }
                            Output::View(at) => {
                                let Some(storage) = of(at) else { continue };
                                storage_of.push(storage);
                                storages[storage].1 += 1;
                                continue;
                            }
                        };
                        storage_of.push(storages.len());
                        storages.push((size, 1));
                        if grows {
                            live += size;
                        }
                    }
                    base.peak = base.peak.max(live + *workspace);
                    base.time = base.time + *time;
                    base.calls += 1;
                }
                Event::Share(tensor) => {
                    if let Some(storage) = storage_of.get(*tensor as usize) {
                        storages[*storage].1 += 1;
                    }
                }
                Event::Release(tensor) => {
                    let Some(&storage) = storage_of.get(*tensor as usize) else { continue };
                    let (size, held) = &mut storages[storage];
                    *held = held.saturating_sub(1);
                    if *held == 0 {
                        live = live.saturating_sub(*size);
                    }
                }
            }
        }
        base
    }
}
