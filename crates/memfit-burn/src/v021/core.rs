//! From Burn's operations to the engine's calls.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use burn_backend::{DType, ExecutionError, TensorData};
use burn_ir::{OperationIr, TensorId as BurnId, TensorIr, TensorStatus};
use burn_router::RunnerClient as _;
use burn_std::future::DynFut;
use memfit::engine::kit::map_bytes;
use memfit::engine::{Block, Call, Engine, Fate, Fault, HostError, Output, StorageId, TensorId};
use memfit::ir::{Effect, Need, Role};
use memfit::tiers::Shelf;
use memfit::{Bytes, Nanos};
use rustc_hash::FxHashMap;

use super::asked::{bad, room, settings};
use super::backend::Backend;
use super::host::BurnHost;
use super::ops;
use super::own;
use super::recipe::Made;
use super::scratch::{signature, taken};
use super::span::span;
use super::steps::Steps;
use crate::settings::{Mode, Options};

/// A tensor that the program holds.
#[derive(Clone, Copy)]
struct Known {
    tensor: TensorId,
    /// Whether it can't be computed again: brought in, or written over what was there before, or kept when the past was cut. By
    /// what the program does alone, and not by what the engine keeps in place at the time: steps are to be alike.
    root: bool,
    /// Whether it was there when the past was last cut. Before the first cut, whether it was [`Known::begun`] and an op has read
    /// it that did not end it, as all do with parameters.
    old: bool,
    /// Whether it was brought in or filled from nothing before the first cut.
    begun: bool,
}

/// How many tensors are [old](Known::old): at most, and now. An optimizer that replaces the parameters leaves none. Not their
/// bytes: a large batch goes before that, too.
#[derive(Clone, Copy, Default)]
struct Old {
    most: usize,
    now: usize,
    /// Whether the past was ever cut.
    cut: bool,
}

impl Old {
    /// Whether all but an eighth has gone.
    fn has_gone(self) -> bool {
        self.now <= self.most / 8 && self.most > 0
    }
}

/// The same with what decides whether an op on it makes a view.
struct Entry<L> {
    known: Known,
    layout: L,
}

/// Everything that belongs to one device.
pub(super) struct Core<B: Backend> {
    pub(super) engine: Engine<'static, BurnHost<B>>,
    pub(super) steps: Steps,
    pub(super) options: Options,
    pub(super) fault: Option<Fault>,
    /// Whether there ever was one.
    pub(super) failed: bool,
    tensors: FxHashMap<BurnId, Entry<B::Layout>>,
    old: Old,
    /// Names of ops, by their codes.
    kinds: FxHashMap<u64, String>,
    lists: Lists,
    /// Time between Burn and the backend.
    pub(super) own: Duration,
}

/// What is known of the op at hand: lists that are used again and again.
#[derive(Default)]
struct Lists {
    operands: Vec<Operand>,
    reads: Vec<TensorId>,
    needs: Vec<Need>,
    outputs: Vec<Output>,
    dying: Vec<Dying>,
    made: Vec<TensorId>,
}

/// What an op reads.
#[derive(Clone, Copy)]
struct Operand {
    id: BurnId,
    known: Known,
    /// Whether it ends with the op.
    ends: bool,
    bytes: u64,
}

/// What ends with an op.
#[derive(Clone, Copy)]
struct Dying {
    id: BurnId,
    tensor: TensorId,
    /// Whether its bytes may be overwritten.
    free: bool,
}

/// How an op is to run.
struct Shape {
    made: Made,
    effect: Effect,
    /// Made to stay: the output of an update.
    update: Option<BurnId>,
}

impl<B: Backend> Core<B> {
    pub(super) fn new(device: B::Device, options: Options) -> Result<Core<B>, Fault> {
        let shelf = Shelf::new(room(&options)).map_err(|error| bad(error.into()))?;
        let mut host = BurnHost::new(device, shelf);
        host.meter = options.meter;
        host.counts_scratch = options.scratch && options.meter.is_some();
        Ok(Core {
            engine: Engine::new(host, settings(&options)?)?,
            steps: Steps::new(&options)?,
            options,
            fault: None,
            failed: false,
            tensors: FxHashMap::default(),
            old: Old::default(),
            kinds: FxHashMap::default(),
            lists: Lists::default(),
            own: Duration::ZERO,
        })
    }

    /// The most that all tables have taken.
    pub(super) fn table_bytes(&self) -> u64 {
        let tensors = map_bytes::<BurnId, Entry<B::Layout>>(self.tensors.capacity());
        self.engine.table_bytes().0 + (self.engine.host.table_bytes() + tensors) as u64
    }

    /// Tensors that the program holds.
    pub(super) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// The engine's name of a tensor that the program holds.
    pub(super) fn named(&self, id: BurnId) -> Result<TensorId, Fault> {
        self.known(id).map(|known| known.tensor)
    }

