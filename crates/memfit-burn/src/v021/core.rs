//! From Burn's operations to the engine's calls.

use std::time::{Duration, Instant};

use burn_backend::{DType, ExecutionError, TensorData};
use burn_ir::{OperationIr, TensorId as BurnId, TensorIr, TensorStatus};
use burn_std::future::DynFut;
use memfit::engine::kit::map_bytes;
use memfit::engine::{Call, Engine, Fault, HostError, Output, TensorId};
use memfit::ir::{Effect, Need, Role};
use memfit::tiers::Shelf;
use memfit::{Bytes, Nanos};
use rustc_hash::FxHashMap;

use super::asked::{bad, room, settings};
use super::backend::Backend;
use super::host::BurnHost;
use super::old::Old;
use super::ops;
use super::own;
use super::quantized::kept;
use super::recipe::Made;
use super::scratch::{signature, taken};
use super::span::span;
use super::steps::Steps;
use crate::settings::{Mode, Options};

/// A tensor that the program holds.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) tensor: TensorId,
    /// Whether it can't be computed again: brought in, or written over what was there before, or kept when the past was cut. By
    /// what the program does alone, and not by what the engine keeps in place at the time: steps are to be alike.
    pub(super) root: bool,
    /// Whether it was there when the past was last cut. Before the first cut, whether it was [`Known::begun`] and an op has read
    /// it that did not end it, as all do with parameters.
    pub(super) old: bool,
    /// Whether it was brought in or filled from nothing before the first cut.
    pub(super) begun: bool,
    /// The old tensor whose place it takes, if that ends [in another thread](Old).
    pub(super) heir_of: Option<BurnId>,
}

/// The same with what decides whether an op on it makes a view.
pub(super) struct Entry<L> {
    pub(super) known: Known,
    pub(super) layout: L,
}

/// Everything that belongs to one device.
pub(super) struct Core<B: Backend> {
    pub(super) engine: Engine<'static, BurnHost<B>>,
    pub(super) steps: Steps,
    pub(super) options: Options,
    pub(super) fault: Option<Fault>,
    /// Whether there ever was one.
    pub(super) failed: bool,
    pub(super) tensors: FxHashMap<BurnId, Entry<B::Layout>>,
    pub(super) old: Old,
    /// Names of ops, by their codes.
    kinds: FxHashMap<u64, String>,
    lists: Lists,
    /// Time between Burn and the backend.
    pub(super) own: Duration,
}

/// What is known of the op at hand: lists that are used again and again.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) operands: Vec<Operand>,
    pub(super) reads: Vec<TensorId>,
    pub(super) needs: Vec<Need>,
    pub(super) outputs: Vec<Output>,
    pub(super) dying: Vec<Dying>,
    pub(super) made: Vec<TensorId>,
}

/// What an op reads.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub(super) id: BurnId,
    pub(super) known: Known,
    /// Whether it ends with the op.
    pub(super) ends: bool,
    pub(super) bytes: u64,
}

impl Operand {
    /// The old tensor whose place may be taken by what an optimizer makes of this one: itself where it stays, or the one it was made of.
    fn leaves_place(&self) -> Option<BurnId> {
        if self.known.old {
            Some(self.id).filter(|_| !self.ends)
        } else {
            self.known.heir_of.filter(|_| self.ends)
        }
    }
}

/// What ends with an op.
#[derive(Clone, Copy)]
pub(super) struct Dying {
    pub(super) id: BurnId,
    pub(super) tensor: TensorId,
    /// Whether its bytes may be overwritten.
    pub(super) free: bool,
}

/// How an op is to run.
pub(super) struct Shape {
    pub(super) made: Made,
    pub(super) effect: Effect,
    /// Made to stay: the output of an update.
    pub(super) update: Option<BurnId>,
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

    /// Brings `data` in under the name `id`. Returns the type that it has here.
    pub(super) fn put(&mut self, id: BurnId, data: TensorData) -> Result<DType, Fault> {
        let (shape, dtype) = (data.shape.clone(), kept::<B>(data.dtype)?);
        let tensor = TensorIr { id, shape, dtype, status: TensorStatus::ReadOnly };
        self.put_with(&tensor, |host| host.runner.put(id, data))?;
        Ok(dtype)
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
        let begun = !self.old.cut;
        self.hold(tensor, layout, Known { tensor: made, root: true, old: false, begun, heir_of: None });
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
        if known.old {
            self.old.goes_on();
        }
        if let Some(of) = known.heir_of {
            self.old.inherits(tensor.id, of);
        }
        self.tensors.insert(tensor.id, Entry { known, layout });
    }

    /// The program gives `id` up.
    fn end(&mut self, id: BurnId) -> Result<(), Fault> {
        let Some(entry) = self.tensors.remove(&id) else { return Ok(()) };
        if entry.known.old
            && let Some(heir) = self.old.end(id)
            && let Some(heir) = self.tensors.get_mut(&heir)
            && !std::mem::replace(&mut heir.known.old, true)
        {
            self.old.goes_on();
        }
        self.engine.del(entry.known.tensor)
    }

    fn run(&mut self, mut op: OperationIr, lists: &mut Lists) -> Result<(), Fault> {
        if let OperationIr::Custom(custom) = &op
            && !own::is_own(custom)
        {
            return Err(Fault::BadCall(format!("custom op `{}` can't be run by Burn's router", custom.id)));
        }
        if lists.operands.iter().any(|operand| operand.known.old) {
            self.old.is_read();
        }
        if !self.plans() {
            self.cut_heirs_off()?;
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
        let heir_of =
            operands.first().filter(|_| ops::is_update(&op) && !old).and_then(Operand::leaves_place);
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
                self.hold(output, layout, Known { tensor, root, old, begun, heir_of });
            }
            self.engine.host.pending = Some(pending);
        }
        for operand in operands.iter().filter(|operand| operand.known.begun && !operand.ends) {
            if let Some(entry) = self.tensors.get_mut(&operand.id)
                && !std::mem::replace(&mut entry.known.old, true)
            {
                self.old.add();
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

    /// What has taken the place of parameters is what it is: nobody should have to train from the start to have it back. Nothing else is
    /// cut off from its past, since this may be in mid-step.
    fn cut_heirs_off(&mut self) -> Result<(), Fault> {
        let arrived = self.old.take_arrived();
        if arrived.is_empty() {
            return Ok(());
        }
        let held = arrived.iter().filter_map(|id| Some(self.tensors.get(id)?.known.tensor));
        let held: Vec<TensorId> = held.collect();
        match self.engine.cut_off(&held) {
            Ok(()) => {}
            // The past stays then, as where it's cut.
            Err(Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::Thrashing(_)) => return Ok(()),
            Err(fault) => return Err(fault),
        }
        for id in arrived {
            if let Some(entry) = self.tensors.get_mut(&id) {
                entry.known.root = true;
            }
        }
        Ok(())
    }

    /// All that the program holds is old from now on; with the past gone, it can't be computed again either.
    pub(super) fn grow_old(&mut self, gone: bool) {
        self.tensors.values_mut().map(|entry| &mut entry.known).for_each(|known| {
            known.old = true;
            known.root |= gone;
        });
        self.old.are(self.tensors.len());
    }

    /// Reads a tensor.
    pub(super) fn read(
        &mut self,
        tensor: &TensorIr,
    ) -> Result<DynFut<Result<TensorData, ExecutionError>>, Fault> {
        let named = self.named(tensor.id)?;
        self.engine.get(named)?;
        self.engine.host.runner.check()?;
        let data = self.engine.host.runner.read(ops::read_only(tensor));
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
