//! Another budget, and another limit of time, while things run.

use memfit_ir::{Bytes, Nanos};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;

impl<H: Host> Engine<'_, H> {
    /// The budget is `budget` from now on. A smaller one evicts what has to go.
    ///
    /// # Errors
    ///
    /// [`Fault::NoRoom`] if what can't go is larger; [`Fault::BadCall`] if the allocator gives addresses: they are those of
    /// an arena of one size. The budget stays as it was.
    pub fn set_budget(&mut self, budget: Bytes) -> Result<(), Fault> {
        if self.allocator.addresses().is_some() {
            return Err(Fault::BadCall("the budget of an arena with addresses can't be changed".to_owned()));
        }
        let before = self.settings.budget;
        if let Some(less) = before.0.checked_sub(budget.0) {
            let (peak, height) = (self.stats.peak, self.stats.height);
            // What is to go is taken, and never given back.
            let taken = self.room_near(None, less);
            if let Err(Fault::NoRoom(mut no_room)) = taken {
                let (asked, enough) = (Bytes(less), self.stats.used);
                (no_room.op, no_room.asked) = ("a smaller budget".to_owned(), asked);
                (no_room.budget, no_room.enough) = (budget, enough);
                return Err(Fault::NoRoom(no_room));
            }
            taken?;
            self.stats.used = self.stats.used.saturating_sub(Bytes(less));
            (self.stats.peak, self.stats.height) = (peak, height);
        } else {
            self.allocator.release(0, budget.0 - before.0);
        }
        self.settings.budget = budget;
        Ok(())
    }

    /// Counts [`crate::Stats::peak`] anew, from what is in use now.
    pub fn reset_peak(&mut self) {
        self.stats.peak = self.stats.used;
    }

    /// Bytes of the engine's own tables: what it takes to know how everything is made. They are used again, and not given
    /// back, so this is also the most they have taken.
    #[must_use]
    pub fn table_bytes(&self) -> Bytes {
        Bytes((self.state.bytes() + self.evictor.bytes()) as u64)
    }

    /// From now on at most `more` of time may go into recomputation, beside what has gone.
    pub fn limit_recomputation(&mut self, more: Nanos) {
        self.settings.patience = Nanos(self.stats.recompute_ns.saturating_add(more.0));
    }
}
