//! The engine's host: runs recorded operations on the backend, and drops handles.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use burn_ir::{OperationIr, TensorHandle, TensorId, TensorIr, TensorStatus};
use burn_router::RunnerClient as _;
use memfit::engine::{Block, Host, HostError, Run, Source};
use memfit::ir::Form;
use memfit::{Bytes, Nanos, Shelf, density};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::backend::{Backend, copy};
use super::core::map_bytes;
use super::draws::{Draws, random};
use super::ops::{bytes, read_only};
use super::recipe::{Made, Recipe};
use super::runner::Guarded;
use super::scratch::{Scratch, signature};
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
    /// Inputs that the backend was free to overwrite.
    pub consumed: u64,
    /// Tensors, mostly parameters and state, written over the one before.
    pub updates: u64,
    /// The most bytes that the backend took for itself while an op ran, beyond what it made; only with a meter.
    pub temporaries: u64,
}

/// The handles over one storage.
#[derive(Default)]
struct Slot {
    address: Option<NonZeroUsize>,
    tensors: SmallVec<[TensorId; 2]>,
}

/// An op that is to run. Boxed and used again: an operation of Burn's is large, and lists are made once.
pub(super) struct Pending<L> {
    /// As it runs now: some inputs may be overwritten.
    pub(super) op: Option<OperationIr>,
    /// For the case that it runs again.
    pub(super) recipe: Option<Recipe>,
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
            recipe: None,
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

pub(super) struct BurnHost<B: Backend> {
    pub(super) runner: Guarded<B>,
    pub(super) draws: Draws,
    pub(super) counters: Counters,
    pub(super) meter: Option<Meter>,
    /// What ops take for themselves, where it counts.
    pub(super) scratch: Scratch,
    pub(super) counts_scratch: bool,
    /// The op of the call that comes.
    pub(super) pending: Option<Box<Pending<B::Layout>>>,
    /// For an op that runs again.
    repeated: Option<Box<Pending<B::Layout>>>,
    /// By number of call.
    recipes: FxHashMap<u64, Recipe>,
    /// Bytes that the recipes point to, now and at most.
    written: (usize, usize),
    /// By number of storage.
    slots: Vec<Slot>,
    /// Copies of storages in the memory of the process, and what each is a copy of.
    shelf: Shelf,
    stored: FxHashMap<u64, (TensorId, B::Saved)>,
    started: Instant,
    /// When the last op had run, since then.
    now: Duration,
    /// Time in ops, first runs and repetitions.
    pub(super) busy: Duration,
}

/// No storage: workspace, and outputs that go at once.
const NOBODY: u32 = u32::MAX;

impl<B: Backend> BurnHost<B> {
    pub(super) fn new(device: B::Device) -> BurnHost<B> {
        BurnHost {
            runner: Guarded::new(device),
            draws: Draws::new(),
            counters: Counters::default(),
            meter: None,
            scratch: Scratch::default(),
            counts_scratch: false,
            pending: None,
            repeated: None,
            recipes: FxHashMap::default(),
            written: (0, 0),
            slots: Vec::new(),
            shelf: Shelf::default(),
            stored: FxHashMap::default(),
            started: Instant::now(),
            now: Duration::ZERO,
            busy: Duration::ZERO,
        }
    }

    fn slot(&mut self, storage: u32) -> &mut Slot {
        let at = storage as usize;
        if self.slots.len() <= at {
            if self.slots.capacity() <= at {
                // By an eighth, not to twice what it is: these are many.
                self.slots.reserve_exact((at + 1 - self.slots.len()).max(self.slots.len() / 8));
            }
            self.slots.resize_with(at + 1, Slot::default);
        }
        &mut self.slots[at]
    }

