//! What a host does by hand: evicts, and pins.

use crate::call::TensorId;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;
use crate::ids::StorageId;
use crate::table::next_index;

impl<H: Host> Engine<'_, H> {
    /// The tensors that the program holds, by number.
    #[must_use]
    pub fn held(&self) -> Vec<TensorId> {
        let all = 0..self.state.tensors.len();
        all.filter(|&tensor| self.state.tensors[tensor].alive && self.state.tensors[tensor].held > 0)
            .map(|tensor| TensorId(next_index(tensor)))
            .collect()
    }

    /// Evicts `tensor` by hand. Returns false if it can't go: it is pinned, or can't be computed again.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn drop(&mut self, tensor: TensorId) -> Result<bool, Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        let goes = self.state.storage(storage).in_pool && !self.host.is_shared(StorageId(storage));
        if goes {
            self.evict(storage);
        }
        Ok(goes)
    }

    /// Evicts all that can go.
    pub fn drop_all(&mut self) {
        let pool: Vec<u32> = self.state.pool().collect();
        for storage in pool {
            if !self.host.is_shared(StorageId(storage)) {
                self.evict(storage);
            }
        }
    }

    /// Keeps `tensor` in memory until as many [`Engine::unpin`].
    ///
    /// # Errors
    ///
    /// Any [`Fault`].
    pub fn pin(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.restore(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        *self.pins.entry(storage).or_insert(0) += 1;
        self.lock(storage);
        Ok(())
    }

    /// Takes one [`Engine::pin`] back.
    ///
    /// # Errors
    ///
    /// [`Fault::Unknown`].
    pub fn unpin(&mut self, tensor: TensorId) -> Result<(), Fault> {
        self.known(tensor)?;
        let storage = self.state.storage_of(tensor.0);
        let Some(pins) = self.pins.get_mut(&storage) else { return Err(Fault::Unknown(tensor)) };
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&storage);
        }
        self.unlock(storage);
        Ok(())
    }
}
