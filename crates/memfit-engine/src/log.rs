//! The log: what the engine did, as a graph and a program over it that the judge can read.

mod copies;

use std::collections::BTreeMap;

use memfit_ir::{
    Buffer, BufferId, Bytes, Content, CopyId, Dtype, Effect, Form, Graph, GraphBuilder, GraphError, Layout,
    Nanos, Need, OpId, OpSpec, Place, Plan, Program, Reuse, Role, Step, StepId, Value, ValueId, ValueSpec,
};

use crate::call::Output;
use crate::host::Block;
use crate::maybe::Maybe;
use crate::plan::{Refusal, StepPlan, repeated_ns};
use crate::settings::Settings;
use crate::state::State;
use crate::table::next_index;
use crate::trace::{Event, Trace};

/// A step that was run: what it computes, and how it was done.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The calls, in their order. A view is a value of no bytes; who reads a view also reads its storage. What was
    /// put in after the first call is made by an op `put` that runs once.
    pub graph: Graph,
    /// What ran, went and came back.
    pub program: Program,
    /// Where; `None` if the allocator gives no addresses.
    pub layout: Option<Layout>,
    /// What the host did: what a planner plans. Its tensors are the values of the graph, by number.
    pub trace: Trace,
    /// Ns in which ops waited for copies, and for codecs.
    pub stall_ns: u64,
    /// Whether the step ended with storages in other places than it began with: then the program is none to run the step by once
    /// more, and no judge would pass it.
    pub moved_home: bool,
}

impl Recorded {
    /// The claim for a judge, if there are addresses.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let layout = self.layout.clone()?;
        Some(Plan { graph: self.graph.digest(), program: self.program.clone(), layout })
    }

    /// Ns that the program takes for ops that ran before.
    #[must_use]
    pub fn repeated_ns(&self) -> u64 {
        repeated_ns(&self.graph, &self.program)
    }

    /// Ns that it took beyond its first runs.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.repeated_ns().saturating_add(self.stall_ns)
    }

    /// The step as it ran within `settings`, once the judge has passed it. Without addresses, each buffer has bytes of its own.
    ///
    /// # Errors
    ///
    /// The judge's reasons: then this is no log of an engine's.
    pub fn judged(&self, settings: &Settings) -> Result<StepPlan, Box<Refusal>> {
        let (graph, program) = (self.graph.clone(), self.program.clone());
        match &self.layout {
            Some(layout) => {
                let height = layout.places.iter().zip(&program.buffers);
                let height = height.map(|(place, buffer)| place.offset + buffer.size).max();
                let capacity = height.unwrap_or_default().max(settings.budget);
                StepPlan::judge(graph, &settings.limits(capacity), program, layout.clone())
            }
            None => StepPlan::judge_unplaced(graph, settings, program),
        }
    }
}

/// Operands that a step of a program is taken to have, for an account of its bytes.
const OPERANDS: usize = 4;

/// Lies beside the step's own tensors while it grows, so its rows are small; what a graph has besides is written at the end.
#[derive(Debug, Default)]
pub(crate) struct Log {
    values: Vec<Row>,
    ops: Vec<Entry>,
    /// What ops read, and what they overwrite with what, one op after the other.
    reads: Vec<ValueId>,
    /// By op, what it needs of its reads, where that is not everything.
    needs: BTreeMap<usize, Vec<Need>>,
    overs: Vec<Reuse>,
    program: Program,
    places: Vec<Place>,
    trace: Trace,
    kinds: BTreeMap<String, usize>,
    /// Ns of waiting before it began.
    pub(crate) stalled: u64,
    /// See [`Recorded::moved_home`].
    moved_home: bool,
}

/// What a copy is called in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copied {
    /// It is in device memory.
    Here(BufferId),
    /// It is in another tier.
    Away(CopyId),
}

