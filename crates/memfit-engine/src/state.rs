//! The tables: tensors, storages, records of ops, and the pool of what can be evicted.

use memfit_ir::{BufferId, Bytes, Effect, Need, OpId, Role, ValueId};
use smallvec::SmallVec;

use crate::call::Output;
use crate::maybe::Maybe;
use crate::table::{Table, push, spilled};

/// The index of the next element of a list.
pub(crate) fn next_index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

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
    pub(crate) serial: u64,
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
    /// Whether it's in the list of what the program has given up, and the bytes that are counted there.
    pub(crate) listed: bool,
    pub(crate) past: u64,
    /// Σ time of the distinct ops that make its tensors.
    pub(crate) cost: u64,
    pub(crate) last_access: u64,
    /// How often it came back.
    pub(crate) recomputes: u32,
    pub(crate) root: u32,
    /// What it is to the step, for what no op makes.
    pub(crate) role: Role,
    /// Its tensors, the root first.
    pub(crate) tensors: SmallVec<[u32; 4]>,
    pub(crate) parents: SmallVec<[Link; 2]>,
    pub(crate) children: SmallVec<[Link; 2]>,
    generation: u32,
    before: Maybe<u32>,
    after: Maybe<u32>,
}

/// How to run an op again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) kind: u32,
    pub(crate) reads: SmallVec<[u32; 4]>,
    /// The tensors it makes; none where one is gone for good.
    pub(crate) writes: SmallVec<[Maybe<u32>; 4]>,
    pub(crate) outputs: SmallVec<[Output; 1]>,
    pub(crate) time: u64,
    pub(crate) workspace: u64,
    pub(crate) effect: Effect,
    /// What it needs of each of its reads, if that is not everything.
    pub(crate) needs: Option<Box<[Need]>>,
    pub(crate) runs: u32,
    /// State of the host's generator before the first run.
    pub(crate) generator: Option<u64>,
    /// Its name in the log.
    pub(crate) op: Maybe<OpId>,
    /// The number of the call.
    pub(crate) call: u64,
    /// Whether it's in the tables.
    pub(crate) alive: bool,
}

impl Record {
    /// The tensors that it makes, without those that are gone for good.
    pub(crate) fn made(&self) -> impl Iterator<Item = u32> {
        self.writes.iter().filter_map(|written| written.get())
    }

    /// Bytes that must be free to run it.
    pub(crate) fn need(&self) -> u64 {
        let sizes = self.outputs.iter().map(|output| output.bytes().0);
        sizes.fold(self.workspace, u64::saturating_add)
    }
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) tensors: Table<Tensor>,
    pub(crate) storages: Table<Storage>,
    pub(crate) records: Table<Record>,
    pub(crate) free_tensors: Vec<u32>,
    pub(crate) free_storages: Vec<u32>,
    pub(crate) free_records: Vec<u32>,
    /// The pool: resident, unlocked, evictable; in the order in which they entered.
    first: Maybe<u32>,
    last: Maybe<u32>,
    pub(crate) pool_len: usize,
    pub(crate) pool_bytes: u64,
    /// The way to where storages are stored for room, if that is done.
    pub(crate) link: Option<memfit_ir::Link>,
    /// The clock.
    pub(crate) now: u64,
    /// The number of the call that is being served.
    pub(crate) call: u64,
    serial: u64,
}

impl State {
    /// Bytes of the tables, with room that is kept for rows to come.
    pub(crate) fn bytes(&self) -> usize {
        let lists = |row: &Storage| spilled(&row.tensors) + spilled(&row.parents) + spilled(&row.children);
        let of_storages: usize = self.storages.iter().map(lists).sum();
        let lists = |row: &Record| spilled(&row.reads) + spilled(&row.writes) + spilled(&row.outputs);
        let of_records: usize = self.records.iter().map(lists).sum();
        let free =
            self.free_tensors.capacity() + self.free_storages.capacity() + self.free_records.capacity();
        self.tensors.bytes()
            + self.storages.bytes()
            + self.records.bytes()
            + of_storages
            + of_records
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
        self.serial += 1;
        let serial = self.serial;
        let record = record.into();
        let tensor = Tensor { storage, record, held: 1, alive: true, serial, ..Tensor::default() };
        let index = match self.free_tensors.pop() {
            Some(index) => {
                self.tensors[index as usize] = tensor;
                index
            }
            None => {
                self.tensors.push(tensor);
                next_index(self.tensors.len() - 1)
            }
        };
        let storage = &mut self.storages[storage as usize];
        storage.held += 1;
        if storage.tensors.is_empty() {
            storage.root = index;
        }
        push(&mut storage.tensors, index);
        index
    }

    /// A row for a record; what was in it is of no use any more.
    pub(crate) fn new_record(&mut self) -> u32 {
        if let Some(index) = self.free_records.pop() {
            return index;
        }
        self.records.push(Record::default());
        next_index(self.records.len() - 1)
    }

    /// Notes that `child` is computed from `parent`.
    pub(crate) fn link(&mut self, parent: u32, child: u32) {
        if parent == child {
            return;
        }
        let down = Link { storage: child, generation: self.storage(child).generation };
        let up = Link { storage: parent, generation: self.storage(parent).generation };
        let parents = &mut self.storages[child as usize].parents;
        if parents.contains(&up) {
            return;
        }
        push(parents, up);
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

    /// What `storage` is computed from.
    pub(crate) fn parents(&self, storage: u32) -> impl Iterator<Item = u32> + '_ {
        self.current(&self.storage(storage).parents)
    }

    /// What is computed from `storage`.
    pub(crate) fn children(&self, storage: u32) -> impl Iterator<Item = u32> + '_ {
        self.current(&self.storage(storage).children)
    }

    fn current<'a>(&'a self, links: &'a [Link]) -> impl Iterator<Item = u32> + 'a {
        links.iter().filter(|link| self.is_current(**link)).map(|link| link.storage)
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
