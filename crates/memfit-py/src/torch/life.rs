//! Who is alive: storages that the program has given up, and those that the host holds beyond that.

use std::cmp::Reverse;
use std::sync::PoisonError;

use memfit::engine::{Engine, TensorId};
use memfit::ir::Bytes;
use pyo3::prelude::*;

use super::dispatch::Inner;
use super::ops;
use super::storages::{Owner, Token};

/// When a storage that the host holds is looked at next: whether the program has given it up. Op, address, token,
/// interval.
pub(super) type Look = Reverse<(u64, usize, Token, u64)>;

/// A storage's first look comes after so many ops, and the interval doubles up to the last; or, where many storages are held,
/// to so many ops that there is a look or two at each.
const FIRST_LOOK: u64 = 16;
const LAST_LOOK: u64 = 256;

impl Inner {
    /// A recipe reads the storage at `address`: what can't be computed again, or what a plan reads again, must outlive the
    /// program's interest.
    pub(super) fn outlive(&mut self, py: Python<'_>, address: usize) {
        let Some(entry) = self.entries.get(&address) else { return };
        if self.engine.is_evictable(entry.tensor) && !self.engine.is_read_again(entry.tensor) {
            return;
        }
        let Some(storage) = self.engine.storage_of(entry.tensor) else { return };
        let slot = self.engine.host.slots.at(storage);
        if matches!(slot.owner, Owner::Program(_)) {
            slot.hold(py);
            self.looks.push(Reverse((self.count + FIRST_LOOK, address, entry.token, FIRST_LOOK)));
        }
    }

    /// Gives up what has died since the last time; true if there was something.
    pub(super) fn drain(&mut self) -> PyResult<bool> {
        let dead = {
            let mut dead = self.engine.host.dead.lock().unwrap_or_else(PoisonError::into_inner);
            if dead.is_empty() {
                return Ok(false);
            }
            std::mem::take(&mut *dead)
        };
        let died = dead.into_iter().filter_map(|(address, token)| {
            let entry = self.entries.get(&address).filter(|entry| entry.token == token)?;
            Some((address, entry.tensor))
        });
        let died: Vec<(usize, TensorId)> = died.collect();
        Python::attach(|py| {
            // The bytes of all have gone, before the engine draws conclusions from the death of one.
            for &(_, tensor) in &died {
                if self.engine.is_evictable(tensor) {
                    self.engine.drop(tensor).map_err(|fault| self.fault(py, fault))?;
                }
            }
            died.iter().try_for_each(|&(address, tensor)| self.forget(py, address, tensor))
        })?;
        Ok(true)
    }

    /// The program holds the storage at `address` no more.
    pub(super) fn forget(&mut self, py: Python<'_>, address: usize, tensor: TensorId) -> PyResult<()> {
        let copy = self.entries.remove(&address).and_then(|entry| entry.copy);
        self.give_up(py, copy)?;
        if let Some(storage) = self.engine.storage_of(tensor) {
            let slot = self.engine.host.slots.at(storage);
            if let Owner::Both(storage) = std::mem::take(&mut slot.owner)
                && !slot.hollow
            {
                slot.own = Some(storage);
            }
            slot.hollow = false;
        }
        self.engine.del(tensor).map_err(|fault| self.fault(py, fault))
    }

    /// Notes the storages that the host has come to hold. To be called before they change hands.
    pub(super) fn look_later(&mut self) {
        for storage in std::mem::take(&mut self.engine.host.newly_held) {
            let Owner::Both(held) = &self.engine.host.slots.at(storage).owner else { continue };
            let address = held.as_ptr().addr();
            if let Some(entry) = self.entries.get(&address) {
                self.looks.push(Reverse((self.count + FIRST_LOOK, address, entry.token, FIRST_LOOK)));
            }
        }
    }