#[derive(Debug)]
struct Row {
    size: u64,
    role: Role,
    density: Option<f32>,
    sensitivity: Option<f32>,
    dtype: Dtype,
    /// The buffer it is in now.
    holder: Maybe<BufferId>,
    /// The version that was written over it, and the first of its storage.
    next_version: Maybe<ValueId>,
    first: ValueId,
    /// Where its storage began the step, if not in device memory.
    home: Option<Form>,
}

/// An op. What it makes are values that follow each other.
#[derive(Debug)]
struct Entry {
    /// Its call in the trace; none for what is put in between calls.
    event: Maybe<u32>,
    /// Where its reads and its overwritten operands end.
    reads: u32,
    overs: u32,
    /// The first value it makes, and how many.
    first: u32,
    count: u32,
}

impl Log {
    /// Bytes of its rows, with room that is kept for rows to come.
    pub(crate) fn bytes(&self) -> Bytes {
        let rows = self.values.capacity() * size_of::<Row>() + self.ops.capacity() * size_of::<Entry>();
        let operands =
            self.reads.capacity() * size_of::<ValueId>() + self.overs.capacity() * size_of::<Reuse>();
        let steps = self.program.steps.capacity() * (size_of::<Step>() + OPERANDS * size_of::<BufferId>());
        let buffers = self.program.buffers.capacity() * size_of::<Buffer>()
            + self.places.capacity() * size_of::<Place>();
        let events = self.trace.events.capacity() * size_of::<Event>();
        Bytes((rows + operands + steps + buffers + events) as u64)
    }

    /// `value` is taken to be as dense, of the type and as sensitive as a plan rests on.
    pub(crate) fn expect(&mut self, value: ValueId, planned: Value<'_>) {
        let this = &mut self.values[value.index()];
        (this.density, this.dtype) = (planned.density, planned.dtype);
        this.sensitivity = planned.sensitivity;
    }

    /// Gradients are so sensitive to `value`.
    pub(crate) fn sense(&mut self, value: ValueId, sensitivity: f32) {
        self.values[value.index()].sensitivity = Some(sensitivity);
    }

    /// `value` is of type `dtype`, and as dense as this, unless something rests on another density already.
    pub(crate) fn see(&mut self, value: ValueId, density: Option<f32>, dtype: Dtype) {
        let this = &mut self.values[value.index()];
        this.dtype = dtype;
        this.density = this.density.or(density);
    }

    /// The program has taken one more reference to `tensor`.
    pub(crate) fn share(&mut self, state: &State, tensor: u32) {
        self.trace.events.extend(state.tensor(tensor).value.get().map(|value| Event::Share(value.0)));
    }

    /// The program has given up a reference to `tensor`.
    pub(crate) fn release(&mut self, state: &State, tensor: u32) {
        self.trace.events.extend(state.tensor(tensor).value.get().map(|value| Event::Release(value.0)));
    }

    fn value(&mut self, size: u64, role: Role) -> ValueId {
        let (holder, next_version, first) = (Maybe::NONE, Maybe::NONE, ValueId::at(self.values.len()));
        let (density, dtype) = (None, Dtype::Other);
        let home = None;
        let sensitivity = None;
        self.values.push(Row { size, role, density, sensitivity, dtype, holder, next_version, first, home });
        first
    }

    fn buffer(&mut self, content: Content, size: Bytes, offset: Bytes, over: Option<BufferId>) -> BufferId {
        self.places.push(Place { bank: 0, offset: if size == Bytes::ZERO { Bytes::ZERO } else { offset } });
        self.program.buffer(content, size, over)
    }

