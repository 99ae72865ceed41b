//! Guided mode: the engine follows a program that was planned for a recorded step.
//!
//! Before each call the engine does what the program does between the previous call and this one: frees become
//! evictions, repeated computes run again. The call itself then finds its inputs there. Frees of what the program's
//! owner has deleted are the plan's to time, so a release frees nothing here by itself. At the first difference, be it
//! another op, another operand, or an input that is not where the plan has it, guidance ends: all tables are as the
//! online policy would have left them, so it goes on from there.

use memfit_ir::{Content, Effect, OpId, Step, ValueId};

use crate::call::{Call, Dealloc, TensorId};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::guide::Guide;
use crate::host::Host;
use crate::plan::StepPlan;
use crate::state::{NONE, next_index};

impl<H: Host> Engine<'_, H> {
    /// From the next call on, follows `plan`, which must keep the recorded order of first runs. Call it where the
    /// recorded step began. There is no other way to follow one, so nothing runs that the judge has not passed. A plan
    /// with transfers or codecs is followed up to the first of them.
    pub fn follow(&mut self, plan: StepPlan) {
        self.guide = Some(Guide::new(plan));
    }

    /// Whether the engine follows a plan still.
    #[must_use]
    pub fn is_guided(&self) -> bool {
        self.guide.is_some()
    }

    /// Whether the plan that is followed runs something again that reads `tensor`, or a view of its storage. Then the bytes
    /// are the plan's to free, also when the program has given them up: a host asks before it lets an op overwrite them, or
    /// lets them go.
    #[must_use]
    pub fn is_read_again(&self, tensor: TensorId) -> bool {
        let this = self.state.tensors.get(tensor.index()).filter(|this| this.alive);
        let (Some(guide), Some(this)) = (&self.guide, this) else { return false };
        let mut views = self.state.storage(this.storage).tensors.iter();
        views.any(|&view| guide.is_read_again(view, self.state.tensor(view).serial))
    }

    /// Whether all calls of the plan have come, as it has them.
    pub(crate) fn has_followed(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_done)
    }

    /// Gives up the plan. What the program deleted, and the plan wanted kept, goes as the online policy has it.
    pub fn diverge(&mut self) {
        if self.guide.take().is_none() || self.settings.dealloc != Dealloc::EagerEvict {
            return;
        }
        let dead: Vec<u32> =
            self.state.pool().filter(|&storage| self.state.storage(storage).held == 0).collect();
        for storage in dead {
            self.evict(storage);
        }
    }

    /// Leads up to `call`, whose record is `record`; `put` has none.
    pub(crate) fn lead_to(&mut self, call: Option<&Call<'_>>, record: u32) -> Result<(), Fault> {
        let Some(mut guide) = self.guide.take() else { return Ok(()) };
        let same = match call {
            Some(call) => self.matches(&mut guide, call, record),
            None if guide.op == 0 && !guide.next_is_put() => {
                self.guide = Some(guide);
                return Ok(());
            }
            None => guide.next_is_put(),
        };
        if !same {
            self.guide = Some(guide);
            self.diverge();
            return Ok(());
        }
        let op = guide.op;
        guide.op += 1;
        guide.records[op] = record;
        if call.is_some_and(|call| call.guessed) {
            self.state.records[record as usize].workspace = guide.plan.graph().op(OpId::at(op)).workspace.0;
        }
        guide.enlist(record);
        let kept = self.advance(&mut guide, Some(op));
        self.guide = Some(guide);
        if !kept? {
            self.diverge();
        }
        Ok(())
    }

    /// After the last call: what the plan still has to do.
    pub(crate) fn follow_to_end(&mut self) -> Result<(), Fault> {
        let Some(mut guide) = self.guide.take() else { return Ok(()) };
        if !guide.is_done() {
            self.guide = Some(guide);
            return Ok(());
        }
        let kept = self.advance(&mut guide, None);
        self.guide = Some(guide);
        if !kept? {
            self.diverge();
        }
        Ok(())
    }

    /// A tensor has been put in while the plan is followed.
    pub(crate) fn follow_put(&mut self, tensor: u32) {
        let Some(guide) = &mut self.guide else { return };
        if guide.op > 0
            && let Some(&value) = guide.plan.graph().op(OpId::at(guide.op - 1)).writes.first()
        {
            guide.bind(value, (tensor, self.state.tensor(tensor).serial));
        }
    }

    /// Whether `call` is the next one of the recorded step; binds its tensors to the values of the plan.
    fn matches(&self, guide: &mut Guide, call: &Call<'_>, record: u32) -> bool {
        if guide.is_done() {
            return false;
        }
        let plan = guide.plan.clone();
        let graph = plan.graph();
        let op = graph.op(OpId::at(guide.op));
        let this = self.state.record(record);
        let alike = op.kind == call.kind
            && op.effect == call.effect
            && (op.workspace >= call.workspace || call.guessed)
            && op.writes.len() == this.writes.len()
            && op.reads.len() >= this.reads.len();
        if !alike {
            return false;
        }
        for (&value, &tensor) in op.reads.iter().zip(&this.reads) {
            let named = (tensor, self.state.tensor(tensor).serial);
            // A source has its tensor from the first call that reads it.
            if guide.tensors[value.index()].0 == NONE
                && graph.value(value).producer.is_none()
                && self.sized(tensor) == graph.value(value).size.0
            {
                guide.bind(value, named);
            }
            if guide.tensors[value.index()] != named {
                return false;
            }
        }
        let fits = |(&value, &tensor): (&ValueId, &u32)| graph.value(value).size.0 == self.sized(tensor);
        if !op.writes.iter().zip(&this.writes).all(fits) {
            return false;
        }
        for (&value, &tensor) in op.writes.iter().zip(&this.writes) {
            guide.bind(value, (tensor, self.state.tensor(tensor).serial));
        }
        true
    }

    fn sized(&self, tensor: u32) -> u64 {
        let storage = self.state.storage(self.state.storage_of(tensor));
        if storage.root == tensor { storage.size } else { 0 }
    }

    /// Does the plan's steps up to the first run of `until`, or all that are left. False: the plan can't be followed.
    fn advance(&mut self, guide: &mut Guide, until: Option<usize>) -> Result<bool, Fault> {
        while let Some(&step) = guide.plan.program().steps.get(guide.step) {
            match step {
                Step::Free(buffer) => {
                    let content = guide.plan.program().buffers[buffer.index()].content;
                    if let Content::Value(value) = content
                        && guide.holder[value.index()] == buffer.0
                    {
                        guide.holder[value.index()] = NONE;
                        self.leave(guide.tensors[value.index()]);
                    }
                }
                Step::Compute(compute) => {
                    for (&buffer, &value) in guide
                        .plan
                        .program()
                        .writes(&compute)
                        .iter()
                        .zip(guide.plan.graph().op(compute.op).writes)
                    {
                        // A second buffer of what is there goes right away: the engine does not keep it either.
                        let holder = &mut guide.holder[value.index()];
                        if *holder == NONE {
                            *holder = buffer.0;
                        }
                    }
                    for &buffer in guide.plan.program().writes(&compute) {
                        if let Some(over) = guide.plan.program().buffers[buffer.index()].over
                            && let Content::Value(value) = guide.plan.program().buffers[over.index()].content
                        {
                            guide.holder[value.index()] = NONE;
                        }
                    }
                    if Some(compute.op.index()) == until {
                        guide.step += 1;
                        self.prefer(guide, &compute);
                        return Ok(true);
                    }
                    let record = guide.records.get(compute.op.index()).copied().unwrap_or(NONE);
                    self.prefer(guide, &compute);
                    let again = record != NONE && self.again(guide, record, compute.op)?;
                    self.preferred.clear();
                    if !again {
                        return Ok(false);
                    }
                }
                Step::Offload { .. }
                | Step::Fetch { .. }
                | Step::Discard(_)
                | Step::Encode { .. }
                | Step::Decode { .. } => {
                    return Ok(false);
                }
                Step::Await(_) => {}
            }
            guide.step += 1;
        }
        Ok(until.is_none())
    }

    /// Evicts the storage whose root is `tensor`, if it can go; for good, if it can't be computed again.
    fn leave(&mut self, (tensor, serial): (u32, u64)) {
        let known = |this: &&crate::state::Tensor| this.alive && this.defined && this.serial == serial;
        let Some(this) = self.state.tensors.get(tensor as usize).filter(known) else {
            return;
        };
        let storage = this.storage;
        if self.state.storage(storage).root != tensor {
            return;
        }
        match self.state.storage(storage).in_pool {
            true => self.evict(storage),
            false => self.forgo(storage),
        }
    }

    /// Runs `record` again, if the bytes of all its inputs are there.
    fn again(&mut self, guide: &Guide, record: u32, op: OpId) -> Result<bool, Fault> {
        let this = self.state.record(record);
        let repeatable = !matches!(this.effect, Effect::Once | Effect::Collective);
        let known = guide.live.get(record as usize) == Some(&true)
            && this.writes.len() == guide.plan.graph().op(op).writes.len();
        // A view whose bytes are back is made again with its op.
        let there = |&read: &u32| {
            self.state.tensor(read).defined || self.state.storage(self.state.storage_of(read)).resident
        };
        if !known || !repeatable || !this.reads.iter().all(there) {
            return Ok(false);
        }
        let missing =
            this.writes.iter().copied().find(|&made| made != NONE && !self.state.tensor(made).defined);
        match missing {
            Some(target) => self.materialise(record, target).map(|()| true),
            None => Ok(true),
        }
    }

    /// Notes where the plan has what the next run writes.
    fn prefer(&mut self, guide: &Guide, compute: &memfit_ir::Compute) {
        self.preferred.clear();
        if self.allocator.addresses().is_none() {
            return;
        }
        let layout = guide.plan.layout();
        let buffers = guide.plan.program().writes(compute).iter().chain(&compute.workspace);
        let places = buffers.filter_map(|buffer| layout.places.get(buffer.index()));
        self.preferred.extend(places.map(|place| place.offset.0));
    }

    /// Records leave the tables: the plan can't name them any more.
    pub(crate) fn forget_record(&mut self, record: u32) {
        if let Some(live) = self.guide.as_mut().and_then(|guide| guide.live.get_mut(record as usize)) {
            *live = false;
        }
    }

    /// The tensors that the program holds, by number.
    #[must_use]
    pub fn held(&self) -> Vec<TensorId> {
        let all = 0..self.state.tensors.len();
        all.filter(|&tensor| self.state.tensors[tensor].alive && self.state.tensors[tensor].held > 0)
            .map(|tensor| TensorId(next_index(tensor)))
            .collect()
    }
}
