//! The engine's host: runs recorded operations on the backend, and drops handles.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use burn_ir::{OperationIr, TensorHandle, TensorId, TensorIr, TensorStatus};
use burn_router::RunnerClient as _;
use memfit::engine::kit::{Profiles, Recipes, Slots};
use memfit::engine::{Block, Host, HostError, Run, Seen, Source, StorageId, Wanted};
use memfit::ir::Dtype;
use memfit::tiers::{Kept, Shelf, density};
use memfit::{Bytes, Nanos};
use smallvec::SmallVec;

use super::backend::{Backend, copy};
use super::draws::{Draws, random};
use super::ops::{bytes, dtype, read_only};
use super::recipe::{Made, Pen, Recipe, Text};
use super::runner::Guarded;
use super::scratch::{saw, signature};
use super::span::span;
use crate::meter::Meter;

/// What a host has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Outputs that share the bytes of an input.
    pub views: u64,
    /// Outputs that shared bytes unexpectedly and were given some of their own.
    pub copies: u64,
    /// Outputs that were expected to be views, and were not: their bytes are in no account.
    pub unexpected: u64,
    /// Outputs of bytes of their own that are more, or fewer, than those of the declared shape and type: the account is wrong there.
    pub missized: u64,
    /// Inputs that the backend was free to overwrite.
    pub consumed: u64,
    /// Outputs that were counted in the bytes of an input which ends with the op, and can be computed again.
    pub reused: u64,
    /// Outputs of these that have got bytes of their own: while the op ran, the account was too small.
    pub apart: u64,
    /// Tensors, mostly parameters and state, written over the one before.
    pub updates: u64,
    /// The most bytes that the backend took for itself while an op ran, beyond what it made; only with a meter.
    pub temporaries: u64,
    /// The most bytes that there were by the meter when an op began, and what it makes: tensors and all else, but not what the op takes
    /// for itself; only with a meter. Since [`crate::reset_peak`].
    pub working: u64,
    /// The most of [`Counters::temporaries`], in bytes, that was not counted where scratch counts: in the first run of an op, on operands that lie
    /// otherwise than ever before, or where more threads take part in a kernel, each with a buffer of its own.
    pub unforeseen: u64,
}

/// The handles over one storage.
#[derive(Default)]
struct Slot {
    address: Option<NonZeroUsize>,
    dtype: Option<Dtype>,
    tensors: SmallVec<[TensorId; 2]>,
}

/// An op that is to run. Boxed and used again: an operation of Burn's is large, and lists are made once.
pub(super) struct Pending<L> {
    /// As it runs now: some inputs may be overwritten.
    pub(super) op: Option<OperationIr>,
    /// For the case that it runs again; empty if it does not.
    pub(super) text: Text,
    pub(super) made: Made,
    /// What it makes, all to be read only.
    pub(super) outputs: Vec<TensorIr>,
    /// For each operand, whether the backend may overwrite it.
    pub(super) free: Vec<bool>,
    /// How what a first run has made is laid out.
    pub(super) layouts: Vec<L>,
}

impl<L> Default for Pending<L> {
    fn default() -> Self {
        Pending {
            op: None,
            text: Text::default(),
            made: Made::Fresh,
            outputs: Vec::new(),
            free: Vec::new(),
            layouts: Vec::new(),
        }
    }
}

impl<L> Pending<L> {
    /// Notes what `op` makes.
    pub(super) fn note_outputs(&mut self, op: &OperationIr) {
        self.outputs.clear();
        self.outputs.extend(op.outputs().map(read_only));
    }
}

/// What a shelf of Burn's tensors keeps: with each copy the name and the make of a tensor over its storage.
pub(super) struct Handles<B>(PhantomData<B>);

impl<B: Backend> Kept for Handles<B> {
    type Of = (TensorId, B::Saved);
    type From = Saved<B>;
    type Into = Filled;
}

/// The bytes behind a handle.
pub(super) struct Saved<B: Backend>(B::Handle);

impl<B: Backend> AsRef<[u8]> for Saved<B> {
    fn as_ref(&self) -> &[u8] {
        B::save(&self.0).map_or(&[], |(bytes, _)| bytes)
    }
}

/// Bytes that come back, and the storage that they are.
pub(super) struct Filled {
    bytes: burn_backend::Bytes,
    of: Option<StorageId>,
}