    /// The most that recipes and tables have taken.
    pub(super) fn table_bytes(&self) -> usize {
        let spilled = self.slots.iter().filter(|slot| slot.tensors.spilled());
        let slots: usize = spilled.map(|slot| slot.tensors.capacity() * size_of::<TensorId>()).sum();
        let maps = map_bytes(&self.recipes) + self.scratch.table_bytes();
        self.written.1 + maps + self.slots.capacity() * size_of::<Slot>() + slots
    }

    /// `tensor`, which is to be read only, is in `storage` from now on. Returns how it is laid out.
    pub(super) fn hold(&mut self, storage: u32, tensor: &TensorIr) -> B::Layout {
        let handle = self.runner.handle(tensor);
        self.hold_with(storage, tensor, &handle)
    }

    fn hold_with(&mut self, storage: u32, tensor: &TensorIr, handle: &B::Handle) -> B::Layout {
        let slot = self.slot(storage);
        slot.address = B::address(handle);
        if !slot.tensors.contains(&tensor.id) {
            slot.tensors.push(tensor.id);
        }
        B::layout(handle)
    }

    fn drop_handles(&mut self, storage: u32) {
        let slot = std::mem::take(self.slot(storage));
        for &tensor in &slot.tensors {
            self.drop_handle(tensor);
        }
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
                let drawn = self.draws.draw(draw, state);
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
            let layout = match pending.made {
                Made::View => {
                    self.counters.views += 1;
                    self.hold_view(run.reads[0].storage, output)
                }
                // The old version is no more, nor are its views.
                Made::Over => {
                    self.counters.updates += 1;
                    self.drop_handles(run.reads[0].storage);
                    self.hold(block.storage, output)
                }
                Made::Fresh if block.storage == NOBODY => match self.home(run.call, at, output.id) {
                    // What was there has been replaced by its equal.
                    Some(home) => self.hold(home, output),
                    None => {
                        self.drop_handle(output.id);
                        continue;
                    }
                },
                Made::Fresh => self.hold_apart(block.storage, output, run, &pending.free),
            };
            pending.layouts.push(layout);
        }
    }

    /// The storage that holds `tensor`, which is output `at` of `call`.
    fn home(&self, call: u64, at: usize, tensor: TensorId) -> Option<u32> {
        let home = self.recipes.get(&call)?.home(at)?;
        let slot = self.slots.get(home as usize)?;
        slot.tensors.contains(&tensor).then_some(home)
    }

    /// `output` is in `storage` from now on, and shares no bytes with an operand that is still there.
    fn hold_apart(&mut self, storage: u32, output: &TensorIr, run: &Run<'_>, free: &[bool]) -> B::Layout {
        let handle = self.runner.handle(output);
        let address = B::address(&handle);
        let operands = run.reads.iter().zip(free);
        let mut there = operands.filter(|(_, free)| !**free).map(|(block, _)| block.storage);
        if address.is_none() || there.all(|operand| self.slot(operand).address != address) {
            return self.hold_with(storage, output, &handle);
        }
        if let Some(data) = copy::<B>(handle, output.shape.clone(), output.dtype) {
            self.runner.inner().register_tensor_data_id(output.id, data);
            self.counters.copies += 1;
        }
        self.hold(storage, output)
    }

    fn hold_view(&mut self, storage: u32, output: &TensorIr) -> B::Layout {
        let before = self.slot(storage).address;
        let layout = self.hold(storage, output);
        if self.slot(storage).address != before && bytes(output) > 0 {
            self.counters.unexpected += 1;
        }
        self.slot(storage).address = before;
        layout
    }

