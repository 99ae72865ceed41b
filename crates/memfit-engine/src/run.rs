//! Making room, and running ops.

use memfit_ir::{Bytes, Nanos, Need};

use crate::TensorId;
use crate::call::Output;
use crate::engine::Engine;
use crate::evict::Ask;
use crate::fault::Fault;
use crate::host::{Block, Host, Run, Seen, expected};
use crate::ids::StorageId;
use crate::log::Log;
use crate::maybe::Maybe;
use crate::scratch::Scratch;

/// Runs between two looks at the time.
const RUNS_PER_LOOK: u64 = 16;

/// What is smaller is not worth a codec.
const SPARSE: Bytes = Bytes(4 << 10);

/// What is denser is not taken to be sparse.
const DENSE: f32 = 0.9;

/// What a plan may rest on where `density` was seen: values of later steps are as dense or somewhat denser, and what is denser
/// than that is computed again.
fn with_margin(density: f32) -> f32 {
    (density + density / 16.0 + 1.0 / 64.0).clamp(0.0, 1.0)
}

impl<H: Host> Engine<'_, H> {
    /// Runs `record`, whose inputs are there and locked.
    pub(crate) fn run(&mut self, record: u32, target: Option<u32>) -> Result<(), Fault> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let ran = self.run_with(record, target, &mut scratch);
        scratch.reads.clear();
        scratch.writes.clear();
        scratch.fresh.clear();
        self.scratch = scratch;
        ran
    }

    fn run_with(&mut self, record: u32, target: Option<u32>, scratch: &mut Scratch) -> Result<(), Fault> {
        if !self.unweighed.is_empty() {
            self.weigh();
        }
        let Scratch { reads, writes, fresh, .. } = scratch;
        let outputs = if self.stores.is_empty() { 0 } else { self.state.class(record).outputs.len() };
        for at in 0..outputs {
            if let Output::InPlace(of) | Output::Takes(_, of) = self.state.class(record).outputs[at] {
                self.finish(self.state.storage_of(self.state.record(record).reads[of]));
            }
        }
        for &read in &self.state.record(record).reads {
            reads.push(self.block(self.state.storage_of(read)));
        }
        let over = self.takes(record);
        let mut workspace = self.allocate_for(record, reads, over, writes)?;
        for (at, block) in writes.iter_mut().enumerate() {
            block.storage = self.destination(record, at);
        }
        let this = self.state.record(record);
        let run = Run {
            kind: &self.kinds[self.state.class(record).kind as usize],
            call: record,
            repetition: this.runs,
            reads,
            writes,
            over,
            workspace,
            room: self.settings.budget.saturating_sub(self.stats.used),
            expected: Nanos(this.time),
            generator: self.state.generators.get(&record).copied(),
        };
        let first = run.repetition == 0;
        let ran = self.host.run(&run);
        self.free(workspace);
        if first && let Some(measured) = self.host.workspace() {
            workspace.size = measured;
            self.state.records[record as usize].workspace = measured.0;
            self.stats.peak = self.stats.peak.max(self.stats.used + measured);
        }
        let time = match ran {
            Ok(time) => time.0,
            Err(error) => {
                self.free_made(record, over, writes);
                self.doubt_overwritten(record, over);
                return Err(error.into());
            }
        };
        self.ran(record, time);
        self.settle(record, target, (writes, over), workspace, fresh);
        let patience = self.settings.patience;
        if self.stats.recompute_ns > patience.0 {
            return Err(Fault::TooSlow(patience));
        }
        if !first {
            self.check_pace(record)?;
        }
        self.check_allowance()
    }

    /// Gives back the bytes of their own that a run of `record` was to fill, which has `over` for its output.
    fn free_made(&mut self, record: u32, over: Option<usize>, writes: &[Block]) {
        for (at, block) in writes.iter().enumerate() {
            if self.state.class(record).outputs[at].bytes() > Bytes::ZERO && over.is_none() {
                self.free(*block);
            }
        }
    }

    /// A run of `record` has failed: what a repetition was to overwrite, or a first run `over`, may be half written, and is computed
    /// again.
    fn doubt_overwritten(&mut self, record: u32, over: Option<usize>) {
        let again = self.state.record(record).runs > 0;
        for at in 0..self.state.class(record).outputs.len() {
            let of = match self.state.class(record).outputs[at] {
                Output::InPlace(of) if again => of,
                Output::Takes(_, of) if over.is_some() => of,
                _ => continue,
            };
            let storage = self.state.storage_of(self.state.record(record).reads[of]);
            let this = self.state.storage(storage);
            if this.resident && this.evictable {
                self.evict(storage);
            }
        }
    }

    /// Whether the log, and the time for planning, are within what is allowed.
    fn check_allowance(&self) -> Result<(), Fault> {
        let allowed = &self.settings.allowance;
        let bytes = self.log.as_ref().map_or(Bytes::ZERO, Log::bytes);
        let runs = self.stats.calls + self.stats.recomputes;
        if bytes > allowed.bytes || (runs.is_multiple_of(RUNS_PER_LOOK) && allowed.is_over()) {
            return Err(Fault::OverAllowance);
        }
        Ok(())
    }

    /// The storage that the output at `at` will be; none if it's discarded at once.
    fn destination(&self, record: u32, at: usize) -> Option<StorageId> {
        let this = self.state.record(record);
        let written = this.writes[at].get()?;
        let storage = self.state.storage_of(written);
        let view = matches!(self.state.class(record).outputs[at], Output::View(_));
        (view || !self.state.storage(storage).resident).then_some(StorageId(storage))
    }

    /// Blocks for all that `record` writes, and its scratch memory.
    fn allocate_for(
        &mut self,
        record: u32,
        reads: &[Block],
        over: Option<usize>,
        writes: &mut Vec<Block>,
    ) -> Result<Block, Fault> {
        let need = self.need(record);
        let mut outcome = Ok(());
        for at in 0..self.state.class(record).outputs.len() {
            let block = match self.state.class(record).outputs[at] {
                Output::View(of) | Output::InPlace(of) => reads[of],
                Output::Takes(_, of) if over.is_some() => {
                    Block { storage: self.destination(record, at), ..reads[of] }
                }
                Output::Fresh(size) | Output::Takes(size, _) => {
                    match self.room_at(at, size.0, record, need) {
                        Ok(offset) => {
                            // If there is no room for the others this is given back: not in the name of what is there.
                            let storage = self.destination(record, at);
                            let block = Block { storage, offset: Bytes(offset), size };
                            self.host.allocate(block);
                            block
                        }
                        Err(fault) => {
                            outcome = Err(fault);
                            break;
                        }
                    }
                }
            };
            writes.push(block);
        }
        let scratch = self.state.record(record).workspace;
        let workspace = outcome.and_then(|()| {
            let last = self.state.class(record).outputs.len();
            let offset = self.room_at(last, scratch, record, need)?;
            let block = Block { storage: None, offset: Bytes(offset), size: Bytes(scratch) };
            if scratch > 0 {
                self.host.allocate(block);
            }
            Ok(block)
        });
        if workspace.is_err() {
            self.free_made(record, over, writes);
        }
        workspace
    }

    /// Room where the plan has it, if there is one, or anywhere.
    fn room_at(&mut self, position: usize, size: u64, record: u32, need: u64) -> Result<u64, Fault> {
        if size == 0 {
            return Ok(0);
        }
        if let Some(&offset) = self.preferred.get(position)
            && self.stats.used + Bytes(size) <= self.settings.budget
            && self.allocator.allocate_at(offset, size)
        {
            self.took(offset, size);
            return Ok(offset);
        }
        let kind = self.state.class(record).kind;
        self.room_named(size, need, Some(kind), "")
    }

    /// Room for `size` bytes that are put in: at `at`, if it is free, or anywhere.
    pub(crate) fn room_near(&mut self, at: Option<Bytes>, size: u64) -> Result<u64, Fault> {
        if let Some(Bytes(offset)) = at.filter(|_| size > 0)
            && self.stats.used + Bytes(size) <= self.settings.budget
            && self.allocator.allocate_at(offset, size)
        {
            self.took(offset, size);
            return Ok(offset);
        }
        self.room_named(size, size, None, crate::fault::PUT)
    }

    fn room_named(&mut self, size: u64, need: u64, kind: Option<u32>, what: &str) -> Result<u64, Fault> {
        loop {
            if let Some(offset) = self.allocator.allocate(size) {
                self.took(offset, size);
                return Ok(offset);
            }
            if self.stats.used + Bytes(size) <= self.settings.budget {
                self.stats.fragmented += 1;
            }
            let mut victims = std::mem::take(&mut self.scratch.victims);
            victims.clear();
            let ask = Ask { size, allocator: &*self.allocator };
            self.evictor.choose(&self.state, &ask, &mut victims);
            let none = victims.is_empty();
            for &victim in &victims {
                if !self.state.storage(victim).in_pool {
                    continue;
                }
                if self.host.is_shared(StorageId(victim)) {
                    self.keep(victim);
                    self.fix(victim);
                } else {
                    self.put_away(victim)?;
                }
            }
            self.scratch.victims = victims;
            if none && !self.park_for_room()? {
                let op = kind.map_or(what, |kind| &self.kinds[kind as usize]).to_owned();
                let enough = self.stats.used + Bytes(size);
                return Err(self.no_room(op, enough, need));
            }
        }
    }

    fn took(&mut self, offset: u64, size: u64) {
        self.stats.used += Bytes(size);
        self.stats.peak = self.stats.peak.max(self.stats.used);
        self.stats.height = self.stats.height.max(Bytes(offset) + Bytes(size));
    }

    /// Gives a block back.
    pub(crate) fn free(&mut self, block: Block) {
        if block.size > Bytes::ZERO {
            self.host.release(block);
            self.allocator.release(block.offset.0, block.size.0);
            self.stats.used = self.stats.used.saturating_sub(block.size);
        }
    }

    /// What is left of `block` if only its first `size` bytes stay taken.
    pub(crate) fn shrunk(&mut self, block: Block, size: Bytes) -> Block {
        if size >= block.size {
            return block;
        }
        self.free(block);
        let mut again =
            |size: Bytes| size > Bytes::ZERO && self.allocator.allocate_at(block.offset.0, size.0);
        // An allocator that gives out no part of what it has got gives it whole.
        let size = [size, block.size].into_iter().find(|&size| again(size)).unwrap_or_default();
        let shrunk = Block { size, ..block };
        if size > Bytes::ZERO {
            self.took(block.offset.0, size.0);
            self.host.allocate(shrunk);
        }
        shrunk
    }

    /// Counts a run that took `time`.
    fn ran(&mut self, record: u32, time: u64) {
        self.state.now = self.host.clock().0;
        let this = &mut self.state.records[record as usize];
        if this.runs == 0 {
            self.stats.first_ns += time;
        } else {
            self.stats.recomputes += 1;
            self.stats.recompute_ns += time;
        }
        this.runs += 1;
        let before = this.time;
        let after = if this.runs == 1 { time } else { expected(before, time) };
        if after != before {
            this.time = after;
            for at in 0..self.state.record(record).writes.len() {
                if let Some(written) = self.state.record(record).writes[at].get() {
                    let storage = self.state.storage_of(written);
                    let cost = &mut self.state.storages[storage as usize].cost;
                    *cost = cost.saturating_sub(before).saturating_add(after);
                }
            }
        }
    }

    /// What `record` has just made is to be looked at, before anything else runs: only then has the host taken it over.
    fn note_made(&mut self, record: u32, writes: &[Block]) {
        let this = self.state.record(record);
        for (at, &block) in writes.iter().enumerate() {
            let is_view = matches!(self.state.class(record).outputs[at], Output::View(_));
            let value = this.writes[at].get().and_then(|written| self.state.tensor(written).value.get());
            if let (Some(StorageId(storage)), Some(value)) = (block.storage, value)
                && !is_view
                && block.size >= SPARSE
            {
                self.unweighed.push((storage, value));
            }
        }
    }

    /// Notes that gradients are so sensitive to what `tensor` holds now: [`memfit_ir::Value::sensitivity`].
    pub fn sense(&mut self, tensor: TensorId, sensitivity: f32) {
        let Some(this) = self.state.tensors.get(tensor.index()).filter(|this| this.alive) else { return };
        let root = self.state.storage(this.storage).root();
        let value = self.state.tensors.get(root as usize).and_then(|root| root.value.get());
        if let (Some(log), Some(value)) = (&mut self.log, value) {
            log.sense(value, sensitivity);
        }
    }

    /// Notes how dense what was made last is, as far as it is there, if the host looks.
    pub(crate) fn weigh(&mut self) {
        for (storage, value) in std::mem::take(&mut self.unweighed) {
            let this = self.state.storage(storage);
            let root = self.state.tensors.get(this.root() as usize);
            if !this.resident || root.is_none_or(|root| !root.value.is(value)) {
                continue;
            }
            let Seen { density, dtype } = self.host.look(self.block(storage));
            let density = density.map(with_margin).filter(|&density| density <= DENSE);
            if let Some(log) = &mut self.log {
                // What is encoded by now is taken to be as dense as its plan has it.
                log.see(value, density, dtype);
            }
        }
    }

    /// Books what a run has made: `target` last. `over`: what its output was written over.
    fn settle(
        &mut self,
        record: u32,
        target: Option<u32>,
        (writes, over): (&[Block], Option<usize>),
        workspace: Block,
        fresh: &mut Vec<u32>,
    ) {
        if let Some(log) = &mut self.log {
            let kind = self.state.class(record).kind;
            log.compute(&mut self.state, record, &self.kinds[kind as usize], (writes, over), workspace);
            // What a plan rests on comes from a step without one.
            if self.looks && !self.settings.codecs.is_empty() && self.state.record(record).runs == 1 {
                self.note_made(record, writes);
            }
        }
        let count = self.state.record(record).writes.len();
        let target = Maybe::from(target);
        let last = self.state.record(record).writes.iter().position(|&written| written == target);
        let order = (0..count).filter(|&at| Some(at) != last).chain(last);
        for at in order {
            let (written, block) = (self.state.record(record).writes[at], writes[at]);
            let output = self.state.class(record).outputs[at];
            let taken = over.filter(|_| matches!(output, Output::Takes(..)));
            if let (Output::InPlace(of), _) | (_, Some(of)) = (output, taken) {
                let old = self.state.storage_of(self.state.record(record).reads[of]);
                self.overwritten(old);
            }
            let Some(written) = written.get() else {
                if !matches!(output, Output::View(_)) {
                    self.free(block);
                }
                continue;
            };
            let storage = self.state.storage_of(written);
            if !matches!(output, Output::View(_)) {
                if self.state.storage(storage).resident {
                    self.free(block);
                    continue;
                }
                self.state.arrive(storage, block.offset.0);
                self.state.storages[storage as usize].keeps = Need::Value;
                fresh.push(storage);
            }
            self.state.tensors[written as usize].defined = true;
        }
        let repeated = self.state.record(record).runs > 1;
        for &storage in fresh.iter() {
            let this = &mut self.state.storages[storage as usize];
            this.recomputes += u32::from(repeated);
            let free = this.locks == 0 && this.evictable;
            self.evictor.computed(&self.state, storage);
            if free {
                self.state.enter_pool(storage);
                self.evictor.entered(&self.state, storage);
            }
        }
        if repeated && !self.waiting.is_empty() {
            self.banish_waiting();
        }
    }

    /// The bytes of `storage` hold another version now.
    fn overwritten(&mut self, storage: u32) {
        self.state.leave_pool(storage);
        self.undefine(storage);
        self.passed_away(storage);
        self.evictor.evicted(&self.state, storage);
        if self.parks() && !self.state.storage(storage).evictable {
            // Nobody asks for an older version of what can't be computed again.
            self.give_up_copies(storage);
        }
    }

    fn undefine(&mut self, storage: u32) {
        self.state.leave(storage);
        for at in 0..self.state.storage(storage).tensors.len() {
            let tensor = self.state.storage(storage).tensors[at];
            self.state.tensors[tensor as usize].defined = false;
        }
    }

    /// Takes the bytes of `storage` away. It can be computed again, or nothing needs it.
    pub(crate) fn evict(&mut self, storage: u32) {
        self.finish(storage);
        if let Some(log) = &mut self.log {
            log.free(&mut self.state, storage);
        }
        self.state.leave_pool(storage);
        self.undefine(storage);
        self.free(self.block(storage));
        self.passed_away(storage);
        self.evictor.evicted(&self.state, storage);
    }

    pub(crate) fn lock(&mut self, storage: u32) {
        let this = &mut self.state.storages[storage as usize];
        this.locks += 1;
        if this.in_pool {
            self.state.leave_pool(storage);
        }
    }

    pub(crate) fn unlock(&mut self, storage: u32) {
        let this = &mut self.state.storages[storage as usize];
        this.locks = this.locks.saturating_sub(1);
        if this.locks == 0 && this.resident && this.evictable {
            self.state.enter_pool(storage);
            self.evictor.entered(&self.state, storage);
        }
    }
}
