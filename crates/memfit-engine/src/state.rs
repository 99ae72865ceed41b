//! The tables: tensors, storages, records of ops, and the pool of what can be evicted.

use memfit_ir::{BufferId, Bytes, Need, OpId, Role, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::classes::{Class, Classes};
use crate::few::Few;
use crate::maybe::Maybe;
use crate::table::{Table, next_index, push, spilled};

/// A name of a storage that goes stale when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) storage: u32,
    generation: u32,
}

/// A storage version or a view of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tensor {
    pub(crate) storage: u32,
    /// The record of the op that makes it; none for what can't be made again.
    pub(crate) record: Maybe<u32>,
    /// References of the program.
    pub(crate) held: u32,
    /// Records that read it, each once for each operand.
    pub(crate) users: u32,
    /// Whether its bytes are there and, for a view, its own op has run since they came.
    pub(crate) defined: bool,
    pub(crate) alive: bool,
    /// Tells apart the tensors that have had this number.
    pub(crate) serial: u32,
    /// Names in the log: the value, and the buffer that it is in now.
    pub(crate) value: Maybe<ValueId>,
    pub(crate) buffer: Maybe<BufferId>,
}

/// Bytes with one history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    pub(crate) size: u64,
    /// Where it lies, while it is resident.
    pub(crate) offset: u64,
    /// Sum over its tensors.
    pub(crate) held: u32,
    /// Reasons for which it must stay right now.
    pub(crate) locks: u32,
    pub(crate) resident: bool,
    /// Whether it can be computed again.
    pub(crate) evictable: bool,
    pub(crate) in_pool: bool,
    /// Whether there is a copy of it elsewhere.
    pub(crate) is_stored: bool,
    /// Whether it can't be computed again, and its bytes are in copies alone.
    pub(crate) parked: bool,
    /// Whether its bytes stay where they are: somebody outside may have their address.
    pub(crate) fixed: bool,
    /// What codecs have left of its bytes.
    pub(crate) keeps: Need,
    pub(crate) alive: bool,
    /// Whether it's in the list of what the program has given up, and whether its bytes are counted there.
    pub(crate) listed: bool,
    pub(crate) past: bool,
    /// Σ time of the distinct ops that make its tensors.
    pub(crate) cost: u64,
    pub(crate) last_access: u64,
    /// How often it came back.
    pub(crate) recomputes: u32,
    /// What it is to the step, for what no op makes.
    pub(crate) role: Role,
    /// Its tensors, the root first.
    pub(crate) tensors: Few<u32>,
    /// What is computed from it.
    children: SmallVec<[Link; 2]>,
    generation: u32,
    before: Maybe<u32>,
    after: Maybe<u32>,
}

impl Storage {
    /// The first of its tensors, which is all of it; that of none where it has left the tables.
    pub(crate) fn root(&self) -> u32 {
        self.tensors.first().copied().unwrap_or(u32::MAX)
    }
}

/// How to run an op again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// What it has in common with others: [`State::class`].
    pub(crate) class: u32,
    pub(crate) reads: Few<u32>,
    /// The tensors it makes; none where one is gone for good.
    pub(crate) writes: Few<Maybe<u32>>,
    pub(crate) time: u64,
    pub(crate) workspace: u64,
    pub(crate) runs: u32,
    /// Its name in the log.
    pub(crate) op: Maybe<OpId>,
    /// Whether what it makes is computed from what it reads, and not there for good.
    pub(crate) derives: bool,
    /// Whether it's in the tables.
    pub(crate) alive: bool,
}

impl Record {
    /// The tensors that it makes, without those that are gone for good.
    pub(crate) fn made(&self) -> impl Iterator<Item = u32> {
        self.writes.iter().filter_map(|written| written.get())
    }
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) tensors: Table<Tensor>,
    pub(crate) storages: Table<Storage>,
    pub(crate) records: Table<Record>,
    pub(crate) classes: Classes,
    /// By record, the state of the host's generator before its first run.
    pub(crate) generators: FxHashMap<u32, u64>,
    pub(crate) free_tensors: Vec<u32>,
    pub(crate) free_storages: Vec<u32>,
    pub(crate) free_records: Vec<u32>,
    /// The pool: resident, unlocked, evictable; in the order in which they entered.
    first: Maybe<u32>,
    last: Maybe<u32>,
    pub(crate) pool_len: usize,
    pub(crate) pool_bytes: u64,
    /// Storages that the program holds and that are not resident: gone, parked, or about to be made.
    missing: usize,
    /// The way to where storages are stored for room, if that is done.
    pub(crate) link: Option<memfit_ir::Link>,
    /// The clock.
    pub(crate) now: u64,
    /// The number of the call that is being served.
    pub(crate) call: u64,
}

