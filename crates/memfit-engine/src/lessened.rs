//! Storages of which a codec has left less than their values: signs, say.
//!
//! Such a storage is there for ops that ask for no more than is left of it, in the step whose plan says so. To all others it is as good
//! as gone: what is left goes, and the value is computed again. It never stays for good, and no copy of it claims to be more.

use memfit_ir::{Compute, Need, OpId};

use crate::classes::Class;
use crate::engine::Engine;
use crate::guide::Guide;
use crate::host::Host;
use crate::maybe::Maybe;
use crate::state::State;

impl State {
    /// What the op of `record` asks of operand `at`.
    pub(crate) fn asks(&self, record: u32, at: usize) -> Need {
        self.class(record).needs.get(at).copied().unwrap_or_default()
    }
}

impl<H: Host> Engine<'_, H> {
    /// `storage` has been filled with what a codec `keeps` of it.
    pub(crate) fn fill_with(&mut self, storage: u32, keeps: Need) {
        self.state.storages[storage as usize].keeps = keeps;
        if keeps != Need::Value && !self.lessened.contains(&storage) {
            self.lessened.push(storage);
        }
    }

    /// Of `storage` there is no less than its value, or nothing, unless it's locked.
    pub(crate) fn make_whole(&mut self, storage: u32) {
        let this = self.state.storage(storage);
        if this.keeps != Need::Value && this.resident && this.locks == 0 {
            self.evict(storage);
        }
    }

    /// The same of all storages.
    pub(crate) fn make_all_whole(&mut self) {
        for storage in std::mem::take(&mut self.lessened) {
            self.make_whole(storage);
            if self.state.storage(storage).keeps != Need::Value {
                self.lessened.push(storage);
            }
        }
    }

    /// The same of those of which the op of `record` reads more than is left.
    pub(crate) fn make_reads_whole(&mut self, record: u32) {
        for at in 0..self.state.record(record).reads.len() {
            let this = self.state.record(record);
            let storage = self.state.storage_of(this.reads[at]);
            if self.state.storage(storage).keeps < self.state.asks(record, at) {
                self.make_whole(storage);
            }
        }
    }

    /// The plan computes once more what `compute` writes: what codecs have left of it, in other buffers, makes room for it.
    pub(crate) fn make_writes_whole(&mut self, guide: &mut Guide, compute: &Compute) {
        let plan = guide.plan.clone();
        for &value in plan.graph().op(compute.op).writes {
            let tensor = self.tensor_named(guide.tensors[value.index()]);
            let storage = tensor.map(|(_, this)| this.storage);
            if let Some(storage) = storage.filter(|&storage| self.state.storage(storage).keeps != Need::Value)
            {
                guide.holder[value.index()] = Maybe::NONE;
                self.make_whole(storage);
            }
        }
    }

    /// The op of `record` is `op` of the plan, which says what it needs where its call does not.
    pub(crate) fn need_as_planned(&mut self, guide: &Guide, record: u32, op: OpId) {
        let op = guide.plan.graph().op(op);
        let this = &mut self.state.records[record as usize];
        let class = self.state.classes.get(this.class);
        if class.needs.is_empty() && !op.needs.is_empty() {
            let needs = op.needs.iter().take(this.reads.len()).copied().collect();
            let class = Class { needs, ..class.clone() };
            let before = std::mem::replace(&mut this.class, self.state.classes.take(&class));
            self.state.classes.give_back(before);
        }
    }
}
