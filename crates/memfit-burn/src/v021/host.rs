//! The engine's host: runs recorded operations on the backend, and drops handles.

use std::time::{Duration, Instant};

use burn_backend::{DType, Shape, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use burn_router::{Runner, RunnerClient as _};
use memfit::Nanos;
use memfit::engine::{Block, Host, HostError, Run};
use rustc_hash::FxHashMap;

use super::backend::{Backend, copy};
use super::draws::{Draws, random};
use super::ops::{bytes, read_only};
use super::recipe::{Made, Recipe};
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
    address: Option<usize>,
    tensors: Vec<TensorId>,
}

/// The op of the call that comes.
pub(super) struct Pending {
    /// As it runs now: some inputs may be overwritten.
    pub(super) op: OperationIr,
    /// For the case that it runs again.
    pub(super) recipe: Option<Recipe>,
    pub(super) made: Made,
}

pub(super) struct BurnHost<B: Backend> {
    pub(super) runner: Runner<B>,
    pub(super) draws: Draws,
    pub(super) counters: Counters,
    pub(super) meter: Option<Meter>,
    pub(super) pending: Option<Pending>,
    /// By number of call.
    recipes: FxHashMap<u64, Recipe>,
    /// Bytes that the recipes point to, now and at most.
    written: (usize, usize),
    /// By number of storage.
    slots: Vec<Slot>,
    /// For each tensor with a handle, its storage.
    homes: FxHashMap<TensorId, u32>,
    /// By tensor that the program holds: what the next op on it has to know.
    layouts: FxHashMap<TensorId, B::Layout>,
    /// The operands of a run: the address of each, and whether the backend may overwrite it.
    operands: Vec<(Option<usize>, bool)>,
    /// Whether an op runs again: what it makes has its layout, or is held no more.
    again: bool,
    started: Instant,
    /// Time in ops, first runs and repetitions.
    pub(super) busy: Duration,
}

/// No storage: workspace, and outputs that go at once.
const NOBODY: u32 = u32::MAX;

impl<B: Backend> BurnHost<B> {
    pub(super) fn new(device: B::Device) -> BurnHost<B> {
        BurnHost {
            runner: Runner::new(device),
            draws: Draws::new(),
            counters: Counters::default(),
            meter: None,
            pending: None,
            recipes: FxHashMap::default(),
            written: (0, 0),
            slots: Vec::new(),
            homes: FxHashMap::default(),
            layouts: FxHashMap::default(),
            operands: Vec::new(),
            again: false,
            started: Instant::now(),
            busy: Duration::ZERO,
        }
    }

    fn slot(&mut self, storage: u32) -> &mut Slot {
        let at = storage as usize;
        if self.slots.len() <= at {
            // By an eighth, not to twice what it is: these are many.
            self.slots.reserve_exact((at + 1 - self.slots.len()).max(self.slots.len() / 8));
            self.slots.resize_with(at + 1, Slot::default);
        }
        &mut self.slots[at]
    }

    /// The most that recipes and tables have taken.
    pub(super) fn table_bytes(&self) -> usize {
        fn map<K, V>(map: &FxHashMap<K, V>) -> usize {
            // A byte of control for each place, and places in a power of two.
            (map.capacity() * 8 / 7).next_power_of_two() * (size_of::<(K, V)>() + 1)
        }
        let slots: usize =
            self.slots.iter().map(|slot| slot.tensors.capacity() * size_of::<TensorId>()).sum();
        self.written.1
            + map(&self.recipes)
            + map(&self.homes)
            + map(&self.layouts)
            + self.slots.capacity() * size_of::<Slot>()
            + slots
    }

    /// How `tensor` is laid out, from when it was last made.
    pub(super) fn layout(&self, tensor: TensorId) -> Option<&B::Layout> {
        self.layouts.get(&tensor)
    }

    /// Nothing will ask for `tensor` any more.
    pub(super) fn forget_layout(&mut self, tensor: TensorId) {
        self.layouts.remove(&tensor);
    }

    /// `tensor` is in `storage` from now on.
    pub(super) fn hold(&mut self, storage: u32, tensor: &TensorIr) {
        let handle = self.runner.get_tensor_handle(&read_only(tensor));
        self.hold_with(storage, tensor, &handle);
    }

    fn hold_with(&mut self, storage: u32, tensor: &TensorIr, handle: &B::Handle) {
        let address = B::address(handle);
        if !self.again {
            self.layouts.insert(tensor.id, B::layout(handle));
        }
        self.slot(storage).address = address;
        if self.homes.insert(tensor.id, storage) != Some(storage) {
            let tensors = &mut self.slot(storage).tensors;
            if tensors.capacity() == 0 {
                // Most storages have one.
                tensors.reserve_exact(1);
            }
            tensors.push(tensor.id);
        }
    }

    fn drop_handles(&mut self, storage: u32) {
        let tensors = std::mem::take(&mut self.slot(storage).tensors);
        for &tensor in &tensors {
            self.homes.remove(&tensor);
            self.drop_handle(tensor);
        }
        let slot = self.slot(storage);
        slot.tensors = tensors;
        slot.tensors.clear();
        slot.address = None;
    }