impl AsMut<[u8]> for Filled {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

pub(super) struct BurnHost<B: Backend> {
    pub(super) runner: Guarded<B>,
    pub(super) draws: Draws,
    pub(super) counters: Counters,
    pub(super) meter: Option<Meter>,
    /// What ops take for themselves, where it counts.
    pub(super) profiles: Profiles,
    pub(super) counts_scratch: bool,
    /// The op of the call that comes.
    pub(super) pending: Option<Box<Pending<B::Layout>>>,
    /// For an op that runs again.
    repeated: Option<Box<Pending<B::Layout>>>,
    recipes: Recipes<Recipe>,
    pen: Pen,
    slots: Slots<Slot>,
    /// Copies of storages, each with the name and the make of a tensor over it.
    shelf: Shelf<Handles<B>>,
    started: Instant,
    /// When the last op had run, since then.
    now: Duration,
    /// Time in ops, first runs and repetitions.
    pub(super) busy: Duration,
}

impl<B: Backend> BurnHost<B> {
    pub(super) fn new(device: B::Device, shelf: Shelf<Handles<B>>) -> BurnHost<B> {
        BurnHost {
            runner: Guarded::new(device),
            draws: Draws::new(),
            counters: Counters::default(),
            meter: None,
            profiles: Profiles::default(),
            counts_scratch: false,
            pending: None,
            repeated: None,
            recipes: Recipes::default(),
            pen: Pen::default(),
            slots: Slots::default(),
            shelf,
            started: Instant::now(),
            now: Duration::ZERO,
            busy: Duration::ZERO,
        }
    }

    /// The most that recipes and tables have taken.
    pub(super) fn table_bytes(&self) -> usize {
        let spilled = |slot: &Slot| match slot.tensors.spilled() {
            true => slot.tensors.capacity() * size_of::<TensorId>(),
            false => 0,
        };
        self.recipes.most_bytes() + self.profiles.bytes() + self.slots.bytes(spilled)
    }

    /// `tensor`, which is to be read only, is in `storage` from now on. Returns how it is laid out.
    pub(super) fn hold(&mut self, storage: StorageId, tensor: &TensorIr) -> B::Layout {
        let handle = self.runner.handle(tensor);
        self.hold_with(storage, tensor, &handle)
    }

    fn hold_with(&mut self, storage: StorageId, tensor: &TensorIr, handle: &B::Handle) -> B::Layout {
        let slot = self.slots.at(storage);
        slot.address = B::address(handle);
        slot.dtype = Some(dtype(tensor.dtype));
        if !slot.tensors.contains(&tensor.id) {
            slot.tensors.push(tensor.id);
        }
        B::layout(handle)
    }

    fn drop_handles(&mut self, storage: StorageId) {
        for &tensor in &self.slots.take(storage).tensors {
            self.drop_handle(tensor);
        }
    }

    /// A tensor over what is in `block`.
    fn tensor_in(&self, block: Block) -> Option<TensorId> {
        self.slots.get(block.storage?)?.tensors.first().copied()
    }

    fn drop_handle(&self, id: TensorId) {
        self.runner.forget(id);
    }

    /// Runs `op` on the backend. `state`: where its random numbers begin.
    fn execute(
        &mut self,
        pending: &mut Pending<B::Layout>,
        state: Option<u64>,
    ) -> Result<Duration, HostError> {
        let none = || HostError("a call without an op".to_owned());
        let started = Instant::now();
        let drawn = match pending.op.as_ref().and_then(random) {
            Some(draw) if B::HOST_DRAWS => {
                let drawn = self.draws.draw(draw, B::distribution(draw), state);
                let drawn = drawn.ok_or_else(|| HostError(format!("can't draw `{:?}`", draw.out.dtype)))?;
                Some((draw.out.id, drawn))
            }
            Some(_) => {
                let seed = state.unwrap_or_else(|| self.draws.next_seed());
                self.runner.inner().seed(seed);
                None
            }
            None => None,
        };
        match drawn {
            Some((id, data)) => self.runner.put(id, data)?,
            None => self.runner.run(pending.op.take().ok_or_else(none)?)?,
        }
        let ended = Instant::now();
        self.now = ended - self.started;
        Ok(ended - started)
    }

    /// Books the outputs of a run: their handles, and whether they share what they were expected to share.
    fn settle(&mut self, run: &Run<'_>, pending: &mut Pending<B::Layout>) {
        pending.layouts.clear();
        for (at, (output, block)) in pending.outputs.iter().zip(run.writes).enumerate() {
            let storage = if pending.made == Made::View { run.reads[0].storage } else { block.storage };
            let layout = match (pending.made, storage) {
                (Made::View, Some(storage)) => {
                    self.counters.views += 1;
                    self.hold_view(storage, output)
                }
                // The old version is no more, nor are its views.
                (Made::Over, Some(storage)) => {
                    self.counters.updates += 1;
                    run.reads[0].storage.into_iter().for_each(|old| self.drop_handles(old));
                    self.hold(storage, output)
                }
                (Made::Fresh, Some(storage)) => self.hold_apart(storage, output, run, &pending.free),
                (_, None) => match self.home(run.call, at, output.id) {
                    // What was there has been replaced by its equal.
                    Some(home) => self.hold(home, output),
                    None => {
                        self.drop_handle(output.id);
                        continue;
                    }
                },
            };
            pending.layouts.push(layout);
        }
    }

