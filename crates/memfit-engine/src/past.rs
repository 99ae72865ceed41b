//! The past is cut where it costs more than it serves.
//!
//! A loop that carries state without gradients (`h = cell(h)`) gives up each state when it has made the next. The latest can
//! be computed again from the one before it, that from the one before, and so on to the first: the sources, the states of
//! generators and the records that this takes grow with every turn, for the sake of a tensor that does not. So what the
//! program has given up is looked at whenever there is twice as much of it as last time: each connected part of it with
//! the tensors that the program holds of what is computed from it. Where these take no more bytes than the part, they
//! are brought back, become sources, and the part goes.
//!
//! A part is looked at once for each doubling, so all looks together take time linear in the number of releases.

use memfit_ir::{Bytes, Nanos};
use rustc_hash::FxHashSet;

use crate::call::TensorId;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;
use crate::released::{FEW, SHARE};

/// Bytes that a record is taken to cost, with all that a host keeps for it.
const RECORD: u64 = 256;

/// A connected part of the past.
#[derive(Debug, Default)]
struct Part {
    members: Vec<u32>,
    /// What the program holds of what is computed from the members.
    served: Vec<u32>,
}

impl<H: Host> Engine<'_, H> {
    /// The program has given up `storage`, and what that entails is done.
    pub(crate) fn passed(&mut self, storage: u32) {
        let this = &mut self.state.storages[storage as usize];
        if !self.settings.forget || !this.alive || this.held > 0 {
            return;
        }
        if this.resident && !this.evictable && !this.past {
            this.past = true;
            self.past.bytes += Bytes(this.size);
        }
        if !this.listed {
            this.listed = true;
            self.past.released.push(storage);
            self.bound_list();
        }
    }

    /// The bytes of `storage` have gone.
    pub(crate) fn passed_away(&mut self, storage: u32) {
        let this = &mut self.state.storages[storage as usize];
        let bytes = if std::mem::take(&mut this.past) { Bytes(this.size) } else { Bytes::ZERO };
        self.past.bytes = self.past.bytes.saturating_sub(bytes);
    }

    /// Whether so much has been given up since the last time that [`Engine::cut_past`] may be worth its while.
    #[must_use]
    pub fn is_past_long(&self) -> bool {
        let (storages, bytes) = self.past.most;
        self.settings.cut && (self.past.released.len() >= storages || self.past.bytes > bytes)
    }

    /// What the program has given up and still takes room, since others are computed from it: bytes, storages.
    #[must_use]
    pub fn past_bytes(&self) -> (Bytes, u64) {
        let there = |&storage: &u32| self.state.storage(storage).past;
        let mut resident: Vec<u32> = self.past.released.iter().copied().filter(there).collect();
        resident.sort_unstable();
        resident.dedup();
        (self.past.bytes, resident.len() as u64)
    }

    /// Cuts off those parts of the past that cost more bytes than what the program still holds of what they were needed for;
    /// that stays from now on. While a plan is followed nothing is cut.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back, but for there being no room, or for its taking longer than all first runs so far:
    /// then the part is left as it is.
    pub fn cut_past(&mut self) -> Result<(), Fault> {
        if !self.settings.cut || !self.settings.forget || self.is_guided() {
            return Ok(());
        }
        self.prune();
        let patience = self.settings.patience;
        let stats = self.stats;
        // What is away comes back while other parts are kept in place: that may take longer than the training.
        let allowed = stats.recompute_ns.saturating_add(stats.first_ns);
        self.settings.patience = patience.min(Nanos(allowed));
        let cut = self.cut_parts();
        self.settings.patience = patience;
        cut?;
        self.prune();
        self.past.most = (
            FEW.max(2 * self.past.released.len()),
            Bytes(self.settings.budget.0 / SHARE).max(self.past.bytes + self.past.bytes),
        );
        Ok(())
    }

    fn cut_parts(&mut self) -> Result<(), Fault> {
        let mut seen = FxHashSet::default();
        for at in 0..self.past.released.len() {
            let storage = self.past.released[at];
            if self.is_past(storage) && seen.insert(storage) {
                let part = self.part(storage, &mut seen);
                if self.is_dearer(&part) {
                    self.cut_part(&part)?;
                }
            }
        }
        Ok(())
    }

    /// Where nobody asks for cuts, or a plan is followed, the list is still not to grow with the number of releases.
    fn bound_list(&mut self) {
        if self.past.released.len() >= 2 * self.past.most.0 {
            self.prune();
            self.past.most.0 = self.past.most.0.max(self.past.released.len());
        }
    }

    fn prune(&mut self) {
        let mut released = std::mem::take(&mut self.past.released);
        let mut seen = FxHashSet::default();
        released.retain(|&storage| self.is_past(storage) && seen.insert(storage));
        self.past.released = released;
    }

    fn is_past(&self, storage: u32) -> bool {
        let this = self.state.storage(storage);
        this.alive && this.held == 0 && this.listed
    }

    /// All of the past that is connected with `start`. Its members are added to `seen`.
    fn part(&self, start: u32, seen: &mut FxHashSet<u32>) -> Part {
        let (mut part, mut work) = (Part::default(), vec![start]);
        while let Some(member) = work.pop() {
            part.members.push(member);
            for child in self.state.children(member) {
                if !self.is_past(child) {
                    part.served.push(child);
                } else if seen.insert(child) {
                    work.push(child);
                }
            }
            work.extend(
                self.state.parents(member).filter(|&parent| self.is_past(parent) && seen.insert(parent)),
            );
        }
        part.served.sort_unstable();
        part.served.dedup();
        part
    }

    fn is_dearer(&self, part: &Part) -> bool {
        let fixed = |&member: &u32| {
            let this = self.state.storage(member);
            if this.resident && !this.evictable { this.size } else { 0 }
        };
        let served = |&storage: &u32| {
            let this = self.state.storage(storage);
            if this.evictable { this.size } else { 0 }
        };
        // Records are not in the budget: for their sake no more than a small part of it is kept in place.
        let records = (RECORD * part.members.len() as u64).min(self.settings.budget.0 / SHARE);
        part.served.iter().map(served).sum::<u64>() <= part.members.iter().map(fixed).sum::<u64>() + records
    }

    fn cut_part(&mut self, part: &Part) -> Result<(), Fault> {
        match self.cut_storages_off(&part.served) {
            Err(Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::Thrashing(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Cuts `tensors` off from the past: what of them the program holds is brought back and stays, as if it had been brought in. A part of
    /// the past that nothing else needs goes.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back: then none is cut off.
    pub fn cut_off(&mut self, tensors: &[TensorId]) -> Result<(), Fault> {
        let mut storages = Vec::with_capacity(tensors.len());
        for &tensor in tensors {
            self.known(tensor)?;
            storages.push(self.state.storage_of(tensor.0));
        }
        storages.sort_unstable();
        storages.dedup();
        self.cut_storages_off(&storages)
    }

    fn cut_storages_off(&mut self, storages: &[u32]) -> Result<(), Fault> {
        let mut locked = Vec::new();
        let mut outcome = Ok(());
        'all: for &storage in storages {
            for at in 0..self.state.storage(storage).tensors.len() {
                let tensor = self.state.storage(storage).tensors[at];
                if self.state.tensor(tensor).held > 0 {
                    outcome = self.restore(TensorId(tensor));
                    if outcome.is_err() {
                        break 'all;
                    }
                }
            }
            self.lock(storage);
            locked.push(storage);
        }
        for &storage in &locked {
            if outcome.is_ok() {
                self.keep(storage);
            }
            self.unlock(storage);
        }
        self.forget_producers();
        outcome
    }
}