impl State {
    /// Bytes of the tables, with room that is kept for rows to come.
    pub(crate) fn bytes(&self) -> usize {
        let lists = |row: &Storage| row.tensors.spilled() + spilled(&row.children);
        let of_storages: usize = self.storages.iter().map(lists).sum();
        let lists = |row: &Record| row.reads.spilled() + row.writes.spilled();
        let of_records: usize = self.records.iter().map(lists).sum();
        let free =
            self.free_tensors.capacity() + self.free_storages.capacity() + self.free_records.capacity();
        self.tensors.bytes()
            + self.storages.bytes()
            + self.records.bytes()
            + of_storages
            + of_records
            + self.classes.bytes()
            + 4 * free
    }

    /// Ns after which a storage that is gone is back by itself, once what it is computed from is there.
    pub(crate) fn back(&self, index: u32) -> u64 {
        let this = self.storage(index);
        match self.link.filter(|_| this.is_stored) {
            Some(link) => link.in_time(Bytes(this.size)).0,
            None => this.cost,
        }
    }

    pub(crate) fn storage(&self, index: u32) -> &Storage {
        &self.storages[index as usize]
    }

    pub(crate) fn tensor(&self, index: u32) -> &Tensor {
        &self.tensors[index as usize]
    }

    pub(crate) fn record(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }

    /// What `record` does, whatever it does it to.
    pub(crate) fn class(&self, record: u32) -> &Class {
        self.classes.get(self.record(record).class)
    }

    /// Bytes that must be free to run `record`.
    pub(crate) fn need(&self, record: u32) -> u64 {
        let sizes = self.class(record).outputs.iter().map(|output| output.bytes().0);
        sizes.fold(self.record(record).workspace, u64::saturating_add)
    }

    pub(crate) fn storage_of(&self, tensor: u32) -> u32 {
        self.tensors[tensor as usize].storage
    }

    pub(crate) fn new_storage(&mut self, size: Bytes) -> u32 {
        let fresh = Storage { size: size.0, alive: true, ..Storage::default() };
        let Some(index) = self.free_storages.pop() else {
            self.storages.push(fresh);
            return next_index(self.storages.len() - 1);
        };
        let slot = &mut self.storages[index as usize];
        let generation = slot.generation + 1;
        *slot = Storage { generation, ..fresh };
        index
    }

    pub(crate) fn new_tensor(&mut self, storage: u32, record: Option<u32>) -> u32 {
        let record = record.into();
        let mut tensor = Tensor { storage, record, held: 1, alive: true, ..Tensor::default() };
        let index = match self.free_tensors.pop() {
            Some(index) => {
                tensor.serial = self.tensor(index).serial.wrapping_add(1);
                self.tensors[index as usize] = tensor;
                index
            }
            None => {
                self.tensors.push(tensor);
                next_index(self.tensors.len() - 1)
            }
        };
        self.storages[storage as usize].tensors.push(index);
        self.hold(storage);
        index
    }

    /// The program has one more reference to `storage`.
    pub(crate) fn hold(&mut self, storage: u32) {
        let this = &mut self.storages[storage as usize];
        self.missing += usize::from(this.held == 0 && !this.resident);
        this.held += 1;
    }

    /// The program has one reference less to `storage`; whether it was the last.
    pub(crate) fn let_go(&mut self, storage: u32) -> bool {
        let this = &mut self.storages[storage as usize];
        this.held -= 1;
        self.missing -= usize::from(this.held == 0 && !this.resident);
        this.held == 0
    }

    /// The bytes of `storage` are there, at `offset`.
    pub(crate) fn arrive(&mut self, storage: u32, offset: u64) {
        let this = &mut self.storages[storage as usize];
        self.missing -= usize::from(this.held > 0 && !this.resident);
        (this.resident, this.offset) = (true, offset);
    }

    /// The bytes of `storage` are not there any more.
    pub(crate) fn leave(&mut self, storage: u32) {
        let this = &mut self.storages[storage as usize];
        self.missing += usize::from(this.held > 0 && this.resident);
        (this.resident, this.keeps) = (false, Need::Value);
    }

    /// Whether all that the program holds is resident: then nothing that is gone is needed.
    pub(crate) fn is_all_there(&self) -> bool {
        self.missing == 0
    }

    /// Whether what is held and not resident is counted right: for tests, and slow.
    pub(crate) fn is_counted(&self) -> bool {
        let missing = |row: &&Storage| row.alive && row.held > 0 && !row.resident;
        self.storages.iter().filter(missing).count() == self.missing
    }

