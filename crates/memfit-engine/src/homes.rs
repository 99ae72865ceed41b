//! Storages that are at home in another tier, or encoded, from one step to the next.
//!
//! A plan may have parameters and state begin and end the step as copies. Which tensors its sources are is known for sure
//! only when an op reads them; but what a storage was at the end of the last step, it is at the beginning of the next one. So
//! what is to be at home elsewhere is parked before the first step by the plan, and loads begin before the op that reads.
//! Where there is no such knowledge, or it is wrong, storages come when they are read, and bytes have been moved in vain.
//!
//! One that is at home encoded is parked as well, by a copy in device memory that is marked as its home: that copy alone is as
//! good as its bytes, whatever the codec loses, since the plan that says so has passed the judge. The first step that follows
//! such a plan begins with the storage plain. What can't be encoded, a value that has become too dense, say, stays plain.

use memfit_ir::{Bytes, Content, Form, Graph, ValueId};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::guide::{Carried, Guide, Named};
use crate::host::{Host, Wanted};
use crate::log::Recorded;

impl<H: Host> Engine<'_, H> {
    /// Notes what the sources of the step have become, which has just ended: of the plan that was followed, or of the record.
    pub(crate) fn carry(&mut self, recorded: Option<&Recorded>) {
        self.carried = None;
        if !self.parks() {
            return;
        }
        let guide = self.guide.as_ref().filter(|guide| guide.is_done());
        if let Some(guide) = guide {
            let graph = guide.plan.graph();
            let sources = become_of(graph, |value| guide.tensors[value.index()]);
            self.carried = Some(Carried { graph: guide.plan.verified().plan().graph, sources });
        } else if let Some(recorded) = recorded {
            let mut named = vec![Named::default(); recorded.graph.value_count()];
            for tensor in 0..self.state.tensors.len() {
                let this = &self.state.tensors[tensor];
                if let Some(value) = this.value.get().filter(|_| this.alive && this.held > 0)
                    && let Some(slot) = named.get_mut(value.index())
                {
                    *slot = self.named(crate::table::next_index(tensor));
                }
            }
            let sources = become_of(&recorded.graph, |value| named[value.index()]);
            self.carried = Some(Carried { graph: recorded.graph.digest(), sources });
        }
    }

    /// Before a step by `guide`: what is to be at home elsewhere is parked.
    pub(crate) fn take_homes(&mut self, guide: &mut Guide) {
        let digest = guide.plan.verified().plan().graph;
        let Some(carried) = self.carried.take().filter(|carried| carried.graph == digest) else { return };
        guide.hints = carried.sources;
        let program = guide.plan.program();
        for copy in program.parked.iter().map(|copy| program.copies[copy.index()]) {
            let Content::Value(value) = copy.content else { continue };
            let hint = guide.likely(value);
            let storage = self.tensor_named(hint).map(|(_, this)| this.storage);
            if let Some(storage) = storage.filter(|&storage| self.state.storage(storage).resident) {
                // What can't be stored stays, and goes where room is needed.
                let _ = self.park(storage, Some(copy.tier));
            }
        }
        if guide.encodes_homes() {
            self.take_encoded_homes(guide);
        }
    }

    /// The same for those that are at home encoded.
    fn take_encoded_homes(&mut self, guide: &Guide) {
        let (program, layout) = (guide.plan.program(), guide.plan.layout());
        for &buffer in &program.resident {
            let this = program.buffers[buffer.index()];
            let Content::Encoded(value, codec) = this.content else { continue };
            let found = self.tensor_named(guide.likely(value)).map(|(_, tensor)| tensor.storage);
            let may = |&storage: &u32| guide.is_home_encoded(value) && self.may_park(storage);
            let Some(storage) = found.filter(may) else { continue };
            let key = key(value, self.followed);
            let wanted = Wanted { form: Form::Encoded(codec), room: this.size, key };
            let at = layout.places.get(buffer.index()).map(|place| place.offset);
            // What can't be encoded stays.
            if self.has_home(storage) || matches!(self.store_at(storage, wanted, (at, true)), Ok(Some(_))) {
                let _ = self.park(storage, None);
            }
        }
    }

    /// Whether there is a copy of `storage` at home encoded.
    pub(crate) fn has_home(&self, storage: u32) -> bool {
        self.stores.has(storage)
            && self.stores.of(storage).iter().any(|&at| self.stores.row(at).is_some_and(|row| row.home))
    }

    /// Begins to bring back what `value` is, or is likely to be, if that is parked: whether the plan can go on. Where there is no
    /// room now, or the copy can't be read, the op that reads it sees to it.
    pub(crate) fn load_home(
        &mut self,
        guide: &Guide,
        value: ValueId,
        place: Option<Bytes>,
    ) -> Result<Option<bool>, Fault> {
        let named = guide.likely(value);
        let is_source = guide.plan.graph().value(value).producer.is_none();
        let Some((_, this)) = self.tensor_named(named) else {
            return Ok((is_source && self.parks()).then_some(true));
        };
        let storage = this.storage;
        if !self.state.storage(storage).parked {
            return Ok(None);
        }
        if let Some(&row) = self.stores.of(storage).first() {
            match self.load(row, place) {
                Ok(_) | Err(Fault::NoRoom(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Some(true))
    }

    /// Brings in a tensor that is in `tier` alone.
    ///
    /// # Errors
    ///
    /// Any [`Fault`]; above all, if the host has no copies that nobody made.
    pub(crate) fn put_parked(
        &mut self,
        size: Bytes,
        role: memfit_ir::Role,
        tier: memfit_ir::Tier,
    ) -> Result<crate::TensorId, Fault> {
        let form = memfit_ir::Form::Tier(tier);
        let name = self.host.find(size, form)?;
        let storage = self.state.new_storage(size);
        let tensor = self.state.new_tensor(storage, None);
        self.evictor.created(&self.state, storage);
        let this = &mut self.state.storages[storage as usize];
        (this.parked, this.is_stored, this.role) = (true, true, role);
        let used = &mut self.stores.used[tier.index()];
        *used += size;
        self.stats.tier_peaks[tier.index()] = self.stats.tier_peaks[tier.index()].max(*used);
        let logged = match &mut self.log {
            Some(log) => Some(log.put_parked(&mut self.state, tensor, role, (form, size, None))),
            None => None,
        };
        let (block, step, queue) = (None, None, None);
        let busy = crate::copies::Busy::Idle;
        self.stores.add(crate::copies::Row {
            storage,
            form,
            name,
            size,
            home: false,
            block,
            logged,
            step,
            busy,
            queue,
            issued: 0,
        });
        Ok(crate::TensorId(tensor))
    }
}

/// What the noise of a copy of `value` begins with in the step that is the `followed`th to be led by a plan: so what a step encodes is
/// the same in every run, whatever else draws numbers.
pub(crate) fn key(value: ValueId, followed: u32) -> u64 {
    u64::from(followed) << 32 | u64::from(value.0)
}

/// By source that outlives the step: what `named` says of the last version of its storage.
fn become_of(graph: &Graph, named: impl Fn(ValueId) -> Named) -> Vec<Named> {
    let mut first: Vec<ValueId> = graph.value_ids().collect();
    let mut last = first.clone();
    for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
        first[pair.output.index()] = first[pair.input.index()];
        last[first[pair.output.index()].index()] = pair.output;
    }
    let is_source = |value: ValueId| {
        let this = graph.value(value);
        this.producer.is_none() && this.role.is_persistent()
    };
    let of = |value: ValueId| if is_source(value) { named(last[value.index()]) } else { Named::default() };
    graph.value_ids().map(of).collect()
}
