//! From Burn's operations to the engine's calls.

use std::collections::BTreeMap;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use burn_backend::{DType, ExecutionError, TensorData};
use burn_ir::{OperationIr, TensorId as BurnId, TensorIr, TensorStatus};
use burn_router::RunnerClient as _;
use burn_std::future::DynFut;
use memfit::engine::{Call, Engine, Fate, Fault, Output, Settings, TensorId};
use memfit::ir::{Effect, Role};
use memfit::{Bytes, Nanos};

use super::backend::Backend;
use super::host::{BurnHost, Pending};
use super::ops;
use super::recipe::{Made, Pen};
use super::steps::Steps;
use crate::settings::{Mode, Options};

/// A tensor that the program holds.
#[derive(Clone, Copy)]
struct Known {
    tensor: TensorId,
    /// Whether it can't be computed again: brought in, or written over what was there before, or kept when the past went.
    root: bool,
    /// Whether it was filled from nothing, and nothing has been written over it.
    created: bool,
    /// Whether an op has read it.
    read: bool,
}

/// Everything that belongs to one device.
pub(super) struct Core<B: Backend> {
    pub(super) engine: Engine<'static, BurnHost<B>>,
    pub(super) steps: Steps,
    pub(super) options: Options,
    pub(super) fault: Option<Fault>,
    /// Whether there ever was one.
    pub(super) failed: bool,
    tensors: BTreeMap<BurnId, Known>,
    thread: Option<ThreadId>,
    kind: String,
    made: Vec<TensorId>,
    /// What the op at hand reads.
    operands: Vec<Operand>,
    /// The most tensors that the program has held at once.
    most: usize,
    pen: Pen,
    /// Time between Burn and the backend.
    pub(super) own: Duration,
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

/// How an op is to run.
struct Shape {
    outputs: Vec<Output>,
    made: Made,
    effect: Effect,
    /// Tensors that end with it, each once, and whether their bytes may be overwritten.
    dying: Vec<(BurnId, TensorId, bool)>,
    /// Made to stay: the output of an update.
    update: Option<BurnId>,
}

pub(super) fn settings(options: &Options) -> Settings {
    Settings {
        // The backend's allocator chooses addresses: here bytes are counted.
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        patience: Nanos(u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX)),
        ..Settings::new(options.budget.bytes())
    }
}

impl<B: Backend> Core<B> {
    pub(super) fn new(device: B::Device, options: Options) -> Result<Core<B>, Fault> {
        let mut host = BurnHost::new(device);
        host.meter = options.meter;
        Ok(Core {
            engine: Engine::new(host, settings(&options))?,
            steps: Steps::default(),
            options,
            fault: None,
            failed: false,
            tensors: BTreeMap::new(),
            thread: None,
            kind: String::new(),
            made: Vec::new(),
            operands: Vec::new(),
            most: 0,
            pen: Pen::default(),
            own: Duration::ZERO,
        })
    }

    /// The most that all tables have taken.
    pub(super) fn table_bytes(&self) -> u64 {
        // A node of the map is a little more than half full.
        let named = self.most * size_of::<(BurnId, Known)>() * 3 / 2;
        self.engine.table_bytes().0 + (self.engine.host.table_bytes() + named) as u64
    }

    /// Tensors that the program holds.
    pub(super) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Refuses a second thread: a tensor's last use and its end could overtake each other.
    fn same_thread(&mut self) -> Result<(), Fault> {
        let here = std::thread::current().id();
        if *self.thread.get_or_insert(here) == here {
            return Ok(());
        }
        Err(Fault::BadCall(
            "memfit's tensors belong to the thread that made the first of them on their device; \
             train on one thread for each device"
                .to_owned(),
        ))
    }

    fn known(&self, tensor: &TensorIr) -> Result<Known, Fault> {
        let known = self.tensors.get(&tensor.id).copied();
        known.ok_or_else(|| {
            Fault::BadCall(format!(
                "tensor `{}` is not there: memfit was enabled after it was made",
                tensor.id
            ))
        })
    }

    /// Brings `data` in under the name `id`.
    pub(super) fn put(&mut self, id: BurnId, data: TensorData) -> Result<(), Fault> {
        self.same_thread()?;
        if let DType::QFloat(_) = data.dtype {
            return Err(Fault::BadCall("quantized tensors are not supported".to_owned()));
        }
        let shape = data.shape.clone();
        let tensor = TensorIr { id, shape, dtype: data.dtype, status: TensorStatus::ReadOnly };
        self.put_with(&tensor, |host| host.runner.register_tensor_data_id(id, data))
    }

