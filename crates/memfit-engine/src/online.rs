//! Making room online: what goes is dropped, or stored where that costs less than computing it again.
//!
//! The price of dropping is the time of its op and of what that needs which is gone as well; that of storing is the way out,
//! for which the op that wants the room waits, behind what is on the way already, and the way back. Both are as measured. On
//! a link of a few GB/s what is cheap for its bytes (batch norm, ReLU) is dropped, and what is dear (convolutions, products
//! of matrices) is stored. While a plan is followed the memory for copies is the plan's; where nothing is to be computed again, what the
//! plan leaves of it is for what goes beside the plan.

use memfit_ir::{Bytes, Form, Link, Nanos, Tier};

use crate::call::TensorId;
use crate::copies::Busy;
use crate::engine::{Engine, Storing};
use crate::fault::Fault;
use crate::host::{Host, HostError, Wanted};
use crate::ids::StorageId;

/// How many times dearer it must be to compute something again: what it is computed from may be asked for in any case.
const WORTH: i128 = 2;
/// The same for what the program has given up: it is asked for only by others, which may be stored or given up themselves. With 2 the
/// recorded LSTM at 0.3 took 3 % longer than without storing; if it's never stored, a ShuffleNet below its floor goes in circles.
const WORTH_DELETED: i128 = 16;

impl<H: Host> Engine<'_, H> {
    /// `storage`, which is in the pool, goes to make room.
    pub(crate) fn put_away(&mut self, storage: u32) -> Result<(), Fault> {
        self.stats.evictions += 1;
        // There is a link where storages are stored for room, and a tier to store them in.
        let is_ours = !self.is_guided() || self.settings.storing == Storing::Always;
        if self.state.link.is_some() && is_ours && !self.stores.has(storage) {
            let size = Bytes(self.state.storage(storage).size);
            if let Some(tier) = self.cheaper_tier(storage, size)
                && let Some(row) = self.store(storage, Wanted::plain(Form::Tier(tier), size), None)?
            {
                self.wait(row)?;
            }
        }
        self.evict(storage);
        Ok(())
    }

    /// The tier with room from which `storage` would be back sooner than by computing it again; the nearest, of several.
    fn cheaper_tier(&mut self, storage: u32, size: Bytes) -> Option<Tier> {
        let always = self.settings.storing == Storing::Always;
        let is_held = self.state.storage(storage).held > 0;
        if !is_held && !self.walk.serves(&self.state, storage) {
            return None; // Nobody will ask for it.
        }
        let is_guided = self.is_guided();
        let with_room = |(tier, _): (Tier, &str)| {
            let store = self.settings.tiers[tier.index()]?;
            let planned = if is_guided { self.stores.planned[tier.index()] } else { Bytes::ZERO };
            let needed = self.stores.used[tier.index()].0.saturating_add(size.0).saturating_add(planned.0);
            (needed <= store.capacity.0).then_some((tier, store.link))
        };
        let mut roomy = Tier::ALL.into_iter().filter_map(with_room).peekable();
        let nearest = roomy.peek()?.0;
        if always {
            return Some(nearest);
        }
        let worth = if is_held { WORTH } else { WORTH_DELETED };
        let own = i128::from(self.state.storage(storage).cost);
        self.walk.begin(&self.state, storage);
        let again = own + self.walk.ancestors(&self.state, storage);
        let is_cheaper =
            |&(tier, link): &(Tier, Link)| i128::from(self.moved(tier, link, size).0) * worth < again;
        roomy.find(is_cheaper).map(|(tier, _)| tier)
    }

    /// What storing `size` bytes in `tier` and loading them takes, behind what is on the way there already.
    fn moved(&self, tier: Tier, link: Link, size: Bytes) -> Nanos {
        let before = self.stores.rows.values().filter(|row| row.busy == Busy::Out);
        let before = before.filter(|row| row.form.tier() == Some(tier)).map(|row| link.out_time(row.size).0);
        Nanos(before.fold(0, u64::saturating_add)) + link.out_time(size) + link.in_time(size)
    }

    /// Stores `tensor` in `tier` by hand, and lets its bytes go. False if it can't: it may not go, or there is no room there.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn swap_out(&mut self, tensor: TensorId, tier: Tier) -> Result<bool, Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        let this = self.state.storage(storage);
        if !this.in_pool || self.host.is_shared(StorageId(storage)) {
            return Ok(false);
        }
        if !self.stores.has(storage) {
            let size = Bytes(this.size);
            let Some(row) = self.store(storage, Wanted::plain(Form::Tier(tier), size), None)? else {
                return Ok(false);
            };
            self.wait(row)?;
            if self.stores.row(row).is_none() {
                return Ok(false);
            }
        }
        self.evict(storage);
        Ok(true)
    }

    /// Begins to bring `tensor` back from its copy, by hand; without one it is brought back as by [`Engine::restore`]. Whoever
    /// reads it waits until it is there.
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub fn swap_in(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        match self.stores.of(storage).first() {
            Some(&row) if self.load(row, None)? => Ok(()),
            _ => self.define(tensor.0),
        }
    }

    /// Why the last copy that was lost was, since somebody asked: what it was of is computed again.
    pub fn take_lost(&mut self) -> Option<HostError> {
        self.lost.take()
    }
}