    fn known(&self, id: BurnId) -> Result<Known, Fault> {
        let known = self.tensors.get(&id).map(|entry| entry.known);
        known.ok_or_else(|| {
            Fault::BadCall(format!("tensor `{id}` is not there: memfit was enabled after it was made"))
        })
    }

    /// Brings `data` in under the name `id`.
    pub(super) fn put(&mut self, id: BurnId, data: TensorData) -> Result<(), Fault> {
        if let DType::QFloat(_) = data.dtype {
            return Err(Fault::BadCall("quantized tensors are not supported".to_owned()));
        }
        let shape = data.shape.clone();
        let tensor = TensorIr { id, shape, dtype: data.dtype, status: TensorStatus::ReadOnly };
        self.put_with(&tensor, |host| host.runner.put(id, data))
    }

    /// Brings in a tensor whose handle `register` makes.
    pub(super) fn put_with(
        &mut self,
        tensor: &TensorIr,
        register: impl FnOnce(&mut BurnHost<B>) -> Result<(), HostError>,
    ) -> Result<(), Fault> {
        let made = self.engine.put(Bytes(ops::bytes(tensor).max(1)), Role::Input)?;
        register(&mut self.engine.host)?;
        let storage = self.engine.storage_of(made).ok_or(Fault::Unknown(made))?;
        let layout = self.engine.host.hold(storage, tensor);
        self.hold(tensor, layout, Known { tensor: made, root: true, old: false, begun: !self.old.cut });
        Ok(())
    }

    /// Runs `op`, or ends a tensor.
    pub(super) fn register(&mut self, op: OperationIr) -> Result<(), Fault> {
        let (started, busy) = (Instant::now(), self.engine.host.busy);
        let served = self.serve(op);
        self.own += started.elapsed().saturating_sub(self.engine.host.busy - busy);
        served
    }

    fn serve(&mut self, op: OperationIr) -> Result<(), Fault> {
        match &op {
            OperationIr::Drop(tensor) => return self.end(tensor.id),
            // Says that a tensor has been brought in, which is known.
            OperationIr::Init(_) => return Ok(()),
            _ => {}
        }
        let mut lists = std::mem::take(&mut self.lists);
        let ran = self.look(&op, &mut lists.operands);
        if ran.is_err() {
            let ending = op.inputs().filter(|tensor| tensor.status == TensorStatus::ReadWrite);
            let ending: Vec<BurnId> = ending.map(|tensor| tensor.id).collect();
            ending.into_iter().try_for_each(|tensor| self.end(tensor))?;
        }
        let ran = ran.and_then(|()| {
            let ran = self.run(op, &mut lists);
            if ran.is_err() {
                let mut ending = lists.operands.iter().filter(|operand| operand.ends);
                ending.try_for_each(|operand| self.end(operand.id))?;
            }
            ran
        });
        self.lists = lists;
        ran
    }

    /// What `op` reads, and what is known of it.
    fn look(&self, op: &OperationIr, operands: &mut Vec<Operand>) -> Result<(), Fault> {
        operands.clear();
        for input in op.inputs() {
            let ends = input.status == TensorStatus::ReadWrite;
            operands.push(Operand {
                id: input.id,
                known: self.known(input.id)?,
                ends,
                bytes: ops::bytes(input),
            });
        }
        Ok(())
    }

    /// The program holds `tensor`.
    fn hold(&mut self, tensor: &TensorIr, layout: B::Layout, known: Known) {
        self.old.now += usize::from(known.old);
        self.tensors.insert(tensor.id, Entry { known, layout });
    }

    /// The program gives `id` up.
    fn end(&mut self, id: BurnId) -> Result<(), Fault> {
        let Some(entry) = self.tensors.remove(&id) else { return Ok(()) };
        if entry.known.old {
            self.old.now -= 1;
        }
        self.engine.del(entry.known.tensor)
    }

