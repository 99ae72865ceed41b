//! What the engine knows of a plan while it follows it.

use memfit_ir::{BufferId, Compute, Content, OpId, ValueId};

use crate::plan::{StepPlan, repetitions};
use crate::state::NONE;

/// A plan that is being followed.
#[derive(Debug)]
pub(crate) struct Guide {
    pub(crate) plan: StepPlan,
    /// The next step of the program, and the next op of the graph.
    pub(crate) step: usize,
    pub(crate) op: usize,
    /// For each op its record; for each value its tensor with its serial number, and the buffer that holds it.
    pub(crate) records: Vec<u32>,
    pub(crate) tensors: Vec<(u32, u64)>,
    pub(crate) holder: Vec<u32>,
    /// For each copy in another tier, and each buffer with something encoded, its number among the engine's copies.
    pub(crate) copies: Vec<u32>,
    pub(crate) encoded: Vec<u32>,
    /// For each value, beyond the last step that runs something again which reads it; 0 if none does.
    again: Vec<usize>,
    /// For each tensor its value.
    values: Vec<u32>,
    /// By number of record, whether it was made under guidance and has not gone since.
    pub(crate) live: Vec<bool>,
}

impl Guide {
    pub(crate) fn new(plan: StepPlan) -> Guide {
        let (ops, values) = (plan.graph().op_count(), plan.graph().value_count());
        let mut holder = vec![NONE; values];
        for &buffer in &plan.program().resident {
            if let Content::Value(value) = plan.program().buffers[buffer.index()].content {
                holder[value.index()] = buffer.0;
            }
        }
        let again = read_again(&plan);
        let (copies, buffers) = (plan.program().copies.len(), plan.program().buffers.len());
        // Most plans have nothing encoded.
        let encodes =
            plan.program().buffers.iter().any(|buffer| matches!(buffer.content, Content::Encoded(..)));
        Guide {
            plan,
            step: 0,
            op: 0,
            records: vec![NONE; ops],
            tensors: vec![(NONE, 0); values],
            holder,
            copies: vec![NONE; copies],
            encoded: vec![NONE; if encodes { buffers } else { 0 }],
            again,
            values: Vec::new(),
            live: Vec::new(),
        }
    }

    pub(crate) fn enlist(&mut self, record: u32) {
        // What is put in has no record.
        if record == NONE {
            return;
        }
        let at = record as usize;
        if self.live.len() <= at {
            self.live.resize(at + 1, false);
        }
        self.live[at] = true;
    }

    /// `value` is the tensor of this number and serial number.
    pub(crate) fn bind(&mut self, value: ValueId, tensor: (u32, u64)) {
        self.tensors[value.index()] = tensor;
        // What is discarded at once has no tensor.
        if tensor.0 == NONE {
            return;
        }
        let at = tensor.0 as usize;
        if self.values.len() <= at {
            self.values.resize(at + 1, NONE);
        }
        self.values[at] = value.0;
    }

    /// `buffer` holds `value`, unless another does already: the engine does not keep two.
    pub(crate) fn hold(&mut self, value: ValueId, buffer: BufferId) {
        let holder = &mut self.holder[value.index()];
        if *holder == NONE {
            *holder = buffer.0;
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
                self.holder[value.index()] = NONE;
            }
        }
    }

    /// Whether a step to come runs something again that reads the tensor of this number and serial number.
    pub(crate) fn is_read_again(&self, tensor: u32, serial: u64) -> bool {
        let Some(&value) = self.values.get(tensor as usize).filter(|&&value| value != NONE) else {
            return false;
        };
        self.tensors[value as usize] == (tensor, serial) && self.again[value as usize] > self.step
    }

    /// Whether all calls of the plan have come.
    pub(crate) fn is_done(&self) -> bool {
        self.op >= self.plan.graph().op_count()
    }

    pub(crate) fn next_is_put(&self) -> bool {
        !self.is_done() && self.plan.graph().op(OpId::at(self.op)).kind == "put"
    }
}

/// See [`Guide::again`].
fn read_again(plan: &StepPlan) -> Vec<usize> {
    let program = plan.program();
    let mut again = vec![0; plan.graph().value_count()];
    for (at, compute) in repetitions(plan.graph(), program) {
        for buffer in program.reads(compute) {
            if let Content::Value(value) = program.buffers[buffer.index()].content {
                again[value.index()] = at + 1;
            }
        }
    }
    again
}