    /// The op that `call` was, to be run again.
    fn recall(&mut self, call: u64) -> Result<Box<Pending<B::Layout>>, HostError> {
        let known = self.recipes.get(&call).and_then(Recipe::read);
        let (mut op, made) = known.ok_or_else(|| HostError("an op that was not recorded".to_owned()))?;
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
        let mut pending =
            if again { self.recall(run.call)? } else { self.pending.take().unwrap_or_default() };
        if let Some(mut recipe) = pending.recipe.take() {
            recipe.settle(run.writes.iter().map(|block| block.storage));
            self.written.0 += recipe.bytes();
            self.written.1 = self.written.1.max(self.written.0);
            self.recipes.insert(run.call, recipe);
        }
        self.counters.consumed += pending.free.iter().filter(|free| **free).count() as u64;
        let before = self.meter.map(|meter| {
            (meter.mark)();
            (meter.current)()
        });
        // Only a repetition goes back to where its numbers began.
        let state = run.generator.filter(|_| again || !B::HOST_DRAWS);
        let like = pending.op.as_ref().filter(|_| self.counts_scratch).map(signature);
        let time = self.execute(&mut pending, state)?;
        if let (Some(meter), Some(before)) = (self.meter, before) {
            let own: u64 =
                if pending.made == Made::Fresh { pending.outputs.iter().map(bytes).sum() } else { 0 };
            let most = (meter.mark)().saturating_sub(before) as u64;
            let scratch = most.saturating_sub(own);
            self.counters.temporaries = self.counters.temporaries.max(scratch);
            if let Some(like) = like {
                self.scratch.saw(like, scratch);
            }
        }
        self.settle(run, &mut pending);
        let place = if again { &mut self.repeated } else { &mut self.pending };
        *place = Some(pending);
        self.busy += time;
        Ok(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)))
    }

    fn release(&mut self, block: Block) {
        if block.storage != NOBODY {
            self.drop_handles(block.storage);
        }
    }

    fn density(&mut self, block: Block) -> Option<f32> {
        let id = self.slot(block.storage).tensors.first().copied()?;
        let handle = self.runner.handle_of(id);
        B::save(&handle).map(|(bytes, _)| density(bytes))
    }

    fn store(&mut self, from: Source, form: Form, room: Bytes) -> Result<u64, HostError> {
        let block = match from {
            Source::Copy(copy) => {
                let same = self.shelf.share(copy)?;
                let root = self.stored.get(&copy).cloned();
                self.stored.extend(root.map(|root| (same, root)));
                return Ok(same);
            }
            Source::Block(block) => block,
        };
        let started = Instant::now();
        let none = || HostError("the bytes of a storage can't be read".to_owned());
        let id = self.slot(block.storage).tensors.first().copied().ok_or_else(none)?;
        let handle = self.runner.handle_of(id);
        let (bytes, saved) = B::save(&handle).ok_or_else(none)?;
        let name = self.shelf.store(bytes, form, room)?;
        self.stored.insert(name, (id, saved));
        self.now += started.elapsed();
        Ok(name)
    }

    fn load(&mut self, copy: u64, to: Block) -> Result<(), HostError> {
        let started = Instant::now();
        let none = || HostError(format!("there is no copy `{copy}`"));
        let (id, saved) = self.stored.get(&copy).cloned().ok_or_else(none)?;
        let bytes = self.shelf.bytes(copy)?.into_owned();
        let (TensorHandle { handle, shape }, dtype) = B::restore(bytes, &saved);
        let tensor = TensorIr { id, shape, status: TensorStatus::ReadOnly, dtype };
        self.runner.call(handle, &tensor)?;
        self.hold(to.storage, &tensor);
        self.now += started.elapsed();
        Ok(())
    }

    fn discard(&mut self, copy: u64) {
        self.shelf.discard(copy);
        self.stored.remove(&copy);
    }

    fn close(&mut self, call: u64) {
        if let Some(recipe) = self.recipes.remove(&call) {
            self.written.0 -= recipe.bytes();
        }
    }

    /// When the last op had run: between ops nothing grows stale.
    fn clock(&mut self) -> Nanos {
        Nanos(u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX))
    }

    fn generator(&mut self) -> Option<u64> {
        if B::HOST_DRAWS { self.draws.state() } else { Some(self.draws.next_seed()) }
    }
}
