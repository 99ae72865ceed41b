//! Whether what a program calls is what its plan has next, and in words what is not.

use memfit_ir::{Bytes, OpId, Step};

use crate::call::Call;
use crate::engine::Engine;
use crate::guide::Guide;
use crate::host::Host;

impl<H: Host> Engine<'_, H> {
    /// Why the plan that was followed last was left, if it was.
    #[must_use]
    pub fn why_left(&self) -> Option<&str> {
        self.left.as_deref()
    }

    /// What `call` has other than the next one of the recorded step; if nothing, binds its tensors to the values of the plan.
    pub(crate) fn differs(&self, guide: &mut Guide, call: &Call<'_>, record: u32) -> Option<String> {
        if guide.is_done() {
            return Some(format!("`{}` runs after the last op of the plan", call.kind));
        }
        let plan = guide.plan.clone();
        let graph = plan.graph();
        let op = graph.op(OpId::at(guide.op));
        let this = self.state.record(record);
        if op.kind != call.kind || op.effect != call.effect {
            return Some(guide.differs_by(&format!("`{}` runs", call.kind)));
        }
        if op.workspace < call.workspace && !call.guessed {
            let (now, planned) = (call.workspace, op.workspace);
            return Some(guide.differs_by(&format!("it takes `{now}` of scratch memory, not `{planned}`")));
        }
        if op.writes.len() != this.writes.len() || op.reads.len() < this.reads.len() {
            let (reads, writes) = (this.reads.len(), this.writes.len());
            return Some(guide.differs_by(&format!("it reads {reads} tensors and makes {writes}")));
        }
        for (at, (&value, &tensor)) in op.reads.iter().zip(&this.reads).enumerate() {
            let named = self.named(tensor);
            // A source has its tensor from the first call that reads it.
            if guide.tensors[value.index()].tensor.is_none()
                && graph.value(value).producer.is_none()
                && self.sized(tensor) == graph.value(value).size.0
            {
                guide.bind(value, named);
            }
            if guide.tensors[value.index()] != named {
                let (now, planned) = (Bytes(self.sized(tensor)), graph.value(value).size);
                return Some(guide.differs_by(&match now == planned {
                    true => format!("its operand {at} is another tensor"),
                    false => format!("its operand {at} has `{now}`, not `{planned}`"),
                }));
            }
        }
        // It has not run yet, so all that it makes is in the tables.
        for (&value, tensor) in op.writes.iter().zip(this.made()) {
            let (now, planned) = (Bytes(self.sized(tensor)), graph.value(value).size);
            if now != planned {
                return Some(guide.differs_by(&format!("it makes `{now}`, not `{planned}`")));
            }
        }
        for (&value, tensor) in op.writes.iter().zip(this.made()) {
            guide.bind(value, self.named(tensor));
        }
        None
    }

    fn sized(&self, tensor: u32) -> u64 {
        let storage = self.state.storage(self.state.storage_of(tensor));
        if storage.root() == tensor { storage.size } else { 0 }
    }
}

impl Guide {
    /// Which op of the plan comes next.
    fn next(&self) -> String {
        let graph = self.plan.graph();
        match self.is_done() {
            true => format!("the end of {} ops", graph.op_count()),
            false => {
                format!("op {} of {}, `{}`", self.op + 1, graph.op_count(), graph.op(OpId::at(self.op)).kind)
            }
        }
    }

    /// That `what` is so, where the plan has another op.
    pub(crate) fn differs_by(&self, what: &str) -> String {
        format!("at {}: {what}", self.next())
    }

    /// That the step has ended before the plan.
    pub(crate) fn ended_early(&self) -> String {
        format!("as the step ended before {}", self.next())
    }

    /// That something between two ops can't be done.
    pub(crate) fn cannot_go_on(&self) -> String {
        let what = match self.plan.program().steps.get(self.step) {
            Some(Step::Compute(compute)) => {
                format!("`{}` can't be run again as planned", self.plan.graph().op(compute.op).kind)
            }
            _ => "a copy is not where the plan has it".to_owned(),
        };
        format!("before {}: {what}", self.next())
    }
}