    /// The storage that holds `tensor`, which is output `at` of `call`.
    fn home(&self, call: u32, at: usize, tensor: TensorId) -> Option<StorageId> {
        let home = self.recipes.get(call)?.text().home(at)?;
        let slot = self.slots.get(home)?;
        slot.tensors.contains(&tensor).then_some(home)
    }

    /// Operand `over` is to be overwritten: no other tensor has its bytes. Those that had are views, which the program has given up.
    fn leave_alone(&mut self, run: &Run<'_>, over: usize, pending: &Pending<B::Layout>) {
        let operand = pending.op.as_ref().and_then(|op| op.inputs().nth(over)).map(|input| input.id);
        let Some(storage) = run.reads[over].storage else { return };
        let tensors = &mut self.slots.at(storage).tensors;
        let others: SmallVec<[TensorId; 2]> =
            tensors.iter().copied().filter(|&tensor| Some(tensor) != operand).collect();
        tensors.retain(|tensor| Some(*tensor) == operand);
        others.into_iter().for_each(|other| self.drop_handle(other));
    }

    /// The output has the bytes of operand `over`, which is no more.
    fn took_over(&mut self, run: &Run<'_>, over: usize) {
        let address = |block: &Block| self.slots.get(block.storage?)?.address;
        let is_apart = run.writes.iter().any(|made| address(made) != address(&run.reads[over]));
        self.counters.reused += 1;
        self.counters.apart += u64::from(is_apart);
        run.reads[over].storage.into_iter().for_each(|old| self.drop_handles(old));
    }

    /// `output` is in `storage` from now on, and shares no bytes with an operand that is still there.
    fn hold_apart(
        &mut self,
        storage: StorageId,
        output: &TensorIr,
        run: &Run<'_>,
        free: &[bool],
    ) -> B::Layout {
        let handle = self.runner.handle(output);
        let address = B::address(&handle);
        let operands = run.reads.iter().zip(free);
        let mut there = operands.filter(|(_, free)| !**free).filter_map(|(block, _)| block.storage);
        let is_apart = |operand| self.slots.get(operand).and_then(|slot| slot.address) != address;
        if address.is_none() || there.all(is_apart) {
            self.counters.missized +=
                u64::from(B::taken(&handle).is_some_and(|taken| taken != bytes(output)));
            return self.hold_with(storage, output, &handle);
        }
        if let Some(data) = copy::<B>(handle, output.shape.clone(), output.dtype) {
            self.counters.copies += u64::from(self.runner.put(output.id, data).is_ok());
        }
        self.hold(storage, output)
    }

    fn hold_view(&mut self, storage: StorageId, output: &TensorIr) -> B::Layout {
        let before = self.slots.at(storage).address;
        let layout = self.hold(storage, output);
        let slot = self.slots.at(storage);
        let is_elsewhere = std::mem::replace(&mut slot.address, before) != before;
        self.counters.unexpected += u64::from(is_elsewhere && bytes(output) > 0);
        layout
    }