    fn run(&mut self, mut op: OperationIr, lists: &mut Lists) -> Result<(), Fault> {
        if let OperationIr::Custom(custom) = &op
            && !own::is_own(custom)
        {
            return Err(Fault::BadCall(format!("custom op `{}` can't be run by Burn's router", custom.id)));
        }
        if !self.plans() {
            // Not every program says where a step ends, and not every optimizer shows it.
            if self.old.has_gone() {
                self.cut()?;
            } else if self.engine.is_past_long() {
                self.engine.cut_past()?;
            }
        }
        let mut pending = self.engine.host.pending.take().unwrap_or_default();
        pending.note_outputs(&op);
        let shape = self.shape(&op, &pending.outputs, lists)?;
        let Lists { operands, reads, needs, outputs, dying, made } = lists;
        ops::needs(&op, needs);
        let repeatable = matches!(shape.effect, Effect::Pure | Effect::Seeded);
        pending.text.clear();
        if repeatable && !pending.text.write(&op, pending.outputs.len(), shape.made) {
            return Err(Fault::BadCall(format!("can't write down `{op:?}`")));
        }
        reads.clear();
        reads.extend(operands.iter().map(|operand| operand.known.tensor));
        let spared = |id: BurnId| dying.iter().any(|dying| dying.id == id && !dying.free);
        if dying.iter().any(|dying| !dying.free) {
            op.mark_read_only(
                &dying.iter().map(|dying| dying.id).filter(|&id| spared(id)).collect::<Vec<BurnId>>(),
            );
        }
        pending.free.clear();
        pending.free.extend(operands.iter().map(|operand| operand.ends && !spared(operand.id)));
        // A parameter that was written over is one still.
        let (old, begun) = (shape.update.is_some(), !self.old.cut && ops::is_creation(&op));
        let root = shape.effect == Effect::Once;
        let kind = self.kinds.entry(ops::code(&op)).or_insert_with(|| ops::name(&op));
        let workspace = match &mut self.engine.host {
            host if host.counts_scratch => taken(&mut host.profiles, signature(&op)),
            _ => Bytes::ZERO,
        };
        (pending.op, pending.made) = (Some(op), shape.made);
        self.engine.host.pending = Some(pending);
        made.clear();
        let effect = shape.effect;
        let call = Call { kind, reads, needs, outputs, time: Nanos(1), workspace, effect, ..Call::default() };
        if let Err(fault) = self.engine.apply(&call, made) {
            let pending = self.engine.host.pending.as_ref();
            return Err(ops::with_shapes(fault, call.kind, pending.and_then(|pending| pending.op.as_ref())));
        }
        if let Some(mut pending) = self.engine.host.pending.take() {
            for ((output, &tensor), layout) in
                pending.outputs.iter().zip(&*made).zip(pending.layouts.drain(..))
            {
                self.hold(output, layout, Known { tensor, root, old, begun });
            }
            self.engine.host.pending = Some(pending);
        }
        for operand in operands.iter().filter(|operand| operand.known.begun && !operand.ends) {
            if let Some(entry) = self.tensors.get_mut(&operand.id)
                && !std::mem::replace(&mut entry.known.old, true)
            {
                self.old.now += 1;
                self.old.most = self.old.most.max(self.old.now);
            }
        }
        for &Dying { id, tensor, free } in &*dying {
            // Its bytes may be another tensor's by now.
            if free && shape.update != Some(id) {
                self.engine.drop(tensor)?;
            }
            self.end(id)?;
        }
        Ok(())
    }

    /// What is made of `op`'s inputs and outputs.
    fn shape(&mut self, op: &OperationIr, made_of: &[TensorIr], lists: &mut Lists) -> Result<Shape, Fault> {
        let Lists { operands, outputs, dying, .. } = lists;
        let mut effect = ops::effect(op);
        dying.clear();
        let ending = operands.iter().filter(|operand| operand.ends);
        dying.extend(ending.map(|operand| Dying {
            id: operand.id,
            tensor: operand.known.tensor,
            free: false,
        }));
        let view = operands.first().is_some_and(|input| {
            self.tensors.get(&input.id).is_some_and(|entry| B::shares(op, &entry.layout))
        });
        let mut update = None;
        if !view && ops::overwrites(op) {
            update = self.updates(op, operands)?;
        }
        let made = match (view, update) {
            (true, _) => Made::View,
            (false, Some(_)) => Made::Over,
            (false, None) => Made::Fresh,
        };
        outputs.clear();
        outputs.extend(made_of.iter().map(|output| match made {
            Made::View => Output::View(0),
            Made::Over => Output::InPlace(0),
            Made::Fresh => Output::Fresh(Bytes(ops::bytes(output).max(1))),
        }));
        let size: u64 = made_of.iter().map(ops::bytes).sum();
        let lost = self.lost(operands)?;
        // A source that ends here would have to stay for the sake of what is made of it, which is no larger: then the
        // latter stays, and the source goes.
        if update.is_some() || (!view && lost > 0 && lost >= size) {
            effect = Effect::Once;
        }
        if !view {
            for Dying { id, tensor, free } in dying {
                *free = match self.engine.fate(*tensor)? {
                    _ if update == Some(*id) => true,
                    Fate::Repeatable => !self.engine.is_read_again(*tensor),
                    // Nothing needs it, but the op itself if it may run again.
                    Fate::Free => effect == Effect::Once,
                    Fate::Held | Fate::Needed => false,
                };
            }
        }
        Ok(Shape { made, effect, update })
    }

