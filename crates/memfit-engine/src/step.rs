//! Steps: where a log begins and ends, and where the past is forgotten.

use memfit_ir::{Form, ValueId};

use crate::call::TensorId;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;
use crate::log::{Log, Recorded};
use crate::table::next_index;

impl<H: Host> Engine<'_, H> {
    /// Forgets the past: what the program holds is brought back, within the budget, and becomes a source.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back; then nothing is forgotten.
    pub fn cut(&mut self) -> Result<(), Fault> {
        let held = self.restore_held()?;
        debug_assert!(self.state.is_counted());
        self.discard_all();
        for &tensor in &held {
            let storage = self.state.storage_of(tensor);
            self.keep(storage);
        }
        // A record that goes may take others along.
        for tensor in 0..self.state.tensors.len() {
            let this = &self.state.tensors[tensor];
            if let Some(record) = this.record.get().filter(|_| this.alive) {
                self.detach(record);
            }
        }
        for tensor in 0..self.state.tensors.len() {
            if self.state.tensors[tensor].alive {
                self.collect(next_index(tensor));
            }
        }
        Ok(())
    }

    /// Ends the log without a record, if there is one.
    pub(crate) fn end_log(&mut self) {
        self.log = None;
        self.unweighed.clear();
        self.stores.forget_log();
    }

    /// Starts a log. What the program holds is brought back and becomes a source: the past is forgotten.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back.
    pub fn begin_step(&mut self) -> Result<(), Fault> {
        self.end_log();
        self.cut()?;
        let mut log = Log::default();
        log.stalled = self.stats.stall_ns;
        for tensor in 0..self.state.tensors.len() {
            if self.state.tensors[tensor].alive {
                let tensor = next_index(tensor);
                let storage = self.state.storage_of(tensor);
                let role = self.state.storage(storage).role;
                if !self.state.storage(storage).parked {
                    log.put(&mut self.state, tensor, role);
                    continue;
                }
                let rows = self.stores.of(storage);
                let home = rows.iter().find_map(|at| match self.stores.row(*at)?.form {
                    Form::Tier(_) => Some((*at, self.stores.row(*at)?)),
                    _ => self.stores.row(*at).filter(|row| row.home).map(|row| (*at, row)),
                });
                let Some((at, row)) = home else { continue };
                let copy = log.put_parked(&mut self.state, tensor, role, (row.form, row.size, row.block));
                if let Some(row) = self.stores.rows.get_mut(&at) {
                    row.logged = Some(copy);
                }
            }
        }
        self.log = Some(log);
        Ok(())
    }

    /// Ends the log: everything the program holds is brought back, and is a result of the recorded step.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back; [`Fault::BadCall`] if there is no log.
    pub fn end_step(&mut self) -> Result<Recorded, Fault> {
        let held = self.restore_held()?;
        debug_assert!(self.state.is_counted());
        self.discard_all();
        let log = self.log.take().ok_or_else(|| Fault::BadCall("there is no step to end".to_owned()))?;
        let copies: Vec<(ValueId, Form)> = held.iter().filter_map(|&tensor| self.home_of(tensor)).collect();
        let results = held.iter().filter_map(|&tensor| self.state.tensor(tensor).value.get());
        let stall_ns = self.stats.stall_ns.saturating_sub(log.stalled);
        let recorded = log.end(results.collect(), &copies, self.allocator.addresses().is_some());
        let recorded = recorded.map_err(|error| Fault::BadCall(error.to_string()))?;
        Ok(Recorded { stall_ns, ..recorded })
    }

    /// The value that `tensor` is, and where there is a copy of it that the log knows.
    fn home_of(&self, tensor: u32) -> Option<(ValueId, Form)> {
        let value = self.state.tensor(tensor).value.get()?;
        let rows = self.stores.of(self.state.storage_of(tensor));
        let mut rows = rows.iter().filter_map(|&at| self.stores.row(at)).filter(|row| row.logged.is_some());
        rows.find(|row| matches!(row.form, Form::Tier(_)) || row.home).map(|row| (value, row.form))
    }

    /// Brings back what is held and not parked. Where there is not room for all of that together, what is back is to be computed
    /// no more, and may be parked.
    pub(crate) fn restore_held(&mut self) -> Result<Vec<u32>, Fault> {
        if self.encodes_homes {
            self.follow_to_end()?;
        }
        let all = 0..self.state.tensors.len();
        let held: Vec<u32> = all
            .filter(|&tensor| self.state.tensors[tensor].alive && self.state.tensors[tensor].held > 0)
            .map(next_index)
            .collect();
        match self.restore_together(&held) {
            Err(Fault::NoRoom(_)) if self.parks() => {}
            outcome => return outcome.map(|()| held),
        }
        for &tensor in &held {
            if !self.is_parked(TensorId(tensor)) {
                self.define(tensor)?;
                self.keep(self.state.storage_of(tensor));
            }
        }
        self.forget_producers();
        Ok(held)
    }

    /// Brings back and locks what is held and not parked, then unlocks it.
    fn restore_together(&mut self, held: &[u32]) -> Result<(), Fault> {
        let mut locked = Vec::new();
        let mut outcome = Ok(());
        for &tensor in held {
            if self.is_parked(TensorId(tensor)) {
                continue;
            }
            outcome = self.define(tensor);
            if outcome.is_err() {
                break;
            }
            let storage = self.state.storage_of(tensor);
            self.lock(storage);
            locked.push(storage);
        }
        for storage in locked {
            self.unlock(storage);
        }
        outcome
    }
}