    /// `tensor` is in memory without an op that makes it.
    pub(crate) fn put(&mut self, state: &mut State, tensor: u32, role: Role) {
        let storage = state.storage(state.storage_of(tensor));
        let size = if storage.root() == tensor { storage.size } else { 0 };
        let offset = Bytes(storage.offset);
        let source = self.ops.is_empty();
        let role = if source && !role.is_source() { Role::Input } else { role };
        let value = self.value(size, role);
        let buffer = self.buffer(Content::Value(value), Bytes(size), offset, None);
        if source {
            self.program.resident.push(buffer);
            self.trace.at.push(offset);
        } else {
            let op = OpId::at(self.ops.len());
            self.entry(Maybe::NONE, value.0);
            let step = self.program.compute(op, 0, [], [buffer], None);
            self.program.steps.push(step);
        }
        let this = &mut state.tensors[tensor as usize];
        (this.value, this.buffer) = (value.into(), buffer.into());
        self.values[value.index()].holder = buffer.into();
        self.trace.events.push(Event::Put { size: Bytes(size), role });
        for _ in 1..this.held {
            self.trace.events.push(Event::Share(value.0));
        }
    }

    /// Ends the description of an op that makes all values from `first` on.
    fn entry(&mut self, event: Maybe<u32>, first: u32) {
        self.ops.push(Entry {
            event,
            reads: next_index(self.reads.len()),
            overs: next_index(self.overs.len()),
            first,
            count: next_index(self.values.len()) - first,
        });
    }

    /// `record` has run; nothing of it is booked yet.
    pub(crate) fn compute(
        &mut self,
        state: &mut State,
        record: u32,
        kind: &str,
        (writes, taken): (&[Block], Option<usize>),
        workspace: Block,
    ) {
        let over = |output: Output| match output {
            Output::InPlace(of) => Some(of),
            Output::Takes(..) => taken,
            Output::Fresh(_) | Output::View(_) => None,
        };
        if state.record(record).runs == 1 {
            self.enter(state, record, kind);
        }
        let Some(op) = state.record(record).op.get() else { return };
        let Entry { first, count, .. } = self.ops[op.index()];
        let reads = self.operands(state, record);
        let buffers: Vec<BufferId> =
            reads.iter().filter_map(|&tensor| state.tensor(tensor).buffer.get()).collect();
        let (this, outputs) = (state.record(record), &state.class(record).outputs);
        let (mut made, mut gone) = (Vec::with_capacity(writes.len()), Vec::new());
        for (at, value) in (first..first + count).enumerate() {
            let size = Bytes(self.values[value as usize].size);
            let root = |of: usize| state.storage(state.storage_of(this.reads[of])).root();
            let over = over(outputs[at]).and_then(|of| state.tensor(root(of)).buffer.get());
            let buffer = self.buffer(Content::Value(ValueId(value)), size, writes[at].offset, over);
            made.push(buffer);
        }
        let scratch = (workspace.size > Bytes::ZERO)
            .then(|| self.buffer(Content::Workspace, workspace.size, workspace.offset, None));
        let step = self.program.compute(op, 0, buffers, made.iter().copied(), scratch);
        self.program.steps.push(step);
        let (this, outputs) = (state.record(record), &state.class(record).outputs);
        let mut fresh = Vec::new();
        for (at, (&written, &buffer)) in this.writes.iter().zip(&made).enumerate() {
            if let Some(of) = over(outputs[at]) {
                gone.push(state.storage_of(this.reads[of]));
            }
            let is_there = |written| match outputs[at] {
                Output::View(_) => state.tensor(written).defined,
                _ => state.storage(state.storage_of(written)).resident,
            };
            match written.get().filter(|&written| !is_there(written)) {
                Some(written) => fresh.push((written, first as usize + at, buffer)),
                None => self.program.steps.push(Step::Free(buffer)),
            }
        }
        for storage in gone {
            self.leave(state, storage, false);
        }
        for (tensor, value, buffer) in fresh {
            state.tensors[tensor as usize].buffer = buffer.into();
            self.values[value].holder = buffer.into();
        }
    }

    /// The tensors read, and the root of each storage that is read through a view only.
    fn operands(&self, state: &State, record: u32) -> Vec<u32> {
        let mut reads = state.record(record).reads.to_vec();
        for at in 0..reads.len() {
            let root = state.storage(state.storage_of(reads[at])).root();
            if !reads.contains(&root) {
                reads.push(root);
            }
        }
        reads
    }

