//! What nothing can compute again goes to another tier: it is *parked*.
//!
//! A parked storage is one whose bytes are in copies alone. Such a copy is not lost for the sake of anything: whoever asks for
//! the storage gets it from there, and only then, or when nobody can need it any more, may the copy go. So all that comes
//! later follows as it does for what was stored and could be computed again: reads of the program between two steps, a step
//! that leaves its plan, the end of the budget.
//!
//! Without a plan a storage is parked where nothing else makes room. Of all that may be, the one goes that costs least for
//! the time since it was used: what was only read since it was parked last has its copy still, and is not stored again.
//!
//! A copy that can't be made changes nothing: the storage stays. One that can't be read is told by [`Fault::Gone`]; it is
//! kept, so that who asks again may have it yet.

use memfit_ir::{Bytes, Form, Tier};

use crate::call::TensorId;
use crate::copies::{Busy, Row};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::{Host, HostError, Wanted};
use crate::ids::StorageId;
use crate::table::next_index;

/// Storages of fewer bytes stay: what a transfer takes at least is more than they are worth.
const LEAST: u64 = 4 << 10;

impl<H: Host> Engine<'_, H> {
    /// Whether some storages are parked.
    #[must_use]
    pub fn has_parked(&self) -> bool {
        self.stores.rows.values().any(|row| self.state.storage(row.storage).parked)
    }

    /// Whether `tensor` is parked.
    #[must_use]
    pub fn is_parked(&self, tensor: TensorId) -> bool {
        let this = self.state.tensors.get(tensor.index()).filter(|this| this.alive);
        this.is_some_and(|this| self.state.storage(this.storage).parked)
    }

    /// Brings `tensor` back, and has its bytes stay where they are from then on: somebody outside goes on to use them.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back.
    pub fn keep_resident(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.settle_down(tensor)?;
        self.fix(self.state.storage_of(tensor.0));
        Ok(())
    }

    /// `tensor` is never computed again: it's brought back if it isn't parked, and how it came about is forgotten.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back.
    pub fn settle_down(&mut self, tensor: TensorId) -> Result<(), Fault> {
        if !self.is_parked(tensor) {
            self.restore(tensor)?;
        }
        self.keep(self.state.storage_of(tensor.0));
        self.forget_producers();
        Ok(())
    }

    /// The bytes of `tensor` stay where they are, while they are there, and those of all versions that are written over it.
    pub fn stay(&mut self, tensor: TensorId) {
        if let Some(this) = self.state.tensors.get(tensor.index()).filter(|this| this.alive) {
            self.fix(this.storage);
        }
    }

    /// Copies go of what is there. To be called where the program may write to it unseen.
    pub fn forget_spare_copies(&mut self) {
        let there = |storage: u32| self.state.storage(storage).resident;
        let spare = self.stores.rows.iter().filter(|(_, row)| there(row.storage)).map(|(&at, _)| at);
        for at in spare.collect::<Vec<u32>>() {
            self.discard(at);
        }
    }

    /// The bytes of `storage` stay where they are.
    pub(crate) fn fix(&mut self, storage: u32) {
        self.state.storages[storage as usize].fixed = true;
    }

    /// Whether storages may be parked at all.
    pub(crate) fn parks(&self) -> bool {
        self.encodes_homes || (self.settings.parking && self.settings.tiers.iter().any(Option::is_some))
    }

    /// Whether the bytes of `storage` are there, or in a copy that is as good.
    pub(crate) fn is_safe(&self, storage: u32) -> bool {
        let this = self.state.storage(storage);
        this.resident || this.parked
    }

    /// Whether `tensor` is there, or parked.
    pub(crate) fn is_had(&self, tensor: u32) -> bool {
        let this = self.state.tensor(tensor);
        this.defined || self.state.storage(this.storage).parked
    }

    /// Whether `storage` may be parked now, as far as the tables tell.
    pub(crate) fn may_park(&self, storage: u32) -> bool {
        let this = self.state.storage(storage);
        let is_source = this.alive && this.resident && !this.evictable && !this.fixed;
        is_source
            && this.locks == 0
            && this.size >= LEAST
            && this.tensors.len() == 1
            && self.state.tensor(this.root()).defined
    }

    /// Bytes that could be parked now, as far as there is room for copies.
    pub(crate) fn parkable(&self) -> Bytes {
        if !self.parks() {
            return Bytes::ZERO;
        }
        let all = (0..self.state.storages.len()).map(next_index);
        let mut room = self.room_for_copies();
        let mut sum = Bytes::ZERO;
        for storage in all.filter(|&storage| self.may_park(storage)) {
            let size = Bytes(self.state.storage(storage).size);
            if !self.stores.has(storage) {
                if size > room {
                    continue;
                }
                room = room.saturating_sub(size);
            }
            sum += size;
        }
        sum
    }

    /// Bytes that tiers have left for copies, spare ones counted.
    fn room_for_copies(&self) -> Bytes {
        let left = |(tier, _): (Tier, &str)| {
            let capacity = self.settings.tiers[tier.index()].map_or(Bytes::ZERO, |store| store.capacity);
            capacity.saturating_sub(self.stores.used[tier.index()])
        };
        Tier::ALL.into_iter().map(left).sum()
    }

    /// Parks `storage`, in `tier` if that is said. False if it must stay, or no tier has room for it.
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub(crate) fn park(&mut self, storage: u32, tier: Option<Tier>) -> Result<bool, Fault> {
        if !self.may_park(storage) {
            return Ok(false);
        }
        if self.host.is_shared(StorageId(storage)) {
            self.discard_all_of(storage);
            self.fix(storage);
            return Ok(false);
        }
        if !self.has_whole_copy(storage)? {
            let size = Bytes(self.state.storage(storage).size);
            let tiers = Tier::ALL.into_iter().map(|(tier, _)| tier);
            let mut made = false;
            for tier in tiers.filter(|&one| tier.is_none_or(|tier| tier == one)) {
                if !self.has_room(tier, size, storage) {
                    continue;
                }
                if let Some(row) = self.store(storage, Wanted::plain(Form::Tier(tier), size), None)? {
                    self.wait(row)?;
                    made = self.stores.row(row).is_some();
                }
                if made {
                    break;
                }
            }
            if !made {
                return Ok(false);
            }
        }
        self.let_parked(storage);
        Ok(true)
    }

    /// The bytes of `storage`, of which there is a whole copy, go.
    pub(crate) fn let_parked(&mut self, storage: u32) {
        self.state.storages[storage as usize].parked = true;
        self.evict(storage);
        if let Some(log) = &mut self.log {
            log.park(&self.state, storage);
        }
    }

    /// Whether there is a copy of `storage` in a tier, or at home encoded, with which nothing is under way any more.
    pub(crate) fn has_whole_copy(&mut self, storage: u32) -> Result<bool, Fault> {
        if !self.stores.has(storage) {
            return Ok(false);
        }
        for at in self.stores.of(storage) {
            self.wait(at)?;
        }
        let rows = self.stores.of(storage);
        let mut rows = rows.iter().filter_map(|&at| self.stores.row(at));
        Ok(rows.any(|row| (matches!(row.form, Form::Tier(_)) || row.home) && row.busy == Busy::Idle))
    }

    /// Whether `tier` has room for `size` bytes of copies of `storage`, once spare ones have gone; for what is to be parked, also
    /// those of what can be computed again.
    pub(crate) fn has_room(&mut self, tier: Tier, size: Bytes, storage: u32) -> bool {
        let capacity = self.settings.tiers[tier.index()].map_or(Bytes::ZERO, |store| store.capacity);
        let fits = |used: Bytes| used + size <= capacity;
        if fits(self.stores.used[tier.index()]) {
            return true;
        }
        if size > capacity || !self.parks() {
            return false;
        }
        let parks = !self.state.storage(storage).evictable;
        let is_spare = |row: &Row| {
            let this = self.state.storage(row.storage);
            let serves = if this.evictable { !parks } else { !this.resident };
            row.form == Form::Tier(tier) && row.busy == Busy::Idle && !serves && row.storage != storage
        };
        let wanted = self.stores.wanted;
        let spare = self.stores.rows.iter().filter(|&(&at, row)| is_spare(row) && !wanted.is(at));
        let mut spare: Vec<(bool, u32)> =
            spare.map(|(&at, row)| (self.state.storage(row.storage).evictable, at)).collect();
        spare.sort_unstable();
        for (_, at) in spare {
            self.discard(at);
            if fits(self.stores.used[tier.index()]) {
                return true;
            }
        }
        false
    }

    /// Parks the storage that costs least for the time since its last use. False if none can go.
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub(crate) fn park_for_room(&mut self) -> Result<bool, Fault> {
        if !self.parks() {
            return Ok(false);
        }
        let all = (0..self.state.storages.len()).map(next_index);
        let worth = |storage: u32| {
            let idle = self.state.now.saturating_sub(self.state.storage(storage).last_access);
            // There and back, or back alone.
            if self.stores.has(storage) { idle.saturating_mul(2) } else { idle }
        };
        let can = all.filter(|&storage| self.may_park(storage));
        let mut can: Vec<(u64, u32)> = can.map(|storage| (worth(storage), storage)).collect();
        can.sort_unstable_by_key(|&(worth, storage)| (std::cmp::Reverse(worth), storage));
        for (_, storage) in can {
            if self.park(storage, None)? {
                self.stats.evictions += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the host says of the copy of `tensor` that can't be read.
    pub(crate) fn gone(&self, tensor: u32) -> Fault {
        let storage = self.state.storage_of(tensor);
        let rows = self.stores.of(storage);
        let mut tiers = rows.iter().filter_map(|&at| self.stores.row(at)?.form.tier());
        let unknown = || HostError("there is no copy".to_owned());
        let tier = tiers.next().unwrap_or_default();
        Fault::Gone { tensor: TensorId(tensor), tier, why: self.lost.clone().unwrap_or_else(unknown) }
    }
}
