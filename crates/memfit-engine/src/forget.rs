//! Giving up: releases, real deletion, banishment, and versions that are overwritten for good.

use rustc_hash::FxHashSet;

use crate::call::{Dealloc, Output, TensorId};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;
use crate::ids::StorageId;
use crate::maybe::Maybe;

impl<H: Host> Engine<'_, H> {
    /// The program has given up its last reference to `storage`.
    pub(crate) fn released(&mut self, storage: u32) {
        match self.settings.dealloc {
            // The plan says when.
            _ if self.is_guided() => {}
            Dealloc::EvictUnneeded | Dealloc::EagerEvict => {
                if self.state.storage(storage).in_pool {
                    if !self.serves(storage) {
                        self.evict(storage);
                    }
                } else if self.settings.forget && self.is_dear(storage) {
                    self.banish(storage);
                }
            }
            Dealloc::Ignore => {}
            Dealloc::Banish => {
                if !self.banish(storage) {
                    self.waiting.push(storage);
                }
            }
        }
    }

    /// Whether a source that the program has given up costs more than what it serves: all that is computed from it is
    /// there, and no larger. What was overwritten with it does not count: those bytes are there in any case. So the
    /// gradients of past steps don't stay for the sake of the optimizer's state.
    fn is_dear(&self, storage: u32) -> bool {
        let this = self.state.storage(storage);
        if this.evictable || !this.resident || this.locks > 0 || this.size == 0 {
            return false;
        }
        let mut served = 0;
        for child in self.state.children(storage) {
            let in_place = self.is_in_place(child);
            if !self.is_safe(child) {
                return false;
            }
            let child = self.state.storage(child);
            served += if child.evictable && !in_place { child.size } else { 0 };
        }
        served <= this.size
    }

    /// Whether `storage` is made by overwriting another.
    fn is_in_place(&self, storage: u32) -> bool {
        let root = self.state.storage(storage).root();
        let Some(producer) = self.state.tensor(root).record.get() else { return false };
        let (this, outputs) = (self.state.record(producer), &self.state.class(producer).outputs);
        let mut made = this.writes.iter().zip(outputs);
        made.any(|(written, output)| written.is(root) && matches!(output, Output::InPlace(_)))
    }

    /// A plan has no more use for `storage`: once the program has none either, frees it for good if that can't be computed
    /// again. What can only be computed from it stays for good where it is there, and is lost where it's gone and nobody holds
    /// it. False if that can't be yet.
    /// Where the plan moves values, all that is computed from it must be there.
    pub(crate) fn forgo(&mut self, storage: u32, moves: bool) -> bool {
        let this = self.state.storage(storage);
        if !self.settings.forget || !this.resident || this.evictable {
            return true;
        }
        // Between a repetition and another that overwrites what it made, that could not be made again.
        let passes = |child: u32| {
            self.state.storage(child).resident
                && self.state.children(child).any(|grandchild| self.is_in_place(grandchild))
        };
        if this.held > 0 || this.locks > 0 || self.state.children(storage).any(passes) {
            return false;
        }
        if moves {
            return self.banish(storage);
        }
        let size = this.size;
        let Some(lost) = self.lost_with(storage) else { return false };
        let mut kept: Vec<u32> =
            [storage].iter().chain(&lost).flat_map(|&gone| self.state.children(gone)).collect();
        kept.retain(|&child| self.state.storage(child).resident);
        // What would stay for its sake may take more room than it: a host may be late to say what it has given up.
        let can_go = kept.iter().map(|&child| self.state.storage(child)).filter(|child| child.evictable);
        if can_go.map(|child| child.size).sum::<u64>() > size {
            return false;
        }
        for child in kept {
            self.keep(child);
        }
        for lost in lost {
            self.state.storages[lost as usize].evictable = false;
        }
        self.evict(storage);
        true
    }

    /// What is gone, and can't be computed again without `storage`; `None` if the program holds any of it, or if there are
    /// copies of what is computed from it: they may be lost yet.
    fn lost_with(&self, storage: u32) -> Option<Vec<u32>> {
        let (mut lost, mut at) = (vec![storage], 0);
        while let Some(&gone) = lost.get(at) {
            for child in self.state.children(gone) {
                let this = self.state.storage(child);
                if self.stores.has(child) || (!this.resident && (this.held > 0 || this.locks > 0)) {
                    return None;
                }
                if !this.resident && !lost.contains(&child) {
                    lost.push(child);
                }
            }
            at += 1;
        }
        lost.swap_remove(0);
        Some(lost)
    }

    /// Frees `storage` for good and keeps its children for good, unless something evicted depends on it.
    fn banish(&mut self, storage: u32) -> bool {
        let children: Vec<u32> = self.state.children(storage).collect();
        if !self.stores.is_empty() {
            children.iter().for_each(|&child| self.finish(child));
        }
        let this = self.state.storage(storage);
        if this.locks > 0 || !children.iter().all(|&child| self.is_safe(child)) {
            return false;
        }
        for child in children {
            self.keep(child);
        }
        if self.state.storage(storage).resident {
            self.evict(storage);
        }
        self.give_up_copies(storage);
        true
    }

    pub(crate) fn banish_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for storage in waiting {
            let this = self.state.storage(storage);
            if this.alive && this.held == 0 && !self.banish(storage) {
                self.waiting.push(storage);
            }
        }
    }

    /// `storage` can't be computed again from now on.
    pub(crate) fn keep(&mut self, storage: u32) {
        self.state.leave_pool(storage);
        if std::mem::take(&mut self.state.storages[storage as usize].evictable) {
            self.host.keep(StorageId(storage));
            self.fixed.push(storage);
        }
    }

    /// Whether something may have to be computed again from `tensor`, or from a view of its storage.
    #[must_use]
    pub fn is_needed(&self, tensor: TensorId) -> bool {
        let this = self.state.tensors.get(tensor.index()).filter(|tensor| tensor.alive);
        this.is_some_and(|this| {
            let tensors = &self.state.storage(this.storage).tensors;
            tensors.iter().any(|&tensor| self.state.tensor(tensor).users > 0)
        })
    }

    /// What can't go any more needs no producer, unless that makes something else that can.
    pub(crate) fn forget_producers(&mut self) {
        while let Some(storage) = self.fixed.pop() {
            if !self.settings.forget || !self.state.storage(storage).alive {
                continue;
            }
            for at in 0..self.state.storage(storage).tensors.len() {
                let Some(&tensor) = self.state.storage(storage).tensors.get(at) else { break };
                // A view whose op has not run since its bytes came back still needs its producer.
                if let Some(producer) = self.state.tensor(tensor).record.get()
                    && !self.makes_evictable(producer)
                    && self.has_made(producer)
                {
                    self.detach(producer);
                }
            }
        }
    }

    pub(crate) fn makes_evictable(&self, record: u32) -> bool {
        let evictable = |made| self.state.storage(self.state.storage_of(made)).evictable;
        self.state.record(record).made().any(evictable)
    }

    /// Whether all that `record` makes is there, as far as it's still in the tables.
    fn has_made(&self, record: u32) -> bool {
        self.state.record(record).made().all(|made| self.is_had(made))
    }

    /// Forgets `tensor`, and whatever else only it was kept for, if nobody can need it.
    pub(crate) fn collect(&mut self, tensor: u32) {
        let mut work = std::mem::take(&mut self.scratch.queue);
        work.push(tensor);
        self.collect_all(&mut work);
        self.scratch.queue = work;
    }

    /// [`Engine::collect`] for each of `work`, the last one first.
    fn collect_all(&mut self, work: &mut Vec<u32>) {
        while let Some(tensor) = work.pop() {
            let this = self.state.tensor(tensor);
            let storage = this.storage;
            let root = self.state.storage(storage).root() == tensor;
            let others = self.state.storage(storage).tensors.len() > 1;
            if !this.alive || this.held > 0 || this.users > 0 || (root && others) {
                continue;
            }
            let record = this.record;
            if !others && self.state.storage(storage).resident {
                self.evict(storage);
            }
            self.state.tensors[tensor as usize].alive = false;
            self.state.storages[storage as usize].tensors.retain(|other| *other != tensor);
            if self.state.storage(storage).tensors.is_empty() {
                self.remove_storage(storage);
            } else {
                work.push(self.state.storage(storage).root());
            }
            self.state.free_tensors.push(tensor);
            let Some(record) = record.get() else { continue };
            let writes = &mut self.state.records[record as usize].writes;
            let gone = writes.iter_mut().filter(|written| written.is(tensor));
            gone.for_each(|written| *written = Maybe::NONE);
            if writes.iter().all(|written| written.is_none()) {
                self.close(record, work);
            }
        }
    }

    /// A storage without tensors leaves the tables.
    fn remove_storage(&mut self, storage: u32) {
        self.give_up_copies(storage);
        self.pins.remove(&storage);
        self.waiting.retain(|&other| other != storage);
        self.state.storages[storage as usize].alive = false;
        self.state.free_storages.push(storage);
    }

    /// A record leaves the tables; its inputs are put on `work`.
    fn close(&mut self, record: u32, work: &mut Vec<u32>) {
        let this = &mut self.state.records[record as usize];
        let alive = std::mem::take(&mut this.alive);
        debug_assert!(alive, "a row is given back once");
        let (reads, class, time) = (std::mem::take(&mut this.reads), this.class, this.time);
        for output in &self.state.classes.get(class).outputs {
            if let Output::View(of) = *output {
                let storage = self.state.storage_of(reads[of]) as usize;
                let cost = &mut self.state.storages[storage].cost;
                *cost = cost.saturating_sub(time);
            }
        }
        for &read in &reads {
            self.state.tensors[read as usize].users -= 1;
            work.push(read);
        }
        self.state.classes.give_back(class);
        self.state.generators.remove(&record);
        self.state.free_records.push(record);
        self.host.close(record);
    }

    /// What `record` makes can't be made again: it needs its inputs no more.
    pub(crate) fn detach(&mut self, record: u32) {
        for at in 0..self.state.record(record).writes.len() {
            if let Some(written) = self.state.record(record).writes[at].get() {
                self.state.tensors[written as usize].record = Maybe::NONE;
            }
        }
        self.close_and_collect(record);
    }

    /// A record leaves the tables, and so does what only it needed.
    fn close_and_collect(&mut self, record: u32) {
        let mut work = std::mem::take(&mut self.scratch.queue);
        self.close(record, &mut work);
        self.collect_all(&mut work);
        self.scratch.queue = work;
    }

    /// [`Engine::detach`], if all that `record` makes is there to stay. True if it went.
    fn detach_if_fixed(&mut self, record: u32) -> bool {
        let stays = |made: u32| {
            let this = self.state.tensor(made);
            self.is_had(made) && !self.state.storage(this.storage).evictable
        };
        let fixed = self.state.record(record).made().all(stays);
        if fixed {
            self.detach(record);
        }
        fixed
    }

    /// Detaches the records of the tensors of `storage`, which is kept, as far as nothing else needs them.
    fn detach_fixed(&mut self, storage: u32) {
        let mut at = 0;
        while let Some(&tensor) = self.state.storage(storage).tensors.get(at) {
            let producer = self.state.tensor(tensor).record.get();
            let went = producer.is_some_and(|producer| self.detach_if_fixed(producer));
            at = if went { 0 } else { at + 1 };
        }
    }

    /// Takes back a call that failed.
    pub(crate) fn undo_call(&mut self, record: u32) {
        for at in 0..self.state.record(record).writes.len() {
            let Some(tensor) = self.state.record(record).writes[at].get() else { continue };
            self.state.tensors[tensor as usize].held = 0;
            let storage = self.state.storage_of(tensor);
            self.state.let_go(storage);
        }
        if self.state.class(record).outputs.is_empty() {
            self.close_and_collect(record);
            return;
        }
        // From the last: the record goes with the last of them that is left.
        for at in (0..self.state.record(record).writes.len()).rev() {
            if let Some(tensor) = self.state.record(record).writes[at].get() {
                self.collect(tensor);
            }
        }
    }

    /// Before the first run of `record`: versions that it overwrites for good must not be needed any more. What is
    /// computed from them is brought back, if it is needed, and stays.
    pub(crate) fn overwrite(&mut self, record: u32) -> Result<(), Fault> {
        for at in 0..self.state.class(record).outputs.len() {
            if let Output::InPlace(of) = self.state.class(record).outputs[at] {
                let storage = self.state.storage_of(self.state.record(record).reads[of]);
                if !self.state.storage(storage).evictable {
                    self.keep_made_from(storage, Some(record))?;
                    for at in 0..self.state.record(record).writes.len() {
                        if let Some(made) = self.state.record(record).writes[at].get() {
                            self.keep(self.state.storage_of(made));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The content of `tensor` may change from outside from now on: what is computed from it is brought back, if it is
    /// held, and stays; and so does `tensor` itself.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back.
    pub fn expose(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.restore(tensor)?;
        self.stay(tensor);
        self.ground(tensor)
    }

    /// An op is about to overwrite `tensor` for good: as [`Engine::expose`], but nobody outside has its address.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back.
    pub fn ground(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.restore(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        self.discard_all_of(storage);
        self.keep(storage);
        let lost = self.keep_made_from(storage, None);
        self.forget_producers();
        lost
    }

    /// The content of `tensor` has changed behind the engine's back: it stays from now on, and so does what was computed
    /// from it before, as far as that is there. What is gone is not brought back; that the host must refuse.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn spoil(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        self.discard_all_of(storage);
        self.keep(storage);
        self.fix(storage);
        let (mut work, mut seen) = (vec![storage], FxHashSet::from_iter([storage]));
        while let Some(spoilt) = work.pop() {
            let children: Vec<u32> = self.state.children(spoilt).collect();
            for child in children {
                self.finish(child);
                if self.is_safe(child) {
                    self.keep(child);
                } else if seen.insert(child) {
                    work.push(child);
                }
            }
        }
        self.forget_producers();
        Ok(())
    }

    /// Whether overwriting `tensor` keeps in place, or brings back, something that the program holds. Who learns late of what the
    /// program has given up looks for that before.
    #[must_use]
    pub fn is_held_back(&self, tensor: TensorId) -> bool {
        let Some(this) = self.state.tensors.get(tensor.index()).filter(|this| this.alive) else {
            return false;
        };
        if self.state.storage(this.storage).evictable {
            return false;
        }
        let (mut work, mut seen) = (vec![this.storage], FxHashSet::from_iter([this.storage]));
        while let Some(lost) = work.pop() {
            for child in self.state.children(lost) {
                let this = self.state.storage(child);
                if this.evictable && this.held > 0 {
                    return true;
                }
                if !self.is_safe(child) && seen.insert(child) {
                    work.push(child);
                }
            }
        }
        false
    }

    /// What is computed from `storage` can't be computed again. `by` is the record that overwrites it, if any.
    fn keep_made_from(&mut self, storage: u32, by: Option<u32>) -> Result<(), Fault> {
        self.make_all_whole();
        let mut work = vec![storage];
        let mut seen = FxHashSet::from_iter([storage]);
        let (mut kept, mut children, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(lost) = work.pop() {
            children.clear();
            children.extend(self.state.children(lost));
            for child in children.drain(..) {
                self.finish(child);
                if self.is_safe(child) {
                    self.keep(child);
                    kept.push(child);
                } else if !by.is_some_and(|by| self.made_by(child, by)) {
                    gone.push(child);
                }
            }
            for child in gone.drain(..) {
                let this = self.state.storage(child);
                if this.held > 0 {
                    for &tensor in &this.tensors.clone() {
                        if self.state.tensor(tensor).held > 0 {
                            self.define(tensor)?;
                        }
                    }
                    self.keep(child);
                    kept.push(child);
                } else if seen.insert(child) {
                    work.push(child);
                }
            }
        }
        // What is kept needs its past no more: the sources that only it was computed from may go.
        if self.settings.forget {
            for child in kept {
                if self.state.storage(child).alive && !by.is_some_and(|by| self.made_by(child, by)) {
                    self.detach_fixed(child);
                }
            }
        }
        Ok(())
    }

    fn made_by(&self, storage: u32, record: u32) -> bool {
        self.state.record(record).made().any(|made| self.state.storage_of(made) == storage)
    }
}