    /// Adds the op of `record` and its values to the graph.
    fn enter(&mut self, state: &mut State, record: u32, kind: &str) {
        let operands = self.operands(state, record);
        self.enter_needs(state, record, &operands);
        self.reads.extend(operands.iter().filter_map(|&tensor| state.tensor(tensor).value.get()));
        let first = next_index(self.values.len());
        for at in 0..state.record(record).writes.len() {
            let this = state.record(record);
            let (Some(tensor), output) = (this.writes[at].get(), state.class(record).outputs[at]) else {
                continue;
            };
            let storage = state.storage(state.storage_of(tensor));
            let value = match output {
                Output::View(_) => self.value(0, Role::Activation),
                Output::Fresh(_) => self.value(storage.size, Role::Activation),
                Output::Takes(_, of) => {
                    let operand = state.storage(state.storage_of(this.reads[of]));
                    let value = self.value(storage.size, Role::Activation);
                    let input = state.tensor(operand.root()).value.get();
                    let input = input.filter(|_| operand.size == storage.size);
                    self.overs.extend(input.map(|input| Reuse { input, output: value, must: false }));
                    value
                }
                Output::InPlace(of) => {
                    let size = storage.size;
                    let root = state.storage(state.storage_of(this.reads[of])).root();
                    let input = state.tensor(root).value.get();
                    let value = self.value(size, Role::Activation);
                    if let Some(input) = input {
                        self.values[value.index()].first = self.values[input.index()].first;
                        self.values[input.index()].next_version = value.into();
                        self.overs.push(Reuse { input, output: value, must: true });
                    }
                    value
                }
            };
            state.tensors[tensor as usize].value = value.into();
        }
        let next = self.trace.kinds.len();
        let number = *self.kinds.entry(kind.to_owned()).or_insert(next);
        if number == next {
            self.trace.kinds.push(kind.to_owned());
        }
        let (this, class) = (state.record(record), state.class(record));
        self.trace.events.push(Event::Call {
            kind: number,
            reads: this.reads.iter().filter_map(|&read| Some(state.tensor(read).value.get()?.0)).collect(),
            outputs: class.outputs.to_vec(),
            time: Nanos(this.time),
            workspace: Bytes(this.workspace),
            effect: class.effect,
        });
        state.records[record as usize].op = OpId::at(self.ops.len()).into();
        self.entry(next_index(self.trace.events.len() - 1).into(), first);
    }

    /// What the op of `record` needs of `operands`: of a storage what it needs of its views.
    fn enter_needs(&mut self, state: &State, record: u32, operands: &[u32]) {
        let this = state.record(record);
        if state.class(record).needs.is_empty() {
            return;
        }
        let most = |storage: u32| {
            let of = this.reads.iter().enumerate().filter(|&(_, &read)| state.storage_of(read) == storage);
            of.map(|(at, _)| state.asks(record, at)).max().unwrap_or_default()
        };
        let known = operands.iter().filter(|&&tensor| !state.tensor(tensor).value.is_none());
        let needs = known.map(|&tensor| most(state.storage_of(tensor))).collect();
        self.needs.insert(self.ops.len(), needs);
    }

    /// The bytes of `storage` go.
    pub(crate) fn free(&mut self, state: &mut State, storage: u32) {
        self.leave(state, storage, true);
    }

    /// Ends the stays of the tensors of `storage`; that of the root only if nothing took its bytes over.
    fn leave(&mut self, state: &mut State, storage: u32, root: bool) {
        for at in 0..state.storage(storage).tensors.len() {
            let tensor = state.storage(storage).tensors[at];
            let is_root = state.storage(storage).root() == tensor;
            let this = &mut state.tensors[tensor as usize];
            let (Some(buffer), Some(value)) = (this.buffer.take(), this.value.get()) else { continue };
            self.values[value.index()].holder = Maybe::NONE;
            if root || !is_root {
                self.program.steps.push(Step::Free(buffer));
            }
        }
    }