    /// Bytes of sources that end with an op, and that nothing else needs.
    fn lost(&self, operands: &[Operand]) -> Result<u64, Fault> {
        let mut lost = 0;
        for operand in operands.iter().filter(|operand| operand.ends && operand.known.root) {
            if self.engine.fate(operand.known.tensor)? == Fate::Free {
                lost += operand.bytes;
            }
        }
        Ok(lost)
    }

    /// Whether `op` writes its first operand over: one that ends here, and that nothing needs, or that is a parameter.
    fn updates(&mut self, op: &OperationIr, operands: &[Operand]) -> Result<Option<BurnId>, Fault> {
        let Some(input) = operands.first().filter(|input| input.ends) else { return Ok(None) };
        let known = input.known;
        let fate = self.engine.fate(known.tensor)?;
        // What has been made since the past was cut is no parameter: targets and noise are subtracted from too.
        let parameter = ops::is_update(op) && known.old && (self.old.cut || self.holds_little(operands));
        let writes = match fate {
            Fate::Held => false,
            Fate::Free => known.root || parameter,
            Fate::Needed | Fate::Repeatable => parameter,
        };
        // The first parameter that an optimizer writes: what led to the gradients is history. What the program holds
        // stays, and the rest goes. In planned mode that happens at the end of the step.
        if writes && fate != Fate::Free && !self.plans() {
            self.cut()?;
            // An optimizer that shows itself needs no other sign; of what is held here, much goes in mid-step.
            self.old.most = 0;
        }
        if writes && self.engine.is_evictable(known.tensor) {
            // From now on it's what it is: nobody should have to train from the start to have it back.
            self.engine.ground(known.tensor)?;
        }
        Ok(writes.then_some(input.id))
    }

    /// Whether gradients and an optimizer's state are all that the program can hold, beside what is old and `operands`: no more than two
    /// times as much as that. Before the past was ever cut, noise that has been read looks like a parameter, but the activations that wait
    /// for the backward pass are there as well then.
    fn holds_little(&self, operands: &[Operand]) -> bool {
        let mut bytes: BTreeMap<StorageId, (bool, u64)> = BTreeMap::new();
        for Known { tensor, old, .. } in self.tensors.values().map(|entry| entry.known) {
            let Some(Block { storage: Some(storage), size, .. }) = self.engine.block_of(tensor) else {
                continue;
            };
            let is_operand = operands.iter().any(|operand| operand.known.tensor == tensor);
            let (is_old, size_of) = bytes.entry(storage).or_insert((false, size.0));
            *is_old |= old;
            *size_of = if is_operand && !old { 0 } else { *size_of };
        }
        let sum = |of: bool| bytes.values().filter(|(old, _)| *old == of).map(|(_, size)| size).sum::<u64>();
        sum(false) <= 2 * sum(true)
    }

    /// Whether steps are recorded: then they all must do the same in the same way.
    pub(super) fn plans(&self) -> bool {
        self.options.record || self.options.mode == Mode::Planned
    }

    /// Forgets the past, if there is room for all that is held.
    pub(super) fn cut(&mut self) -> Result<(), Fault> {
        span!("cut", tensors = self.tensors.len());
        // If there is none the past stays, and with it a way back to what is held.
        match self.engine.cut() {
            Ok(()) => self.grow_old(true),
            Err(Fault::NoRoom(_)) => self.grow_old(false),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// All that the program holds is old from now on; with the past gone, it can't be computed again either.
    pub(super) fn grow_old(&mut self, gone: bool) {
        self.tensors.values_mut().map(|entry| &mut entry.known).for_each(|known| {
            known.old = true;
            known.root |= gone;
        });
        self.old = Old { most: self.tensors.len(), now: self.tensors.len(), cut: true };
    }

    /// Reads a tensor.
    pub(super) fn read(
        &mut self,
        tensor: &TensorIr,
    ) -> Result<DynFut<Result<TensorData, ExecutionError>>, Fault> {
        let named = self.named(tensor.id)?;
        self.engine.get(named)?;
        self.engine.host.runner.check()?;
        let data = self.engine.host.runner.inner().read_tensor_async(ops::read_only(tensor));
        if tensor.status == TensorStatus::ReadWrite {
            self.end(tensor.id)?;
        }
        Ok(data)
    }

    /// The handle of a tensor, to be taken elsewhere.
    pub(super) fn handle(&mut self, tensor: &TensorIr) -> Result<B::Handle, Fault> {
        let named = self.named(tensor.id)?;
        self.engine.get(named)?;
        self.engine.host.runner.check()?;
        let handle = self.engine.host.runner.handle(&ops::read_only(tensor));
        if tensor.status == TensorStatus::ReadWrite {
            self.end(tensor.id)?;
        }
        Ok(handle)
    }
}