    /// Brings in a tensor whose handle `register` makes.
    pub(super) fn put_with(
        &mut self,
        tensor: &TensorIr,
        register: impl FnOnce(&mut BurnHost<B>),
    ) -> Result<(), Fault> {
        let made = self.engine.put(Bytes(ops::bytes(tensor).max(1)), Role::Input)?;
        register(&mut self.engine.host);
        if let Some(block) = self.engine.block_of(made) {
            self.engine.host.hold(block.storage, tensor);
        }
        self.tensors.insert(tensor.id, Known { tensor: made, root: true, created: false, read: false });
        Ok(())
    }

    /// Runs `op`, or ends a tensor.
    pub(super) fn register(&mut self, op: OperationIr) -> Result<(), Fault> {
        match &op {
            OperationIr::Drop(tensor) => return self.end(tensor.id),
            // Says that a tensor has been brought in, which is known.
            OperationIr::Init(_) => return Ok(()),
            _ => {}
        }
        let mut operands = std::mem::take(&mut self.operands);
        operands.clear();
        let (started, busy) = (Instant::now(), self.engine.host.busy);
        let ran = self.same_thread().and_then(|()| self.look(&op, &mut operands));
        if ran.is_err() {
            let ending = op.inputs().filter(|tensor| tensor.status == TensorStatus::ReadWrite);
            let ending: Vec<BurnId> = ending.map(|tensor| tensor.id).collect();
            ending.into_iter().try_for_each(|tensor| self.end(tensor))?;
        }
        let ran = ran.and_then(|()| {
            let ran = self.run(op, &operands);
            if ran.is_err() {
                let mut ending = operands.iter().filter(|operand| operand.ends);
                ending.try_for_each(|operand| self.end(operand.id))?;
            }
            ran
        });
        self.own += started.elapsed().saturating_sub(self.engine.host.busy - busy);
        self.operands = operands;
        ran
    }

    /// What `op` reads, and what is known of it.
    fn look(&self, op: &OperationIr, operands: &mut Vec<Operand>) -> Result<(), Fault> {
        for input in op.inputs() {
            let ends = input.status == TensorStatus::ReadWrite;
            operands.push(Operand {
                id: input.id,
                known: self.known(input)?,
                ends,
                bytes: ops::bytes(input),
            });
        }
        Ok(())
    }

    /// The program gives `id` up.
    fn end(&mut self, id: BurnId) -> Result<(), Fault> {
        let Some(known) = self.tensors.remove(&id) else { return Ok(()) };
        self.engine.host.forget_layout(id);
        self.engine.del(known.tensor)
    }

    fn run(&mut self, mut op: OperationIr, operands: &[Operand]) -> Result<(), Fault> {
        if let OperationIr::Custom(custom) = &op {
            return Err(Fault::BadCall(format!("custom op `{}` can't be run by Burn's router", custom.id)));
        }
        let shape = self.shape(&op, operands)?;
        let repeatable = matches!(shape.effect, Effect::Pure | Effect::Seeded);
        let recipe = if repeatable { self.pen.write(&op, shape.made) } else { None };
        if repeatable && recipe.is_none() {
            return Err(Fault::BadCall(format!("can't write down `{op:?}`")));
        }
        let reads: Vec<TensorId> = operands.iter().map(|operand| operand.known.tensor).collect();
        let written: Vec<BurnId> = op.outputs().map(|output| output.id).collect();
        let mut kind = std::mem::take(&mut self.kind);
        ops::name(&op, &mut kind);
        let created = ops::is_creation(&op);
        if shape.dying.iter().any(|(_, _, free)| !free) {
            let spared = shape.dying.iter().filter(|(_, _, free)| !free);
            op.mark_read_only(&spared.map(|&(id, _, _)| id).collect::<Vec<BurnId>>());
        }
        self.engine.host.pending = Some(Pending { op, recipe, made: shape.made });
        self.made.clear();
        let call = Call {
            kind: &kind,
            reads: &reads,
            outputs: &shape.outputs,
            time: Nanos(1),
            workspace: Bytes::ZERO,
            effect: shape.effect,
        };
        let ran = self.engine.apply(&call, &mut self.made);
        self.kind = kind;
        ran?;
        for (&output, &tensor) in written.iter().zip(&self.made) {
            let root = shape.effect == Effect::Once;
            self.tensors.insert(output, Known { tensor, root, created, read: false });
        }
        self.most = self.most.max(self.tensors.len());
        for operand in operands.iter().filter(|operand| !operand.known.read && !operand.ends) {
            if let Some(known) = self.tensors.get_mut(&operand.id) {
                known.read = true;
            }
        }
        for (id, tensor, free) in shape.dying {
            // Its bytes may be another tensor's by now, whatever a plan wants kept.
            if free && shape.update != Some(id) {
                self.engine.drop(tensor)?;
            }
            self.end(id)?;
        }
        Ok(())
    }

