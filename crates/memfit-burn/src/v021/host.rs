//! The engine's host: runs recorded operations on the backend, and drops handles.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use burn_backend::{DType, Shape, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use burn_router::{Runner, RunnerClient as _};
use memfit::Nanos;
use memfit::engine::{Block, Host, HostError, Output, Run};

use super::backend::{Backend, copy};
use super::draws::{Draws, random};
use super::ops::{bytes, read_only};
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

/// How to run an op again.
struct Recorded {
    op: OperationIr,
    /// What each output is, and for an overwritten input its position.
    outputs: Vec<Output>,
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
    pub(super) now: OperationIr,
    /// As it runs again: no input may.
    pub(super) again: Option<OperationIr>,
    pub(super) outputs: Vec<Output>,
}

pub(super) struct BurnHost<B: Backend> {
    pub(super) runner: Runner<B>,
    pub(super) draws: Draws,
    pub(super) counters: Counters,
    pub(super) meter: Option<Meter>,
    pub(super) pending: Option<Pending>,
    /// By number of call.
    records: HashMap<u64, Box<Recorded>>,
    /// By number of storage.
    slots: Vec<Slot>,
    /// For each tensor with a handle, its storage.
    homes: HashMap<TensorId, u32>,
    /// By tensor that the program holds: what the next op on it has to know.
    layouts: HashMap<TensorId, B::Layout>,
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
            records: HashMap::new(),
            slots: Vec::new(),
            homes: HashMap::new(),
            layouts: HashMap::new(),
            again: false,
            started: Instant::now(),
            busy: Duration::ZERO,
        }
    }

    fn slot(&mut self, storage: u32) -> &mut Slot {
        let at = storage as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, Slot::default);
        }
        &mut self.slots[at]
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
        let address = B::address(&handle);
        if !self.again {
            self.layouts.insert(tensor.id, B::layout(&handle));
        }
        drop(handle);
        self.slot(storage).address = address;
        if self.homes.insert(tensor.id, storage) != Some(storage) {
            self.slot(storage).tensors.push(tensor.id);
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
    fn settle(
        &mut self,
        run: &Run<'_>,
        outputs: &[TensorIr],
        kinds: &[Output],
        inputs: &[(Option<usize>, bool)],
    ) {
        for (at, output) in outputs.iter().enumerate() {
            let block = run.writes[at];
            match kinds[at] {
                Output::View(of) => {
                    self.hold_view(run.reads[of].storage, output);
                    self.counters.views += 1;
                }
                // The old version is no more, nor are its views.
                Output::InPlace(of) => {
                    self.drop_handles(run.reads[of].storage);
                    self.hold(block.storage, output);
                    self.counters.updates += 1;
                }
                Output::Fresh(_) if block.storage == NOBODY => match self.homes.get(&output.id) {
                    // What was there has been replaced by its equal.
                    Some(&home) => self.hold(home, output),
                    None => self.drop_handle(output.id),
                },
                Output::Fresh(_) => {
                    let handle = self.runner.get_tensor_handle(&read_only(output));
                    let address = B::address(&handle);
                    let shared = address.is_some() && inputs.contains(&(address, false));
                    if shared && let Some(data) = copy::<B>(handle, output.shape.clone(), output.dtype) {
                        self.runner.register_tensor_data_id(output.id, data);
                        self.counters.copies += 1;
                    }
                    self.hold(block.storage, output);
                }
            }
        }
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
        let (op, kinds) = if run.repetition == 0 {
            let pending = self.pending.take().ok_or_else(|| HostError("a call without an op".to_owned()))?;
            if let Some(op) = pending.again {
                self.records.insert(run.call, Box::new(Recorded { op, outputs: pending.outputs.clone() }));
            }
            (pending.now, pending.outputs)
        } else {
            let known = self.records.get(&run.call);
            let known = known.ok_or_else(|| HostError("an op that was not recorded".to_owned()))?;
            (known.op.clone(), known.outputs.clone())
        };
        self.again = run.repetition > 0;
        // The address of each input, and whether the backend may overwrite it.
        let mut inputs = Vec::with_capacity(run.reads.len());
        for (tensor, block) in op.inputs().zip(run.reads) {
            let free = tensor.status == TensorStatus::ReadWrite;
            inputs.push((self.slot(block.storage).address, free));
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
            let made: u64 =
                kinds.iter().map(|kind| if let Output::Fresh(size) = kind { size.0 } else { 0 }).sum();
            let most = (meter.mark)().saturating_sub(before) as u64;
            self.counters.temporaries = self.counters.temporaries.max(most.saturating_sub(made));
        }
        self.settle(run, &outputs, &kinds, &inputs);
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
        self.records.remove(&call);
    }

    fn clock(&mut self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn generator(&mut self) -> Option<u64> {
        if B::HOST_DRAWS { self.draws.state() } else { Some(self.draws.next_seed()) }
    }
}