    fn drop_handle(&self, id: TensorId) {
        let shape = Shape::from(Vec::<usize>::new());
        self.runner.register_op(OperationIr::Drop(TensorIr {
            id,
            shape,
            status: TensorStatus::ReadWrite,
            dtype: DType::F32,
        }));
    }

    /// Runs `op` on the backend. `state`: where its random numbers begin.
    fn execute(&mut self, op: OperationIr, state: Option<u64>) -> Result<Duration, HostError> {
        let started = Instant::now();
        let data: Option<(TensorId, TensorData)> = match random(&op) {
            Some(draw) if B::HOST_DRAWS => {
                let drawn = self.draws.draw(draw, state);
                let drawn = drawn.ok_or_else(|| HostError(format!("can't draw `{:?}`", draw.out.dtype)))?;
                Some((draw.out.id, drawn))
            }
            Some(_) => {
                let seed = state.unwrap_or_else(|| self.draws.next_seed());
                self.runner.seed(seed);
                None
            }
            None => None,
        };
        match data {
            Some((id, data)) => self.runner.register_tensor_data_id(id, data),
            None => self.runner.register_op(op),
        }
        Ok(started.elapsed())
    }

    /// Books the outputs of a run: their handles, and whether they share what they were expected to share.
    fn settle(&mut self, run: &Run<'_>, outputs: &[TensorIr], made: Made) {
        for (output, block) in outputs.iter().zip(run.writes) {
            match made {
                Made::View => {
                    self.hold_view(run.reads[0].storage, output);
                    self.counters.views += 1;
                }
                // The old version is no more, nor are its views.
                Made::Over => {
                    self.drop_handles(run.reads[0].storage);
                    self.hold(block.storage, output);
                    self.counters.updates += 1;
                }
                Made::Fresh if block.storage == NOBODY => match self.homes.get(&output.id) {
                    // What was there has been replaced by its equal.
                    Some(&home) => self.hold(home, output),
                    None => self.drop_handle(output.id),
                },
                Made::Fresh => self.hold_apart(block.storage, output),
            }
        }
    }

    /// `output` is in `storage` from now on, and shares no bytes with an operand.
    fn hold_apart(&mut self, storage: u32, output: &TensorIr) {
        let handle = self.runner.get_tensor_handle(&read_only(output));
        let address = B::address(&handle);
        let shared = address.is_some() && self.operands.contains(&(address, false));
        if !shared {
            return self.hold_with(storage, output, &handle);
        }
        if let Some(data) = copy::<B>(handle, output.shape.clone(), output.dtype) {
            self.runner.register_tensor_data_id(output.id, data);
            self.counters.copies += 1;
        }
        self.hold(storage, output);
    }

    fn hold_view(&mut self, storage: u32, output: &TensorIr) {
        let before = self.slot(storage).address;
        self.hold(storage, output);
        if self.slot(storage).address != before && bytes(output) > 0 {
            self.counters.unexpected += 1;
        }
        self.slot(storage).address = before;
    }
}

impl<B: Backend> Host for BurnHost<B> {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        let (op, made) = if run.repetition == 0 {
            let pending = self.pending.take().ok_or_else(|| HostError("a call without an op".to_owned()))?;
            if let Some(recipe) = pending.recipe {
                self.written.0 += recipe.bytes();
                self.written.1 = self.written.1.max(self.written.0);
                self.recipes.insert(run.call, recipe);
            }
            (pending.op, pending.made)
        } else {
            let known = self.recipes.get(&run.call).and_then(Recipe::read);
            let (mut op, made) = known.ok_or_else(|| HostError("an op that was not recorded".to_owned()))?;
            let inputs: Vec<TensorId> = op.inputs().map(|input| input.id).collect();
            op.mark_read_only(&inputs);
            (op, made)
        };
        self.again = run.repetition > 0;
        self.operands.clear();
        for (tensor, block) in op.inputs().zip(run.reads) {
            let free = tensor.status == TensorStatus::ReadWrite;
            let address = self.slot(block.storage).address;
            self.operands.push((address, free));
            self.counters.consumed += u64::from(free);
        }
        let outputs: Vec<TensorIr> = op.outputs().cloned().collect();
        let before = self.meter.map(|meter| {
            (meter.mark)();
            (meter.current)()
        });
        // Only a repetition goes back to where its numbers began.
        let state = run.generator.filter(|_| run.repetition > 0 || !B::HOST_DRAWS);
        let time = self.execute(op, state)?;
        if let (Some(meter), Some(before)) = (self.meter, before) {
            let own: u64 = if made == Made::Fresh { outputs.iter().map(bytes).sum() } else { 0 };
            let most = (meter.mark)().saturating_sub(before) as u64;
            self.counters.temporaries = self.counters.temporaries.max(most.saturating_sub(own));
        }
        self.settle(run, &outputs, made);
        self.again = false;
        self.busy += time;
        Ok(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)))
    }

    fn release(&mut self, block: Block) {
        if block.storage != NOBODY {
            self.drop_handles(block.storage);
        }
    }

    fn close(&mut self, call: u64) {
        if let Some(recipe) = self.recipes.remove(&call) {
            self.written.0 -= recipe.bytes();
        }
    }

    fn clock(&mut self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn generator(&mut self) -> Option<u64> {
        if B::HOST_DRAWS { self.draws.state() } else { Some(self.draws.next_seed()) }
    }
}
