//! Outputs that are written over an operand which ends with the op: its bytes and theirs count once.
//!
//! A host says by [`Output::Takes`] that a kernel will certainly do so. What is left to be known is whether the operand may go, and
//! that is decided right before the first run, when all operands are there.

use crate::call::Output;
use crate::engine::Engine;
use crate::host::Host;

impl<H: Host> Engine<'_, H> {
    /// The operand that the next run of `record` writes its output over; all its operands are there and locked.
    pub(crate) fn takes(&self, record: u32) -> Option<usize> {
        self.may_take(record).filter(|&of| {
            let this = self.state.storage(self.state.storage_of(self.state.record(record).reads[of]));
            this.resident && this.locks == 1
        })
    }

    /// The operand that the next run of `record` will write its output over, as far as that can be told before it is there. The
    /// program alone holds it, once, and it can be computed again, or nothing can need it: `record` neither, which does not run again.
    fn may_take(&self, record: u32) -> Option<usize> {
        let this = self.state.record(record);
        let &[Output::Takes(size, of)] = &*self.state.class(record).outputs else { return None };
        if this.runs > 0 {
            return None;
        }
        let operand = *this.reads.get(of)?;
        let index = self.state.storage_of(operand);
        let storage = self.state.storage(index);
        let users = || storage.tensors.iter().map(|&tensor| self.state.tensor(tensor).users).sum::<u32>();
        let reads = this.reads.iter().filter(|&&read| self.state.storage_of(read) == index).count();
        let may_go = storage.evictable || (!this.derives && users() == 1);
        let is_whole = storage.size == size.0 && size.0 > 0;
        let is_alone = reads == 1 && storage.held == 1 && !storage.fixed && !self.pins.contains_key(&index);
        (is_whole && is_alone && may_go && !self.is_read_again(crate::TensorId(operand))).then_some(of)
    }

    /// Bytes that must be free to run `record` next.
    pub(crate) fn need(&self, record: u32) -> u64 {
        let need = self.state.need(record);
        match self.may_take(record) {
            Some(_) => need.saturating_sub(self.state.class(record).outputs[0].bytes().0),
            None => need,
        }
    }
}
