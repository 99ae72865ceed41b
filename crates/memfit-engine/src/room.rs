//! What there is no room for: found out before an op runs, and told.

use memfit_ir::Bytes;

use crate::call::TensorId;
use crate::engine::Engine;
use crate::fault::{Fault, Holding, NoRoom, Why};
use crate::host::Host;

impl<H: Host> Engine<'_, H> {
    /// Before anything runs: each op that will have to run must fit beside what can't go.
    pub(crate) fn check_working_sets(&mut self, record: u32) -> Result<(), Fault> {
        let fixed = self.stats.used.saturating_sub(Bytes(self.state.pool_bytes));
        let fixed = fixed.saturating_sub(self.parkable());
        let (mut work, mut seen) = (vec![record], std::collections::BTreeSet::from([record]));
        let mut storages: Vec<u32> = Vec::new();
        while let Some(record) = work.pop() {
            storages.clear();
            for &read in &self.state.record(record).reads {
                let this = self.state.tensor(read);
                storages.push(this.storage);
                if let Some(record) = this.record.get().filter(|_| !self.is_had(read))
                    && seen.insert(record)
                {
                    work.push(record);
                }
            }
            storages.sort_unstable();
            storages.dedup();
            let moving = |storage: &&u32| {
                let this = self.state.storage(**storage);
                this.in_pool || !this.resident || (self.parks() && self.may_park(**storage))
            };
            let inputs: Bytes =
                storages.iter().filter(moving).map(|&storage| Bytes(self.state.storage(storage).size)).sum();
            let need = self.need(record);
            let enough = fixed + inputs + Bytes(need);
            if enough > self.settings.budget {
                let op = self.kinds[self.state.class(record).kind as usize].clone();
                return Err(self.no_room(op, enough, need));
            }
        }
        Ok(())
    }

    /// That `op` asks for `need` bytes, which would do in a budget of `enough`; with what can't go, and why.
    pub fn no_room(&self, op: String, enough: Bytes, need: u64) -> Fault {
        let mut holding = Vec::new();
        for (index, storage) in self.state.storages.iter().enumerate() {
            if !storage.resident || storage.size == 0 || storage.in_pool {
                continue;
            }
            let pinned = self.pins.contains_key(&crate::table::next_index(index));
            let why = match (pinned, storage.evictable) {
                (true, _) => Why::Pinned,
                (false, false) => Why::Source,
                (false, true) => Why::Operand,
            };
            holding.push(Holding { tensor: TensorId(storage.root()), size: Bytes(storage.size), why });
        }
        let (asked, budget) = (Bytes(need), self.settings.budget);
        Fault::NoRoom(Box::new(NoRoom { op, asked, holding, budget, enough }))
    }
}
