//! Another budget while things run.

use memfit_ir::Bytes;

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
}
