//! Bringing back what is gone: from a copy, or by running its op again, and what that reads before it.

use memfit_ir::Bytes;

use crate::call::{Regeneration, TensorId};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;

/// An op that waits for its inputs.
#[derive(Debug, Default)]
struct Frame {
    record: u32,
    target: Option<u32>,
    /// Inputs that were gone when it began, and how many of them are back.
    missing: Vec<u32>,
    back: usize,
    /// Storages it has locked, each once for each lock.
    locked: Vec<u32>,
    /// Storages it has given up once: it does not do so again, so that all this ends.
    yielded: Vec<u32>,
}

impl<H: Host> Engine<'_, H> {
    /// Runs `record` so that `target`, an output that is gone, is there. None for an op without outputs.
    pub(crate) fn materialise(&mut self, record: u32, target: Option<u32>) -> Result<(), Fault> {
        if !self.lessened.is_empty() {
            self.make_reads_whole(record);
        }
        let whole = self.touch_and_lock(record);
        if whole {
            let fixed = self.stats.used.saturating_sub(Bytes(self.state.pool_bytes));
            let unavoidable = fixed + Bytes(self.need(record));
            self.stats.unavoidable = self.stats.unavoidable.max(unavoidable);
            let ran = self.run(record, target);
            self.unlock_reads(record);
            return ran;
        }
        if self.settings.regeneration == Regeneration::Yielding {
            self.check_working_sets(record)?;
        }
        // Those on the way may ask for more than is left, by when who waits for them has locked it.
        self.make_all_whole();
        self.regenerate(record, target)
    }

    /// Marks all inputs as used; if all are there, locks them and returns true.
    fn touch_and_lock(&mut self, record: u32) -> bool {
        let state = &mut self.state;
        let now = state.now;
        let reads = &state.records[record as usize].reads;
        let mut whole = true;
        for &read in reads {
            let tensor = &state.tensors[read as usize];
            state.storages[tensor.storage as usize].last_access = now;
            whole &= tensor.defined;
        }
        if whole {
            for at in 0..self.state.records[record as usize].reads.len() {
                let storage = self.state.storage_of(self.state.records[record as usize].reads[at]);
                self.lock(storage);
            }
        }
        whole
    }

    fn unlock_reads(&mut self, record: u32) {
        for at in 0..self.state.records[record as usize].reads.len() {
            let storage = self.state.storage_of(self.state.records[record as usize].reads[at]);
            self.unlock(storage);
        }
    }

    /// Depth first: every unfinished op keeps its inputs, until it has to yield. The stack is a vector.
    fn regenerate(&mut self, record: u32, target: Option<u32>) -> Result<(), Fault> {
        let mut stack = vec![self.frame(record, target)];
        while let Some(frame) = stack.last_mut() {
            if let Some(&missing) = frame.missing.get(frame.back) {
                let this = self.state.tensor(missing);
                if this.defined {
                    frame.back += 1;
                    frame.locked.push(this.storage);
                    let storage = this.storage;
                    self.lock(storage);
                    continue;
                }
                let (producer, storage) = (this.record.get(), this.storage);
                let back = if self.stores.has(storage) { self.bring_back(missing) } else { Ok(false) };
                match back {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(Fault::NoRoom(_)) if self.make_yield(&mut stack) => continue,
                    Err(fault) => {
                        self.unwind(stack);
                        return Err(fault);
                    }
                }
                if let Some(producer) = producer {
                    let next = self.frame(producer, Some(missing));
                    stack.push(next);
                    continue;
                }
                self.unwind(stack);
                return Err(Fault::Lost(TensorId(missing)));
            }
            let (record, target) = (frame.record, frame.target);
            match self.run(record, target) {
                Err(Fault::NoRoom(_)) if self.make_yield(&mut stack) => continue,
                Err(fault) => {
                    self.unwind(stack);
                    return Err(fault);
                }
                Ok(()) => {}
            }
            stack.pop();
            self.unlock_reads(record);
        }
        Ok(())
    }

    fn frame(&mut self, record: u32, target: Option<u32>) -> Frame {
        let mut frame = Frame { record, target, ..Frame::default() };
        let now = self.state.now;
        for at in 0..self.state.record(record).reads.len() {
            let read = self.state.record(record).reads[at];
            let this = self.state.tensor(read);
            let storage = this.storage;
            if this.defined {
                frame.locked.push(storage);
                self.lock(storage);
            } else {
                frame.missing.push(read);
            }
            self.state.storages[storage as usize].last_access = now;
        }
        frame
    }

    /// Takes an input from the outermost unfinished op that has one to give, to be brought back later.
    fn make_yield(&mut self, stack: &mut [Frame]) -> bool {
        let Some((_, outer)) = stack.split_last_mut() else { return false };
        if self.settings.regeneration == Regeneration::Nested {
            return false;
        }
        for frame in outer {
            let candidate = frame.locked.iter().copied().find(|storage| {
                let this = self.state.storage(*storage);
                let own = frame.locked.iter().filter(|other| *other == storage).count();
                this.evictable
                    && this.size > 0
                    && this.locks as usize == own
                    && !frame.yielded.contains(storage)
            });
            let Some(storage) = candidate else { continue };
            frame.yielded.push(storage);
            frame.locked.retain(|&other| other != storage);
            for &read in &self.state.records[frame.record as usize].reads {
                if self.state.tensors[read as usize].storage == storage {
                    frame.missing.push(read);
                }
            }
            while self.state.storage(storage).locks > 0 {
                self.unlock(storage);
            }
            return true;
        }
        false
    }

    fn unwind(&mut self, stack: Vec<Frame>) {
        for frame in stack.into_iter().rev() {
            for storage in frame.locked {
                self.unlock(storage);
            }
        }
    }
}