    /// A row for a record; what was in it is of no use any more.
    pub(crate) fn new_record(&mut self) -> u32 {
        if let Some(index) = self.free_records.pop() {
            return index;
        }
        self.records.push(Record::default());
        next_index(self.records.len() - 1)
    }

    /// Notes that the storage of `made`, the newest of its tensors, is computed from those that its record reads.
    pub(crate) fn link(&mut self, made: u32) {
        let Tensor { storage: child, record, .. } = *self.tensor(made);
        let Some(record) = record.get() else { return };
        for at in 0..self.record(record).reads.len() {
            let parent = self.storage_of(self.record(record).reads[at]);
            let earlier = &self.record(record).reads[..at];
            let mut others = self.storage(child).tensors.iter().filter(|&&other| other != made);
            let known = earlier.iter().any(|&read| self.storage_of(read) == parent)
                || others.any(|&other| self.sources(other).any(|source| source == parent));
            if parent != child && !known {
                self.link_to(parent, child);
            }
        }
    }

    fn link_to(&mut self, parent: u32, child: u32) {
        let down = Link { storage: child, generation: self.storage(child).generation };
        let children = &mut self.storages[parent as usize].children;
        if children.len() == children.capacity() && children.len() >= 16 {
            // Before the list grows it is cleared of what is gone; and it does grow, unless much was.
            let mut taken = std::mem::take(children);
            taken.retain(|link| self.is_current(*link));
            if taken.len() > taken.capacity() / 2 {
                taken.reserve(taken.len() + 1);
            }
            self.storages[parent as usize].children = taken;
        }
        push(&mut self.storages[parent as usize].children, down);
    }

    fn is_current(&self, link: Link) -> bool {
        let storage = self.storage(link.storage);
        storage.alive && storage.generation == link.generation
    }

    /// The storages that `tensor` is computed from.
    fn sources(&self, tensor: u32) -> impl Iterator<Item = u32> + '_ {
        let record = self.tensor(tensor).record.get().map(|record| self.record(record));
        let reads = record.filter(|record| record.derives).map_or(&[][..], |record| &record.reads);
        reads.iter().map(|&read| self.storage_of(read))
    }

    /// What `storage` is computed from; a storage may come twice.
    pub(crate) fn parents(&self, storage: u32) -> impl Iterator<Item = u32> + '_ {
        let sources = self.storage(storage).tensors.iter().flat_map(|&tensor| self.sources(tensor));
        sources.filter(move |&source| source != storage)
    }

    /// What is computed from `storage`.
    pub(crate) fn children(&self, storage: u32) -> impl Iterator<Item = u32> + '_ {
        self.storage(storage).children.iter().filter(|link| self.is_current(**link)).map(|link| link.storage)
    }

    /// The first of the children of `storage` from number `at` on, which becomes the number of the next.
    pub(crate) fn child(&self, storage: u32, at: &mut usize) -> Option<u32> {
        let rest = self.storage(storage).children.get(*at..)?;
        let found = rest.iter().position(|link| self.is_current(*link))?;
        *at += found + 1;
        Some(rest[found].storage)
    }

    /// The pool, oldest entry first.
    pub(crate) fn pool(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first.get(), |&index| self.storage(index).after.get())
    }

    /// Appends `index` to the pool.
    pub(crate) fn enter_pool(&mut self, index: u32) {
        let last = self.last;
        let storage = &mut self.storages[index as usize];
        if storage.in_pool {
            return;
        }
        storage.in_pool = true;
        (storage.before, storage.after) = (last, Maybe::NONE);
        self.pool_bytes += storage.size;
        self.pool_len += 1;
        match last.get() {
            Some(before) => self.storages[before as usize].after = index.into(),
            None => self.first = index.into(),
        }
        self.last = index.into();
    }

    /// Takes `index` out of the pool.
    pub(crate) fn leave_pool(&mut self, index: u32) {
        let storage = &mut self.storages[index as usize];
        if !storage.in_pool {
            return;
        }
        storage.in_pool = false;
        let (before, after) = (storage.before, storage.after);
        self.pool_bytes -= storage.size;
        self.pool_len -= 1;
        match before.get() {
            Some(before) => self.storages[before as usize].after = after,
            None => self.first = after,
        }
        match after.get() {
            Some(after) => self.storages[after as usize].before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_small() {
        // A step has thousands of them beside its own tensors. Where a row has to grow, this says by how much.
        assert_eq!((size_of::<Tensor>(), size_of::<Storage>(), size_of::<Record>()), (32, 112, 64));
    }
}
