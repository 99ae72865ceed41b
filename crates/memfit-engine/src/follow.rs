//! Guided mode: the engine follows a program that was planned for a recorded step.
//!
//! Before each call the engine does what the program does between the previous call and this one: frees become
//! evictions, repeated computes run again, what is offloaded or encoded is stored, and what is fetched or decoded is loaded
//! (`stores.rs`). The call itself then finds its inputs there. Frees of what the program's
//! owner has deleted are the plan's to time, so a release frees nothing here by itself. At the first difference, be it
//! another op, another operand, or an input that is not where the plan has it, guidance ends: all tables are as the
//! online policy would have left them, so it goes on from there.

use memfit_ir::{BufferId, Bytes, Content, Effect, Form, Need, OpId, Step, StepId, Tier, ValueId};
use smallvec::SmallVec;

use crate::call::{Call, Dealloc, TensorId};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::guide::{Guide, Named};
use crate::homes::key;
use crate::host::{Host, Wanted};
use crate::ids::StorageId;
use crate::maybe::Maybe;
use crate::plan::StepPlan;
use crate::state::Tensor;

impl<H: Host> Engine<'_, H> {
    /// From the next call on, follows `plan`, which must keep the recorded order of first runs. Call it where the
    /// recorded step began. There is no other way to follow one, so nothing runs that the judge has not passed.
    pub fn follow(&mut self, plan: StepPlan) {
        self.stores.planned = Tier::ALL.map(|(tier, _)| plan.verified().tier_peak(tier));
        let mut guide = Guide::new(plan);
        self.encodes_homes |= guide.encodes_homes();
        if self.parks() {
            self.take_homes(&mut guide);
        }
        (self.guide, self.left) = (Some(guide), None);
        self.followed += 1;
    }

    /// Whether the engine follows a plan still.
    #[must_use]
    pub fn is_guided(&self) -> bool {
        self.guide.is_some() || self.leading
    }

    /// Whether the plan that is followed runs something again that reads `tensor`, or a view of its storage. Then the bytes
    /// are the plan's to free, also when the program has given them up: a host asks before it lets an op overwrite them, or
    /// lets them go.
    #[must_use]
    pub fn is_read_again(&self, tensor: TensorId) -> bool {
        let this = self.state.tensors.get(tensor.index()).filter(|this| this.alive);
        let (Some(guide), Some(this)) = (&self.guide, this) else { return false };
        let mut views = self.state.storage(this.storage).tensors.iter();
        views.any(|&view| guide.is_read_again(self.named(view)))
    }

    /// Whether all calls of the plan have come, as it has them.
    pub(crate) fn has_followed(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_done)
    }

    /// Gives up the plan. What the program deleted, and the plan wanted kept, goes as the online policy has it.
    pub fn diverge(&mut self) {
        let Some(guide) = self.guide.take() else { return };
        if !guide.is_done() && self.left.is_none() {
            self.left = Some(guide.ended_early());
        }
        self.make_all_whole();
        self.discard_spare();
        if !matches!(self.settings.dealloc, Dealloc::EvictUnneeded | Dealloc::EagerEvict) {
            return;
        }
        let dead: Vec<u32> =
            self.state.pool().filter(|&storage| self.state.storage(storage).held == 0).collect();
        for storage in dead {
            if !self.serves(storage) {
                self.evict(storage);
            }
        }
    }

    /// Leads up to `call`, whose record is `record`; `put` has none.
    pub(crate) fn lead_to(&mut self, call: Option<&Call<'_>>, record: Option<u32>) -> Result<(), Fault> {
        let Some(mut guide) = self.guide.take() else { return Ok(()) };
        let differs = match (call, record) {
            (Some(call), Some(record)) => self.differs(&mut guide, call, record),
            _ if guide.next_is_put() => None,
            _ if guide.op == 0 => {
                self.guide = Some(guide);
                return Ok(());
            }
            _ => Some(guide.differs_by("a tensor comes in that no op has made")),
        };
        if differs.is_some() {
            self.left = differs;
            self.guide = Some(guide);
            self.diverge();
            return Ok(());
        }
        let op = guide.op;
        guide.op += 1;
        // What is put in has no record.
        if let Some(record) = record {
            self.need_as_planned(&guide, record, OpId::at(op));
            if call.is_some_and(|call| call.guessed) {
                let planned = guide.plan.graph().op(OpId::at(op)).workspace;
                self.state.records[record as usize].workspace = planned.0;
            }
        }
        self.go_on(guide, Some(op))
    }

    /// After the last call: what the plan still has to do.
    pub(crate) fn follow_to_end(&mut self) -> Result<(), Fault> {
        match self.guide.take_if(|guide| guide.is_done()) {
            Some(guide) => self.go_on(guide, None),
            None => Ok(()),
        }
    }

    /// As [`Engine::advance`]; where the plan can't be followed it's given up.
    fn go_on(&mut self, mut guide: Guide, until: Option<usize>) -> Result<(), Fault> {
        self.leading = true;
        let goes_on = self.advance(&mut guide, until);
        self.leading = false;
        self.guide = Some(guide);
        if !goes_on? {
            self.left = self.guide.as_ref().map(Guide::cannot_go_on);
            self.diverge();
        }
        Ok(())
    }

    /// A tensor has been put in while the plan is followed.
    pub(crate) fn follow_put(&mut self, tensor: u32) {
        let named = self.named(tensor);
        let Some(guide) = &mut self.guide else { return };
        if guide.op > 0
            && let Some(&value) = guide.plan.graph().op(OpId::at(guide.op - 1)).writes.first()
        {
            guide.bind(value, named);
        }
    }

    pub(crate) fn named(&self, tensor: u32) -> Named {
        Named { tensor: tensor.into(), serial: self.state.tensor(tensor).serial }
    }

    /// Does the plan's steps up to the first run of `until`, or all that are left. False: the plan can't be followed.
    fn advance(&mut self, guide: &mut Guide, until: Option<usize>) -> Result<bool, Fault> {
        while let Some(&step) = guide.plan.program().steps.get(guide.step) {
            let goes_on = match step {
                Step::Compute(compute) => {
                    for value in std::mem::take(&mut guide.leaving) {
                        self.follow_leave(guide, value)?;
                    }
                    if !self.lessened.is_empty() {
                        self.make_writes_whole(guide, &compute);
                    }
                    guide.hold_written(&compute);
                    if Some(compute.op.index()) == until {
                        guide.step += 1;
                        self.prefer(guide, &compute);
                        return Ok(true);
                    }
                    self.prefer(guide, &compute);
                    let repeated = self.repeat(guide, compute.op)?;
                    self.preferred.clear();
                    repeated
                }
                Step::Free(buffer) => {
                    self.follow_free(guide, buffer)?;
                    true
                }
                _ => self.follow_copy(guide, step)?,
            };
            if !goes_on {
                return Ok(false);
            }
            guide.step += 1;
        }
        Ok(until.is_none())
    }

    /// A buffer's stay ends: what it holds goes, or an encoded copy.
    fn follow_free(&mut self, guide: &mut Guide, buffer: BufferId) -> Result<(), Fault> {
        match guide.plan.program().buffers[buffer.index()].content {
            Content::Value(value) if guide.holder[value.index()].is(buffer) => {
                guide.holder[value.index()] = Maybe::NONE;
                self.follow_leave(guide, value)?;
            }
            Content::Encoded(..) => {
                guide.encoded[buffer.index()].get().into_iter().for_each(|row| self.discard(row));
            }
            Content::Value(_) | Content::Workspace => {}
        }
        Ok(())
    }

    /// `value` goes, now or as soon as that can be, unless the plan has it once more by then.
    fn follow_leave(&mut self, guide: &mut Guide, value: ValueId) -> Result<(), Fault> {
        // Where there are copies, those in hand may still be read from.
        let moves = !guide.copies.is_empty() || !guide.encoded.is_empty();
        if guide.holder[value.index()].is_none() && !self.leave(guide.likely(value), moves)? && !moves {
            guide.leaving.push(value);
        }
        Ok(())
    }

    /// A step that has to do with copies. False: it can't be done. What may not go is not stored: it stays.
    fn follow_copy(&mut self, guide: &mut Guide, step: Step) -> Result<bool, Fault> {
        let plan = guide.plan.clone();
        let (program, layout) = (plan.program(), plan.layout());
        let content = |buffer: BufferId| program.buffers[buffer.index()].content;
        let place = |buffer: BufferId| layout.places.get(buffer.index()).map(|place| place.offset);
        match step {
            Step::Offload { from, to } => {
                let tier = program.copies[to.index()].tier;
                let row = match content(from) {
                    Content::Value(value) => {
                        let size = program.copies[to.index()].size;
                        self.store_value(guide, value, (Form::Tier(tier), size), None)?
                    }
                    Content::Encoded(..) => self.pass_on(guide.encoded[from.index()], Some(tier), None)?,
                    Content::Workspace => None,
                };
                guide.copies[to.index()] = row.into();
                Ok(true)
            }
            Step::Encode { from, to } => {
                let (Content::Value(value), Content::Encoded(_, codec)) = (content(from), content(to)) else {
                    return Ok(false);
                };
                let form = (Form::Encoded(codec), program.buffers[to.index()].size);
                let row = self.store_value(guide, value, form, place(to))?;
                guide.encoded[to.index()] = row.into();
                Ok(true)
            }
            Step::Fetch { from, to } => match content(to) {
                Content::Value(value) => {
                    self.load_value(guide, (value, to), guide.copies[from.index()], place(to))
                }
                Content::Encoded(..) => {
                    let row = self.pass_on(guide.copies[from.index()], None, place(to))?;
                    guide.encoded[to.index()] = row.into();
                    Ok(true)
                }
                Content::Workspace => Ok(false),
            },
            Step::Decode { from, to } => match content(to) {
                Content::Value(value) => {
                    self.load_value(guide, (value, to), guide.encoded[from.index()], place(to))
                }
                _ => Ok(false),
            },
            Step::Await(StepId(transfer)) => {
                let (row, copy, out) = match program.steps.get(transfer as usize) {
                    Some(&Step::Offload { to, .. }) => (guide.copies[to.index()], to, true),
                    Some(&Step::Fetch { from, to }) => match content(to) {
                        Content::Encoded(..) => (guide.encoded[to.index()], from, false),
                        _ => (guide.copies[from.index()], from, false),
                    },
                    _ => return Ok(true),
                };
                // Transfers in one direction follow each other, so who waits for one waits for those before it, also where
                // that one had nothing to do.
                match row.get() {
                    None => self.wait_queue(program.copies[copy.index()].tier, out)?,
                    Some(row) => self.wait(row)?,
                }
                Ok(true)
            }
            Step::Discard(copy) => {
                guide.copies[copy.index()].get().into_iter().for_each(|row| self.discard(row));
                Ok(true)
            }
            Step::Compute(_) | Step::Free(_) => Ok(false),
        }
    }

    /// Begins to bring `value` back from the copy `row`, which the plan wants in `buffer`. What could not be stored went all
    /// the same, for the room is the plan's: it is computed again.
    fn load_value(
        &mut self,
        guide: &mut Guide,
        (value, buffer): (ValueId, BufferId),
        row: Maybe<u32>,
        place: Option<Bytes>,
    ) -> Result<bool, Fault> {
        let named = guide.likely(value);
        // What has left the tables nobody can need.
        if !named.tensor.is_none() && self.tensor_named(named).is_none() {
            guide.hold(value, buffer);
            return Ok(true);
        }
        if let Some(storage) = self.storage_named(named) {
            let keeps = row.get().and_then(|row| self.stores.row(row)).map_or(Need::Value, |row| row.keeps());
            if self.state.storage(storage).keeps >= keeps {
                guide.hold(value, buffer);
                return Ok(true);
            }
            guide.holder[value.index()] = Maybe::NONE;
            self.make_whole(storage);
        }
        guide.hold(value, buffer);
        if let Some(done) = self.load_home(guide, value, place)? {
            return Ok(done);
        }
        if let Some(row) = row.get()
            && self.load(row, place)?
        {
            return Ok(true);
        }
        let lost = self.tensor_named(named).filter(|(_, this)| self.state.storage(this.storage).evictable);
        match lost.and_then(|(tensor, this)| Some((this.record.get()?, tensor))) {
            Some((record, lost)) => self.materialise(record, Some(lost)).map(|()| true),
            None => Ok(false),
        }
    }

    /// Begins to make `form` of the storage that is `value`.
    fn store_value(
        &mut self,
        guide: &Guide,
        value: ValueId,
        (form, room): (Form, Bytes),
        at: Option<Bytes>,
    ) -> Result<Option<u32>, Fault> {
        let Some(storage) = self.storage_named(guide.tensors[value.index()]) else { return Ok(None) };
        let wanted = Wanted { form, room, key: key(value, self.followed) };
        let home = matches!(form, Form::Encoded(_)) && guide.is_home_encoded(value);
        let row = self.store_at(storage, wanted, (at, home))?;
        if let (Some(_), Some(log), Form::Encoded(_)) = (row, &mut self.log, form) {
            // That it is so dense is what the copy's room rests on.
            let planned = guide.plan.graph().value(value);
            let value = self.state.tensor(self.state.storage(storage).root()).value.get();
            value.into_iter().for_each(|value| log.expect(value, planned));
        }
        Ok(row)
    }

    /// The tensor of this number and serial number, if it's in the tables.
    pub(crate) fn tensor_named(&self, Named { tensor, serial }: Named) -> Option<(u32, &Tensor)> {
        let tensor = tensor.get()?;
        let this = self.state.tensors.get(tensor as usize)?;
        (this.alive && this.serial == serial).then_some((tensor, this))
    }

    /// The storage whose root is the tensor of this number and serial number, if that is there.
    fn storage_named(&self, named: Named) -> Option<u32> {
        let (tensor, this) = self.tensor_named(named).filter(|(_, this)| this.defined)?;
        (self.state.storage(this.storage).root() == tensor).then_some(this.storage)
    }

    /// As [`Engine::forward`], if there is a copy.
    fn pass_on(
        &mut self,
        row: Maybe<u32>,
        to: Option<Tier>,
        at: Option<Bytes>,
    ) -> Result<Option<u32>, Fault> {
        match row.get() {
            Some(row) => self.forward(row, to, at),
            None => Ok(None),
        }
    }

    /// Evicts the storage whose root is `tensor`, if it can go; for good, if it can't be computed again. False if it can't
    /// go yet.
    fn leave(&mut self, named: Named, moves: bool) -> Result<bool, Fault> {
        let Some(storage) = self.storage_named(named) else { return Ok(true) };
        if self.encodes_homes && self.has_home(storage) {
            // From here on it is what its copy is, also where it could be computed again.
            self.keep(storage);
        }
        if !self.state.storage(storage).in_pool {
            let goes_home = moves && self.parks() && self.may_park(storage);
            if goes_home && self.stores.has(storage) && self.park(storage, None)? {
                return Ok(true);
            }
            return Ok(self.forgo(storage, moves));
        }
        if self.host.is_shared(StorageId(storage)) {
            // Somebody may have written to it since: what is computed again, and a copy, would not have that.
            self.keep(storage);
            self.fix(storage);
        } else {
            self.evict(storage);
        }
        Ok(true)
    }

    /// Runs `op` again. Inputs that the engine had to evict beyond the plan are made again before. Nothing is to be done where
    /// what it makes is there, or has left the tables: nobody can need it. Its record has gone where that stays for good; then
    /// it may have been parked.
    fn repeat(&mut self, guide: &Guide, op: OpId) -> Result<bool, Fault> {
        let missing = |value: &ValueId| {
            let (tensor, this) = self.tensor_named(guide.tensors[value.index()])?;
            (!this.defined).then_some(tensor)
        };
        let made = guide.plan.graph().op(op).writes.iter();
        let missing: SmallVec<[u32; 2]> = made.filter_map(missing).collect();
        let Some(&first) = missing.first() else { return Ok(true) };
        let Some(record) = self.state.tensor(first).record.get() else {
            for tensor in missing {
                if !self.bring_back(tensor)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        };
        let this = self.state.record(record);
        let repeatable = !matches!(self.state.class(record).effect, Effect::Once | Effect::Collective);
        // A view whose bytes are back is made again with its op, and so is what can be evicted.
        let there = |&read: &u32| {
            let storage = self.state.storage(self.state.storage_of(read));
            self.is_had(read) || storage.resident || storage.evictable
        };
        if !repeatable || !this.reads.iter().all(there) {
            return Ok(false);
        }
        let missing = this.made().find(|&made| !self.state.tensor(made).defined);
        match missing {
            Some(_) => self.materialise(record, missing).map(|()| true),
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
}