    /// What is made of `op`'s inputs and outputs.
    fn shape(&mut self, op: &OperationIr, operands: &[Operand]) -> Result<Shape, Fault> {
        let mut effect = ops::effect(op);
        let ending = operands.iter().filter(|operand| operand.ends);
        let mut dying: Vec<(BurnId, TensorId, bool)> =
            ending.map(|operand| (operand.id, operand.known.tensor, false)).collect();
        let view = operands.first().is_some_and(|input| {
            self.engine.host.layout(input.id).is_some_and(|layout| B::shares(op, layout))
        });
        let mut update = None;
        if !view
            && let Some(input) = operands.first()
            && ops::overwrites(op)
        {
            update = self.updates(op, input)?;
        }
        let made = match (view, update) {
            (true, _) => Made::View,
            (false, Some(_)) => Made::Over,
            (false, None) => Made::Fresh,
        };
        let outputs = op.outputs().map(|output| match made {
            Made::View => Output::View(0),
            Made::Over => Output::InPlace(0),
            Made::Fresh => Output::Fresh(Bytes(ops::bytes(output).max(1))),
        });
        let outputs: Vec<Output> = outputs.collect();
        let size: u64 = op.outputs().map(ops::bytes).sum();
        let lost = self.lost(operands)?;
        // A source that ends here would have to stay for the sake of what is made of it, which is no larger: then the
        // latter stays, and the source goes.
        if update.is_some() || (!view && lost > 0 && lost >= size) {
            effect = Effect::Once;
        }
        if !view {
            for (id, tensor, free) in &mut dying {
                *free = match self.engine.fate(*tensor)? {
                    _ if update == Some(*id) => true,
                    Fate::Repeatable => true,
                    // Nothing needs it, but the op itself if it may run again.
                    Fate::Free => effect == Effect::Once,
                    Fate::Held | Fate::Needed => false,
                };
            }
        }
        Ok(Shape { outputs, made, effect, dying, update })
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
    fn updates(&mut self, op: &OperationIr, input: &Operand) -> Result<Option<BurnId>, Fault> {
        if !input.ends {
            return Ok(None);
        }
        let known = input.known;
        let fate = self.engine.fate(known.tensor)?;
        let parameter = ops::is_update(op) && (known.root || (known.created && known.read));
        let writes = match fate {
            Fate::Held => false,
            Fate::Free => known.root || parameter,
            Fate::Needed | Fate::Repeatable => parameter,
        };
        // The first parameter that an optimizer writes: what led to the gradients is history. What the program holds
        // stays, and the rest goes. In planned mode that happens at the end of the step.
        if writes && fate != Fate::Free && !self.plans() {
            self.cut()?;
        }
        if writes && self.engine.is_evictable(known.tensor) {
            // From now on it's what it is: nobody should have to train from the start to have it back.
            self.engine.expose(known.tensor)?;
        }
        Ok(writes.then_some(input.id))
    }

    /// Whether steps are recorded: then they all must do the same in the same way.
    pub(super) fn plans(&self) -> bool {
        self.options.record || self.options.mode == Mode::Planned
    }

    /// Forgets the past, if there is room for all that is held.
    pub(super) fn cut(&mut self) -> Result<(), Fault> {
        match self.engine.cut() {
            Ok(()) => self.all_are_roots(),
            // Then the past stays, and with it a way back to what is held.
            Err(Fault::NoRoom(_)) => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// All that the program holds can't be computed again from now on.
    pub(super) fn all_are_roots(&mut self) {
        self.tensors.values_mut().for_each(|known| known.root = true);
    }

    /// Reads a tensor.
    pub(super) fn read(
        &mut self,
        tensor: &TensorIr,
    ) -> Result<DynFut<Result<TensorData, ExecutionError>>, Fault> {
        self.same_thread()?;
        let known = self.known(tensor)?;
        self.engine.get(known.tensor)?;
        let data = self.engine.host.runner.read_tensor_async(ops::read_only(tensor));
        if tensor.status == TensorStatus::ReadWrite {
            self.end(tensor.id)?;
        }
        Ok(data)
    }

    /// The handle of a tensor, to be taken elsewhere.
    pub(super) fn handle(&mut self, tensor: &TensorIr) -> Result<B::Handle, Fault> {
        self.same_thread()?;
        let known = self.known(tensor)?;
        self.engine.get(known.tensor)?;
        let handle = self.engine.host.runner.get_tensor_handle(&ops::read_only(tensor));
        if tensor.status == TensorStatus::ReadWrite {
            self.end(tensor.id)?;
        }
        Ok(handle)
    }
}
