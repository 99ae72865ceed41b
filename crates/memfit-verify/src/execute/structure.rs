//! Whether all that a plan names exists: before the run.

use memfit_ir::{BufferId, Content, CopyId, Place, Step};

use super::Judge;
use crate::rules::Rule;

impl Judge<'_> {
    /// R1 for everything, so that the run itself can index freely.
    pub(super) fn structure(&mut self) {
        let (graph, program) = (self.graph, self.program);
        let is_buffer = |buffer: BufferId| buffer.index() < program.buffers.len();
        let is_copy = |copy: CopyId| copy.index() < program.copies.len();
        let is_content = |content: Content| content.value().is_none_or(|v| v.index() < graph.value_count());
        let known = program.buffers.iter().all(|b| is_content(b.content) && b.over.is_none_or(is_buffer))
            && program.copies.iter().all(|c| is_content(c.content))
            && program.resident.iter().all(|&b| is_buffer(b))
            && program.parked.iter().all(|&c| is_copy(c));
        let in_bank = |place: &Place| usize::from(place.bank) < self.limits.banks.len();
        let placed = self.places.len() == program.buffers.len() && self.places.iter().all(in_bank);
        let laned = program.lanes.is_empty() || program.lanes.len() == program.steps.len();
        if !(known && placed && laned) {
            let message = "a list names what does not exist, or has not one entry for each buffer or step";
            self.object(Rule::Structure, || message.to_owned());
        }
        let is_fine = |step: &Step| match *step {
            Step::Compute(ref compute) if compute.op.index() < graph.op_count() => {
                let (op, reads, writes) =
                    (graph.op(compute.op), program.reads(compute), program.writes(compute));
                (reads.len(), writes.len()) == (op.reads.len(), op.writes.len())
                    && reads.iter().chain(writes).chain(&compute.workspace).all(|&b| is_buffer(b))
                    && usize::from(compute.algorithm) <= op.algorithms.len()
            }
            Step::Compute(_) => false,
            Step::Free(buffer) => is_buffer(buffer),
            Step::Offload { from: b, to: c } | Step::Fetch { from: c, to: b } => is_buffer(b) && is_copy(c),
            Step::Discard(copy) => is_copy(copy),
            Step::Encode { from, to } | Step::Decode { from, to } => is_buffer(from) && is_buffer(to),
            Step::Await(_) => true,
        };
        for (at, _) in program.steps.iter().enumerate().filter(|(_, step)| !is_fine(step)) {
            self.step = Some(at);
            self.object(Rule::Structure, || "operands do not match the op, or name nothing".to_owned());
        }
        self.step = None;
    }
}