    fn push(&mut self, step: Step) -> StepId {
        self.program.steps.push(step);
        StepId::at(self.program.steps.len() - 1)
    }

    /// The record, with the values `results` demanded; placed if there are addresses.
    /// `copies`: what there are copies of, each in its form.
    pub(crate) fn end(
        mut self,
        results: Vec<ValueId>,
        copies: &[(ValueId, Form)],
        addressed: bool,
    ) -> Result<Recorded, GraphError> {
        let is_away = |value: &ValueId| {
            let this = &self.values[value.index()];
            match self.values[this.first.index()].home {
                Some(form) => !copies.contains(&(*value, form)),
                None => this.holder.is_none(),
            }
        };
        let mut moved_home = self.moved_home || results.iter().any(is_away);
        self.program.shrink_to_fit();
        self.trace.events.shrink_to_fit();
        let graph = self.graph(&results)?;
        // One that the program has given up had a home, and is no more than an input.
        moved_home |= self.values.iter().any(|row| row.home.is_some() && !row.role.is_persistent());
        let layout = addressed.then_some(Layout { places: self.places });
        self.trace.held = results.iter().map(|value| value.0).collect();
        if layout.is_none() {
            self.trace.at.clear();
        }
        Ok(Recorded { graph, program: self.program, layout, trace: self.trace, stall_ns: 0, moved_home })
    }

    /// The graph, with `results` demanded.
    fn graph(&mut self, results: &[ValueId]) -> Result<Graph, GraphError> {
        // A persistent storage that the program has given up is an input.
        for value in 0..self.values.len() {
            let mut last = value;
            while let Some(next) = self.values[last].next_version.get() {
                last = next.index();
            }
            let away = self.values[value].home.is_some() && results.contains(&ValueId::at(last));
            if self.values[value].role.is_persistent() && self.values[last].holder.is_none() && !away {
                self.values[value].role = Role::Input;
            }
        }
        let mut builder = GraphBuilder::new("recorded");
        builder.replays_random(true); // The engine has its hosts do so.
        for (index, &Row { size, role, density, sensitivity, dtype, .. }) in self.values.iter().enumerate() {
            let (name, size) = (format!("v{index}"), Bytes(size));
            let spec = ValueSpec { name, size, role, density, sensitivity, dtype, ..ValueSpec::default() };
            builder.value(spec)?;
        }
        let (mut read, mut over) = (0, 0);
        for (index, op) in self.ops.iter().enumerate() {
            let reads = &self.reads[std::mem::replace(&mut read, op.reads as usize)..op.reads as usize];
            let overs = &self.overs[std::mem::replace(&mut over, op.overs as usize)..op.overs as usize];
            let spec = match op.event.get().and_then(|event| self.trace.events.get(event as usize)) {
                Some(&Event::Call { kind, time, workspace, effect, .. }) => OpSpec {
                    name: format!("{}.{index}", self.trace.kinds[kind]),
                    kind: self.trace.kinds[kind].clone(),
                    time: Some(time),
                    workspace,
                    effect,
                    ..OpSpec::default()
                },
                _ => OpSpec {
                    name: format!("put{index}"),
                    kind: "put".to_owned(),
                    time: Some(Nanos::ZERO),
                    effect: Effect::Once,
                    ..OpSpec::default()
                },
            };
            builder.op(OpSpec {
                reads: reads.to_vec(),
                needs: self.needs.remove(&index).unwrap_or_default(),
                writes: (op.first..op.first + op.count).map(ValueId).collect(),
                reuses: overs.to_vec(),
                ..spec
            })?;
        }
        for &value in results {
            if self.values[value.index()].next_version.is_none() {
                builder.result(value)?;
            }
        }
        builder.finish()
    }
}