    /// The op that runs now, as it ran before.
    fn recall(&mut self, run: &Run<'_>) -> Result<Box<Pending<B::Layout>>, HostError> {
        let damaged =
            || HostError(format!("the recipe of `{}` can't be read: this is a bug in memfit", run.kind));
        let (mut op, made) = self.recipes.recall(run)?.text().read().ok_or_else(damaged)?;
        let inputs: Vec<TensorId> = op.inputs().map(|input| input.id).collect();
        op.mark_read_only(&inputs);
        let mut pending = self.repeated.take().unwrap_or_default();
        pending.made = made;
        pending.note_outputs(&op);
        pending.free.clear();
        pending.free.resize(inputs.len(), false);
        pending.op = Some(op);
        Ok(pending)
    }
}

impl<B: Backend> Host for BurnHost<B> {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        let again = run.repetition > 0;
        span!(
            "run",
            op = run.kind,
            repetition = run.repetition,
            bytes = run.writes.iter().map(|block| block.size.0).sum::<u64>()
        );
        let mut pending = if again { self.recall(run)? } else { self.pending.take().unwrap_or_default() };
        if !again && !pending.text.is_empty() {
            pending.text.settle(run.writes.iter().map(|block| block.storage));
            self.recipes.remember(run, self.pen.recipe(&pending.text));
        }
        self.counters.consumed += pending.free.iter().filter(|free| **free).count() as u64;
        if let Some(over) = run.over {
            self.leave_alone(run, over, &pending);
        }
        let before = self.meter.map(|meter| {
            (meter.mark)();
            (meter.current)()
        });
        // Only a repetition goes back to where its numbers began.
        let state = run.generator.filter(|_| again || !B::HOST_DRAWS);
        let like = pending.op.as_ref().filter(|_| self.counts_scratch).map(signature);
        let time = self.execute(&mut pending, state)?;
        if let (Some(meter), Some(before)) = (self.meter, before) {
            let is_new = pending.made == Made::Fresh && run.over.is_none();
            let own: u64 = if is_new { pending.outputs.iter().map(bytes).sum() } else { 0 };
            self.counters.working = self.counters.working.max(before as u64 + own);
            let most = (meter.mark)().saturating_sub(before) as u64;
            let scratch = most.saturating_sub(own);
            self.counters.temporaries = self.counters.temporaries.max(scratch);
            if let Some(like) = like {
                let unforeseen = saw(&mut self.profiles, like, Bytes(scratch));
                self.counters.unforeseen = self.counters.unforeseen.max(unforeseen.0);
            }
        }
        self.settle(run, &mut pending);
        if let Some(over) = run.over {
            self.took_over(run, over);
        }
        let place = if again { &mut self.repeated } else { &mut self.pending };
        *place = Some(pending);
        self.busy += time;
        Ok(Nanos::from(time).max(Nanos(1)))
    }

    fn release(&mut self, block: Block) {
        if let Some(storage) = block.storage {
            span!("release", bytes = block.size.0);
            self.drop_handles(storage);
        }
    }

    fn look(&mut self, block: Block) -> Seen {
        let Some(tensor) = self.tensor_in(block) else { return Seen::default() };
        let handle = self.runner.handle_of(tensor);
        let density = B::save(&handle).map(|(bytes, _)| density(bytes));
        let known = block.storage.and_then(|storage| self.slots.get(storage)?.dtype);
        Seen { density, dtype: known.unwrap_or(Dtype::Other) }
    }

    fn store(&mut self, from: Source, wanted: Wanted) -> Result<u64, HostError> {
        let block = match from {
            Source::Copy(copy) => return self.shelf.forward(copy, wanted.form),
            Source::Block(block) => block,
        };
        span!("store", bytes = block.size.0);
        let started = Instant::now();
        let none = || HostError("the bytes of a storage can't be read".to_owned());
        let id = self.tensor_in(block).ok_or_else(none)?;
        let handle = self.runner.handle_of(id);
        let (_, saved) = B::save(&handle).ok_or_else(none)?;
        let (name, _) = self.shelf.store(Saved(handle), (id, saved), wanted)?;
        self.now += started.elapsed();
        Ok(name)
    }

    fn taken(&mut self, copy: u64) -> Option<Bytes> {
        self.shelf.taken(copy)
    }

    fn load(&mut self, copy: u64, to: Block) -> Result<(), HostError> {
        span!("load", bytes = to.size.0);
        let started = Instant::now();
        let ((_, saved), size) = self.shelf.of(copy)?;
        let bytes = B::blank(size, saved);
        self.shelf.load(copy, Filled { bytes, of: to.storage })?;
        self.now += started.elapsed();
        Ok(())
    }

    fn wait(&mut self, copy: u64) -> Result<(), HostError> {
        span!("wait", copy = copy);
        let started = Instant::now();
        let ended = self.shelf.wait(copy);
        if let Some((Filled { bytes, of }, (id, saved))) = ended?.into {
            let (TensorHandle { handle, shape }, dtype) = B::restore(bytes, &saved);
            let tensor = TensorIr { id, shape, status: TensorStatus::ReadOnly, dtype };
            self.runner.call(handle, &tensor)?;
            of.into_iter().for_each(|storage| drop(self.hold(storage, &tensor)));
        }
        self.now += started.elapsed();
        Ok(())
    }

    fn discard(&mut self, copy: u64) {
        self.shelf.discard(copy);
    }

    fn close(&mut self, call: u32) {
        self.recipes.close(call);
    }

    /// When the last op had run: between ops nothing grows stale.
    fn clock(&mut self) -> Nanos {
        self.now.into()
    }

    fn generator(&mut self) -> Option<u64> {
        if B::HOST_DRAWS { self.draws.state() } else { Some(self.draws.next_seed()) }
    }
}