    /// Looks at those storages whose turn it is.
    pub(super) fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        while let Some(&Reverse((due, address, token, interval))) = self.looks.peek() {
            if due > self.count {
                break;
            }
            self.looks.pop();
            if !self.look_at(py, address, token)? {
                let interval = (interval * 2).min(LAST_LOOK.max(self.looks.len() as u64 / 2));
                self.looks.push(Reverse((self.count + interval, address, token, interval)));
            }
        }
        Ok(())
    }

    /// Before an op that needs `bytes`: rather than to evict for it, to look who has gone, unless that was done lately.
    pub(super) fn look_for(&mut self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let stats = self.engine.stats();
        let short = stats.used.0.saturating_add(bytes) > self.engine.settings().budget.0;
        if short && self.count - self.looked > self.looks.len() as u64 {
            self.look_at_all(py)?;
        }
        Ok(())
    }

    /// Before an op that overwrites `written`: what was computed from them and is held would be brought back, and stay from then
    /// on, so it is looked who has gone.
    pub(super) fn look_before_writing(
        &mut self,
        py: Python<'_>,
        mut written: impl Iterator<Item = TensorId>,
    ) -> PyResult<()> {
        if !self.looks.is_empty() && written.any(|tensor| self.engine.is_held_back(tensor)) {
            self.look_at_all(py)?;
        }
        Ok(())
    }

    /// Cuts off what costs more than it serves.
    pub(super) fn cut_past(&mut self, py: Python<'_>) -> PyResult<()> {
        self.retry(py, Engine::cut_past)
    }

    /// Looks at all storages that the host holds.
    pub(super) fn look_at_all(&mut self, py: Python<'_>) -> PyResult<()> {
        self.drain()?;
        self.look_later();
        self.looked = self.count;
        for look in std::mem::take(&mut self.looks).into_vec() {
            let Reverse((_, address, token, _)) = look;
            if !self.look_at(py, address, token)? {
                self.looks.push(look);
            }
        }
        // What was let go may have had no other owner.
        self.drain().map(|_| ())
    }

    /// True if the storage need not be looked at again.
    pub(super) fn look_at(&mut self, py: Python<'_>, address: usize, token: Token) -> PyResult<bool> {
        let Some(entry) = self.entries.get(&address).filter(|entry| entry.token == token) else {
            return Ok(true);
        };
        let tensor = entry.tensor;
        let Some(storage) = self.engine.storage_of(tensor) else { return Ok(true) };
        let needed = self.engine.is_needed(tensor) || self.engine.is_read_again(tensor);
        let host = &mut self.engine.host;
        if !needed {
            // Nothing is lost with its bytes any more, so its death will be noticed.
            let dead = std::sync::Arc::clone(&host.dead);
            return host.slots.at(storage).let_go(py, token, &dead).map(|()| true);
        }
        if !host.slots.at(storage).is_unreferenced(py, &host.glue)? {
            return Ok(false);
        }
        self.forget(py, address, tensor)?;
        Ok(true)
    }

    /// The storage at `address` may change without an op from now on: what reads it is kept.
    pub(super) fn expose(&mut self, address: usize) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.exposed = true;
            self.engine.stay(entry.tensor);
        }
    }

    /// Brings back every storage that somebody can reach, whatever it takes, and lets go of all.
    pub(super) fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let looked = self.look_at_all(py);
        self.engine.lift_budget();
        ops::leave_known(std::mem::take(&mut self.ops));
        looked.and(self.restore_all(py))
    }

    /// Brings back all that somebody can reach, and has no budget until a step begins with one.
    pub(super) fn come_home(&mut self, py: Python<'_>) -> PyResult<()> {
        self.look_at_all(py)?;
        self.retry(py, |engine| engine.set_budget(Bytes(u64::MAX / 4)))?;
        self.restore_all(py)?;
        // Nothing is kept here to compute from: the other budget would not see it.
        for (token, address) in self.live() {
            if let Some(entry) = self.entries.get(&address).filter(|entry| entry.token == token) {
                let tensor = entry.tensor;
                self.retry(py, |engine| engine.settle_down(tensor))?;
            }
        }
        // What is written while nobody looks on, no copy has.
        self.engine.forget_spare_copies();
        self.look_at_all(py)
    }

    /// Storages may be elsewhere, with the same bytes in them: another budget has moved them.
    pub(super) fn find_again(&mut self, py: Python<'_>) {
        for (_, address) in self.live() {
            let entry = self.entries.get(&address);
            if let Some(storage) = entry.and_then(|entry| self.engine.storage_of(entry.tensor)) {
                let host = &mut self.engine.host;
                host.slots.at(storage).find_again(py, &host.glue);
            }
        }
    }

    fn restore_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        for (token, address) in self.live() {
            // What has died while others came back is not missed.
            let Some(entry) = self.entries.get(&address).filter(|entry| entry.token == token) else {
                continue;
            };
            let tensor = entry.tensor;
            if let Err(error) = self.retry(py, |engine| engine.restore(tensor)) {
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Tokens and addresses of the storages in the table, in the order in which they came in.
    fn live(&self) -> Vec<(Token, usize)> {
        let mut live: Vec<(Token, usize)> =
            self.entries.iter().map(|(&address, entry)| (entry.token, address)).collect();
        live.sort_unstable();
        live
    }
}
