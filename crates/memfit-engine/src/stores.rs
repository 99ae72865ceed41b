//! Copies of storages that wait elsewhere: in another tier, encoded, or both.
//!
//! A plan stores what it wants to have back without computing it again, lets the bytes go, and loads them before the next
//! use. What is stored can be computed again in any case, so a copy that is lost costs time and nothing else; and whoever
//! asks for what is stored, planned or not, gets it from the copy. A version of a storage never changes, so a copy of it
//! is never stale; where somebody outside may write to the bytes, the copies of it go.
//!
//! A transfer may be under way while ops run. Until it has been waited for, the bytes that it reads stay, and what it
//! brings back is not there yet.

use memfit_ir::{Bytes, Codec, Form, Nanos, Need, Tier};

use crate::copies::{Busy, Row};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::{Block, Host, HostError, Source, Wanted};
use crate::ids::StorageId;
use crate::maybe::Maybe;

impl<H: Host> Engine<'_, H> {
    /// Begins to make a copy of `storage`, which is there: in a tier, or a codec in device memory at `at` if there is room.
    /// `None` if that can't be done: it may not go, or there is no room for the copy.
    pub(crate) fn store(
        &mut self,
        storage: u32,
        wanted: Wanted,
        at: Option<Bytes>,
    ) -> Result<Option<u32>, Fault> {
        self.store_at(storage, wanted, (at, false))
    }

    /// As [`Engine::store`]; `home`: the copy is where the storage is at home.
    pub(crate) fn store_at(
        &mut self,
        storage: u32,
        wanted: Wanted,
        (at, home): (Option<Bytes>, bool),
    ) -> Result<Option<u32>, Fault> {
        let form = wanted.form;
        let this = self.state.storage(storage);
        let root = self.state.tensor(this.root());
        let less = form.codec().map_or(Need::Value, Codec::keeps) > this.keeps;
        let parks = matches!(form, Form::Tier(_)) || home;
        let goes = this.evictable || (parks && self.parks() && !this.fixed);
        if !goes || less || !root.defined || this.size == 0 || self.host.is_shared(StorageId(storage)) {
            return Ok(None);
        }
        let block = self.block(storage);
        // What is read must not be evicted while room is made for its encoded form.
        self.lock(storage);
        let made = self.make(storage, (Source::Block(block), None), wanted, at);
        self.unlock(storage);
        let Some(row) = made? else { return Ok(None) };
        if let Some(made) = self.stores.rows.get_mut(&row) {
            made.home = home;
            if let Some(log) = &mut self.log {
                (made.logged, made.step) = log.store(&self.state, storage, form, made.size, made.block);
            }
        }
        Ok(Some(row))
    }

    /// Begins to move the encoded copy `from` to `tier`, or with none back into device memory.
    pub(crate) fn forward(
        &mut self,
        from: u32,
        to: Option<Tier>,
        at: Option<Bytes>,
    ) -> Result<Option<u32>, Fault> {
        self.wait(from)?;
        let Some(source) = self.stores.row(from) else { return Ok(None) };
        let Some(codec) = source.form.codec() else { return Ok(None) };
        let form = to.map_or(Form::Encoded(codec), |tier| Form::EncodedOn(tier, codec));
        let copy = (Source::Copy(source.name), Some(source.form));
        let Some(row) = self.make(source.storage, copy, Wanted::plain(form, source.size), at)? else {
            return Ok(None);
        };
        if let Some(log) = &mut self.log
            && let Some(row) = self.stores.rows.get_mut(&row)
        {
            let from = (source.storage, source.logged);
            (row.logged, row.step) = log.forward(&self.state, from, form, row.size, row.block);
        }
        Ok(Some(row))
    }

    /// `source` is the form of what is copied, if that is a copy.
    fn make(
        &mut self,
        storage: u32,
        (from, source): (Source, Option<Form>),
        wanted: Wanted,
        at: Option<Bytes>,
    ) -> Result<Option<u32>, Fault> {
        let Wanted { form, room: size, .. } = wanted;
        let mut block = None;
        if let Some(tier) = form.tier() {
            if !self.has_room(tier, size, storage) {
                return Ok(None);
            }
        } else {
            let offset = match self.room_near(at, size.0) {
                Ok(offset) => Bytes(offset),
                Err(Fault::NoRoom(_)) => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let taken = Block { storage: None, offset, size };
            self.host.allocate(taken);
            block = Some(taken);
        }
        let before = self.host.clock();
        let stored = self.host.store(from, wanted);
        self.stalled(before);
        let name = match stored {
            Ok(name) => name,
            Err(error) => {
                self.loses(error);
                if let Some(block) = block {
                    self.free(block);
                }
                return Ok(None);
            }
        };
        if let Some(tier) = form.tier() {
            let used = &mut self.stores.used[tier.index()];
            *used += size;
            let peak = &mut self.stats.tier_peaks[tier.index()];
            *peak = (*peak).max(*used);
            self.stats.stored += size;
        }
        if let (Source::Block(plain), Some(_)) = (from, form.codec()) {
            self.stats.encoded += plain.size;
        }
        // An encoded copy is made in device memory at once: what it has not taken of its room is free.
        let at_once = block.is_some() && matches!(from, Source::Block(_));
        if at_once && let Some(taken) = self.host.taken(name) {
            block = block.map(|block| self.shrunk(block, taken));
        }
        let busy = if at_once { Busy::Idle } else { Busy::Out };
        let (logged, step, queue) = (None, None, None);
        let home = false;
        let row = Row { storage, form, name, size, home, block, logged, step, busy, queue, issued: 0 };
        let at = self.stores.add(row);
        self.state.storages[storage as usize].is_stored = true;
        if busy == Busy::Out {
            let from = match from {
                Source::Copy(_) => source.and_then(Form::tier).map(|tier| (tier, false)),
                Source::Block(_) => None,
            };
            let queue = form.tier().map(|tier| (tier, true)).or(from);
            self.stores.begin(at, busy, queue, None);
        }
        Ok(Some(at))
    }

    /// Begins to bring the storage back from its copy `at`, into `place` if there is room. It is there when that has been
    /// waited for. False if it can't be done.
    pub(crate) fn load(&mut self, at: u32, place: Option<Bytes>) -> Result<bool, Fault> {
        self.wait(at)?;
        let Some(row) = self.stores.row(at) else { return Ok(false) };
        let storage = row.storage;
        if self.state.storage(storage).resident {
            return Ok(true);
        }
        if let Form::EncodedOn(..) = row.form {
            // It is decoded in device memory.
            let Some(near) = self.forward(at, None, None)? else { return Ok(false) };
            let loaded = self.load(near, place)?;
            self.discard(near);
            return Ok(loaded);
        }
        let size = self.state.storage(storage).size;
        self.stores.wanted = at.into();
        let room = self.room_near(place, size);
        self.stores.wanted = Maybe::NONE;
        let offset = room?;
        let block = Block { storage: Some(StorageId(storage)), offset: Bytes(offset), size: Bytes(size) };
        self.host.allocate(block);
        let before = self.host.clock();
        let loaded = self.host.load(row.name, block);
        self.stalled(before);
        if let Err(error) = loaded {
            self.loses(error);
            self.free(block);
            return Ok(false);
        }
        if row.form.tier().is_some() {
            self.stats.loaded += row.size;
        }
        self.state.arrive(storage, offset);
        self.fill_with(storage, row.keeps());
        self.lock(storage);
        let step = match &mut self.log {
            Some(log) => log.load(&mut self.state, storage, row.logged),
            None => None,
        };
        self.stores.begin(at, Busy::Into, row.form.tier().map(|tier| (tier, false)), step);
        if row.block.is_some() {
            self.wait(at)?;
        }
        Ok(true)
    }

    /// Waits until what is under way with the copy `at` is done, and what was begun before it in the same direction.
    pub(crate) fn wait(&mut self, at: u32) -> Result<(), Fault> {
        let Some(row) = self.stores.row(at).filter(|row| row.busy != Busy::Idle) else { return Ok(()) };
        self.wait_before(row.queue, row.issued)?;
        self.wait_for(at)
    }

    /// Waits until all is done that is under way to a tier, or from it.
    pub(crate) fn wait_queue(&mut self, tier: Tier, out: bool) -> Result<(), Fault> {
        self.wait_before(Some((tier, out)), u64::MAX)
    }

    fn wait_before(&mut self, queue: Option<(Tier, bool)>, issued: u64) -> Result<(), Fault> {
        for at in self.stores.before(queue, issued) {
            self.wait_for(at)?;
        }
        Ok(())
    }

    fn wait_for(&mut self, at: u32) -> Result<(), Fault> {
        let Some(row) = self.stores.row(at).filter(|row| row.busy != Busy::Idle) else { return Ok(()) };
        let before = self.host.clock();
        let waited = self.host.wait(row.name);
        self.stalled(before);
        self.stores.end(at);
        if let (Some(log), Some(transfer)) = (&mut self.log, row.step) {
            log.wait(transfer);
        }
        let is_there = waited.is_ok();
        if let Err(error) = waited {
            self.loses(error);
        }
        if row.busy == Busy::Into {
            if is_there {
                let root = self.state.storage(row.storage).root();
                self.state.tensors[root as usize].defined = true;
                self.state.storages[row.storage as usize].parked = false;
                self.evictor.computed(&self.state, row.storage);
            }
            self.unlock(row.storage);
            if !is_there {
                // What did not come back is computed again, or stays parked.
                self.evict(row.storage);
            }
        }
        if !is_there {
            self.discard(at);
        }
        Ok(())
    }

    /// The copy `at` is not needed any more, unless it's all that there is of a parked storage.
    pub(crate) fn discard(&mut self, at: u32) {
        // An error would say that the copy is no good, which is all the same now.
        let _ = self.wait(at);
        let is_last =
            |row: Row| self.state.storage(row.storage).parked && self.stores.of(row.storage).len() == 1;
        if !self.stores.row(at).is_some_and(is_last) {
            self.forget_copy(at);
        }
    }

    fn forget_copy(&mut self, at: u32) {
        let Some(row) = self.stores.take(at) else { return };
        self.host.discard(row.name);
        self.state.storages[row.storage as usize].is_stored = self.stores.has(row.storage);
        if let Some(tier) = row.form.tier() {
            let used = &mut self.stores.used[tier.index()];
            *used = used.saturating_sub(row.size);
        }
        if let (Some(log), Some(copy)) = (&mut self.log, row.logged) {
            log.discard(copy);
        }
        if let Some(block) = row.block {
            self.free(block);
        }
    }

    /// Brings `tensor` back from a copy of its storage that keeps its value, if there is one and the bytes are not there. True if it is there
    /// now; a view is not, before its op has run again.
    pub(crate) fn bring_back(&mut self, tensor: u32) -> Result<bool, Fault> {
        let storage = self.state.storage_of(tensor);
        let parked = self.state.storage(storage).parked;
        let keeps = |&at: &u32| self.stores.row(at).is_some_and(|row| row.keeps() == Need::Value);
        let rows = self.stores.of(storage).into_iter().filter(keeps);
        let Some(at) = rows.min_by_key(|&at| self.is_far(at)) else { return Ok(false) };
        if !self.load(at, None)? {
            self.discard(at);
            // Nothing else would give the same bytes.
            return if parked { Err(self.gone(tensor)) } else { Ok(false) };
        }
        for at in self.stores.of(storage) {
            self.wait(at)?;
        }
        if parked && self.state.storage(storage).parked {
            return Err(self.gone(tensor));
        }
        // The copy of what can't be computed again serves when it is parked once more.
        if !self.is_guided() && !parked {
            self.discard_all_of(storage);
        }
        Ok(self.state.tensor(tensor).defined)
    }

    /// What is nearer comes sooner: what is under way, what is in device memory, the host, the disk.
    fn is_far(&self, at: u32) -> (bool, usize) {
        let Some(row) = self.stores.row(at) else { return (true, usize::MAX) };
        (row.busy != Busy::Into, row.form.tier().map_or(0, |tier| 1 + tier.index()))
    }

    /// Before the bytes of `storage` go or are written to: what reads them is done.
    pub(crate) fn finish(&mut self, storage: u32) {
        if self.stores.has(storage) {
            for at in self.stores.of(storage) {
                let _ = self.wait(at); // Then there is no copy, which costs time and nothing else.
            }
        }
    }

    /// The copies of `storage` go.
    pub(crate) fn discard_all_of(&mut self, storage: u32) {
        if self.stores.has(storage) {
            for at in self.stores.of(storage) {
                self.discard(at);
            }
        }
    }

    /// The copies of `storage` go: nobody asks for its bytes again.
    pub(crate) fn give_up_copies(&mut self, storage: u32) {
        self.state.storages[storage as usize].parked = false;
        self.discard_all_of(storage);
    }

    /// All copies go of what is there without them, and can be computed again.
    pub(crate) fn discard_spare(&mut self) {
        let there = |row: &Row| {
            let this = self.state.storage(row.storage);
            // Encoded ones take device memory.
            this.resident && (this.evictable || !self.parks() || row.block.is_some())
        };
        let spare = self.stores.rows.iter().filter(|(_, row)| there(row)).map(|(&at, _)| at);
        for at in spare.collect::<Vec<u32>>() {
            self.discard(at);
        }
    }

    /// All copies go, but for those of what can't be computed again where that is parked.
    pub(crate) fn discard_all(&mut self) {
        let parks = self.parks();
        for at in self.stores.rows.keys().copied().collect::<Vec<u32>>() {
            // An error would say that there is no copy.
            let _ = self.wait(at);
            let Some(row) = self.stores.row(at) else { continue };
            let this = self.state.storage(row.storage);
            let stays = parks && !this.evictable && (row.form.codec().is_none() || row.home);
            if !stays {
                self.discard(at);
            }
        }
    }

    /// There is no copy, or it is no good: what it was of is computed again, and somebody may ask why.
    fn loses(&mut self, error: HostError) {
        self.stats.lost += 1;
        self.lost = Some(error);
    }

    /// What the host took since `before` was spent on transfers and codecs.
    fn stalled(&mut self, before: Nanos) {
        let now = self.host.clock();
        self.stats.stall_ns += now.0.saturating_sub(before.0);
        self.state.now = now.0;
    }
}
