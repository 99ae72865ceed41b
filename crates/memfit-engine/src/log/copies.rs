//! What the log says of copies: made, moved, loaded, waited for, gone.

use memfit_ir::{Bytes, Content, Form, Role, Step, StepId};

use super::{Copied, Log};
use crate::host::Block;
use crate::maybe::Maybe;
use crate::state::State;
use crate::trace::Event;

impl Log {
    /// `tensor` is in another form when the step begins, in so many bytes, in device memory at a block or in a tier. What the copy is
    /// called here.
    pub(crate) fn put_parked(
        &mut self,
        state: &mut State,
        tensor: u32,
        role: Role,
        (form, taken, block): (Form, Bytes, Option<Block>),
    ) -> Copied {
        let size = Bytes(state.storage(state.storage_of(tensor)).size);
        // What is parked outlives steps.
        let role = if role.is_persistent() { role } else { Role::State };
        let value = self.value(size.0, role);
        self.values[value.index()].home = Some(form);
        let copy = match form {
            Form::Tier(tier) | Form::EncodedOn(tier, _) => {
                let copy = self.program.copy(Content::Value(value), size, tier);
                self.program.parked.push(copy);
                Copied::Away(copy)
            }
            Form::Encoded(codec) => {
                let offset = block.map_or(Bytes::ZERO, |block| block.offset);
                let buffer = self.buffer(Content::Encoded(value, codec), taken, offset, None);
                self.program.resident.push(buffer);
                // What it becomes need not be where it was, or of the same size.
                self.moved_home = true;
                Copied::Here(buffer)
            }
        };
        self.trace.at.push(Bytes::ZERO);
        let this = &mut state.tensors[tensor as usize];
        (this.value, this.buffer) = (value.into(), Maybe::NONE);
        self.trace.events.push(Event::Put { size, role });
        for _ in 1..this.held {
            self.trace.events.push(Event::Share(value.0));
        }
        copy
    }

    /// `storage` is parked. One that was on the device when the step began can't end it at its place any more.
    pub(crate) fn park(&mut self, state: &State, storage: u32) {
        if let Some(value) = state.tensor(state.storage(storage).root()).value.get() {
            let first = &self.values[self.values[value.index()].first.index()];
            self.moved_home |= first.role.is_persistent() && first.home.is_none();
        }
    }

    /// `form` of `storage` is being made, of `size` bytes, in device memory at `block` if it is there. What the copy is called
    /// here, and the transfer if it is one.
    pub(crate) fn store(
        &mut self,
        state: &State,
        storage: u32,
        form: Form,
        size: Bytes,
        block: Option<Block>,
    ) -> (Option<Copied>, Option<StepId>) {
        let root = state.tensor(state.storage(storage).root());
        let (Some(value), Some(from)) = (root.value.get(), root.buffer.get()) else { return (None, None) };
        match form {
            Form::Tier(tier) => {
                let to = self.program.copy(Content::Value(value), size, tier);
                (Some(Copied::Away(to)), Some(self.push(Step::Offload { from, to })))
            }
            Form::Encoded(codec) | Form::EncodedOn(_, codec) => {
                let offset = block.map_or(Bytes::ZERO, |block| block.offset);
                let to = self.buffer(Content::Encoded(value, codec), size, offset, None);
                self.push(Step::Encode { from, to });
                (Some(Copied::Here(to)), None)
            }
        }
    }

    /// The encoded copy `from` of `storage` moves: as [`Log::store`].
    pub(crate) fn forward(
        &mut self,
        state: &State,
        (storage, from): (u32, Option<Copied>),
        form: Form,
        size: Bytes,
        block: Option<Block>,
    ) -> (Option<Copied>, Option<StepId>) {
        let Some(value) = state.tensor(state.storage(storage).root()).value.get() else {
            return (None, None);
        };
        match (form, from) {
            (Form::EncodedOn(tier, codec), Some(Copied::Here(from))) => {
                let to = self.program.copy(Content::Encoded(value, codec), size, tier);
                (Some(Copied::Away(to)), Some(self.push(Step::Offload { from, to })))
            }
            (Form::Encoded(codec), Some(Copied::Away(from))) => {
                let offset = block.map_or(Bytes::ZERO, |block| block.offset);
                let to = self.buffer(Content::Encoded(value, codec), size, offset, None);
                (Some(Copied::Here(to)), Some(self.push(Step::Fetch { from, to })))
            }
            _ => (None, None),
        }
    }

    /// `storage` is being filled from its copy `from`. The transfer, if it is one.
    pub(crate) fn load(&mut self, state: &mut State, storage: u32, from: Option<Copied>) -> Option<StepId> {
        let this = state.storage(storage);
        let (root, size, offset) = (this.root(), Bytes(this.size), Bytes(this.offset));
        let value = state.tensor(root).value.get()?;
        let to = self.buffer(Content::Value(value), size, offset, None);
        state.tensors[root as usize].buffer = to.into();
        self.values[value.index()].holder = to.into();
        self.moved_home |= from.is_none();
        match from? {
            Copied::Away(from) => Some(self.push(Step::Fetch { from, to })),
            Copied::Here(from) => {
                self.push(Step::Decode { from, to });
                None
            }
        }
    }

    /// A transfer has been waited for.
    pub(crate) fn wait(&mut self, transfer: StepId) {
        self.push(Step::Await(transfer));
    }

    /// A copy is gone.
    pub(crate) fn discard(&mut self, copy: Copied) {
        self.push(match copy {
            Copied::Here(buffer) => Step::Free(buffer),
            Copied::Away(copy) => Step::Discard(copy),
        });
    }
}
