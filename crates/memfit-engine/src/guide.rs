//! What the engine knows of a plan while it follows it.

use memfit_ir::{Content, OpId};

use crate::plan::StepPlan;
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
        Guide {
            plan,
            step: 0,
            op: 0,
            records: vec![NONE; ops],
            tensors: vec![(NONE, 0); values],
            holder,
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

    /// Whether all calls of the plan have come.
    pub(crate) fn is_done(&self) -> bool {
        self.op >= self.plan.graph().op_count()
    }

    pub(crate) fn next_is_put(&self) -> bool {
        !self.is_done() && self.plan.graph().op(OpId::at(self.op)).kind == "put"
    }
}
