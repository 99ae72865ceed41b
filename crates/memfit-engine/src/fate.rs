//! What becomes of bytes that the program gives up, for a host to know before.

use crate::call::{Dealloc, Fate, TensorId};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;

impl<H: Host> Engine<'_, H> {
    /// What would become of the bytes of `tensor` if the program gave up one reference to it.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn fate(&self, tensor: TensorId) -> Result<Fate, Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        let this = self.state.storage(storage); // A copy that is under way locks it, and changes nothing.
        Ok(if this.held > 1 || self.pins.contains_key(&storage) {
            Fate::Held
        } else if this.evictable {
            Fate::Repeatable
        } else if this.tensors.iter().any(|&tensor| self.state.tensor(tensor).users > 0) {
            Fate::Needed
        } else {
            Fate::Free
        })
    }

    /// Whether the bytes of `tensor` stay when the program gives up its last reference to it, though it can be computed again: the
    /// plan reads it again, or, without a plan, something needs it that is gone.
    pub fn is_kept(&mut self, tensor: TensorId) -> bool {
        let known = self.state.tensors.get(tensor.index()).is_some_and(|tensor| tensor.alive);
        known
            && match self.is_guided() {
                true => self.is_read_again(tensor),
                false => self.serves(self.state.storage_of(tensor.0)),
            }
    }

    /// Whether `storage`, which the program has given up, stays in the pool for the sake of what is gone.
    pub(crate) fn serves(&mut self, storage: u32) -> bool {
        self.settings.dealloc == Dealloc::EvictUnneeded
            && !self.state.is_all_there()
            && self.walk.serves(&self.state, storage)
    }
}
