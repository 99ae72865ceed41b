//! What the engine knows of a plan while it follows it.

use memfit_ir::{BufferId, Compute, Content, Digest, Need, OpId, ValueId};

use crate::maybe::Maybe;
use crate::plan::{StepPlan, repetitions};

/// A tensor by its number, and the serial number that tells it from those before it; or none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Named {
    pub(crate) tensor: Maybe<u32>,
    pub(crate) serial: u32,
}

/// What the sources of a graph that outlive its step have become by its end.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) graph: Digest,
    pub(crate) sources: Vec<Named>,
}

/// A plan that is being followed.
#[derive(Debug)]
pub(crate) struct Guide {
    pub(crate) plan: StepPlan,
    /// The next step of the program, and the next op of the graph.
    pub(crate) step: usize,
    pub(crate) op: usize,
    /// For each value its tensor with its serial number, and the buffer that holds it.
    pub(crate) tensors: Vec<Named>,
    pub(crate) holder: Vec<Maybe<BufferId>>,
    /// What the plan has freed, and can't go yet: the program holds it still, or what is computed from it alone.
    pub(crate) leaving: Vec<ValueId>,
    /// For each copy in another tier, and each buffer with something encoded, its number among the engine's copies.
    pub(crate) copies: Vec<Maybe<u32>>,
    pub(crate) encoded: Vec<Maybe<u32>>,
    /// For each value whether its storage is at home encoded; empty if none is.
    homes: Vec<bool>,
    /// For each source that outlives steps the tensor that it was when the last step ended, if that is known.
    pub(crate) hints: Vec<Named>,
    /// For each value, beyond the last step that runs something again which reads it; 0 if none does.
    last_repeats: Vec<usize>,
    /// For each tensor its value.
    values: Vec<Maybe<ValueId>>,
}

impl Guide {
    pub(crate) fn new(plan: StepPlan) -> Guide {
        let values = plan.graph().value_count();
        let mut holder = vec![Maybe::NONE; values];
        for &buffer in &plan.program().resident {
            if let Content::Value(value) = plan.program().buffers[buffer.index()].content {
                holder[value.index()] = buffer.into();
            }
        }
        let last_repeats = last_repeats(&plan);
        let (copies, buffers) = (plan.program().copies.len(), plan.program().buffers.len());
        // Most plans have nothing encoded.
        let encodes =
            plan.program().buffers.iter().any(|buffer| matches!(buffer.content, Content::Encoded(..)));
        let homes = encoded_homes(&plan);
        Guide {
            plan,
            step: 0,
            op: 0,
            tensors: vec![Named::default(); values],
            holder,
            leaving: Vec::new(),
            copies: vec![Maybe::NONE; copies],
            hints: Vec::new(),
            encoded: vec![Maybe::NONE; if encodes { buffers } else { 0 }],
            homes,
            last_repeats,
            values: Vec::new(),
        }
    }

    /// `value` is this tensor.
    pub(crate) fn bind(&mut self, value: ValueId, named: Named) {
        self.tensors[value.index()] = named;
        // What is discarded at once has no tensor.
        let Some(tensor) = named.tensor.get() else { return };
        let at = tensor as usize;
        if self.values.len() <= at {
            self.values.resize(at + 1, Maybe::NONE);
        }
        self.values[at] = value.into();
    }

    /// `buffer` holds `value`, unless another does already: the engine does not keep two.
    pub(crate) fn hold(&mut self, value: ValueId, buffer: BufferId) {
        let holder = &mut self.holder[value.index()];
        if holder.is_none() {
            *holder = buffer.into();
        }
    }

    /// `compute` runs: its outputs are held, and what it takes over is not any more.
    pub(crate) fn hold_written(&mut self, compute: &Compute) {
        let plan = self.plan.clone();
        let buffers = plan.program().writes(compute);
        for (&buffer, &value) in buffers.iter().zip(plan.graph().op(compute.op).writes) {
            self.hold(value, buffer);
        }
        let over = buffers.iter().filter_map(|buffer| plan.program().buffers[buffer.index()].over);
        for over in over {
            if let Content::Value(value) = plan.program().buffers[over.index()].content {
                self.holder[value.index()] = Maybe::NONE;
            }
        }
    }

    /// Whether a step to come runs something again that reads this tensor.
    pub(crate) fn is_read_again(&self, named: Named) -> bool {
        let value = named.tensor.get().and_then(|tensor| self.values.get(tensor as usize)?.get());
        value.is_some_and(|value| {
            self.tensors[value.index()] == named && self.last_repeats[value.index()] > self.step
        })
    }

    /// The tensor that `value` is, or that it will turn out to be.
    pub(crate) fn likely(&self, value: ValueId) -> Named {
        let named = self.tensors[value.index()];
        match self.hints.get(value.index()) {
            Some(&hint) if named.tensor.is_none() => hint,
            _ => named,
        }
    }

    /// Whether some storages are at home encoded.
    pub(crate) fn encodes_homes(&self) -> bool {
        !self.homes.is_empty()
    }

    /// Whether the storage of `value` is.
    pub(crate) fn is_home_encoded(&self, value: ValueId) -> bool {
        self.homes.get(value.index()).copied().unwrap_or_default()
    }

    /// Whether all calls of the plan have come.
    pub(crate) fn is_done(&self) -> bool {
        self.op >= self.plan.graph().op_count()
    }

    pub(crate) fn next_is_put(&self) -> bool {
        !self.is_done() && self.plan.graph().op(OpId::at(self.op)).kind == "put"
    }
}

/// See [`Guide::homes`].
fn encoded_homes(plan: &StepPlan) -> Vec<bool> {
    let (graph, program) = (plan.graph(), plan.program());
    let contents = program.resident.iter().map(|buffer| program.buffers[buffer.index()].content);
    // Who reads a storage between steps wants all of it.
    let is_whole = |content: &Content| content.codec().is_some_and(|codec| codec.keeps() == Need::Value);
    let encoded = contents.filter(is_whole).filter_map(Content::value);
    let mut encoded = encoded.peekable();
    if encoded.peek().is_none() {
        return Vec::new();
    }
    let mut homes = vec![false; graph.value_count()];
    encoded.for_each(|value| homes[value.index()] = true);
    // Ops stand in the order of their first runs, so a version comes after the one before it.
    for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
        homes[pair.output.index()] |= homes[pair.input.index()];
    }
    homes
}

/// See [`Guide::last_repeats`].
fn last_repeats(plan: &StepPlan) -> Vec<usize> {
    let program = plan.program();
    let mut last = vec![0; plan.graph().value_count()];
    for (at, compute) in repetitions(plan.graph(), program) {
        for buffer in program.reads(compute) {
            if let Content::Value(value) = program.buffers[buffer.index()].content {
                last[value.index()] = at + 1;
            }
        }
    }
    last
}
