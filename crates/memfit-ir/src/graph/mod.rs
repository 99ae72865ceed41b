//! The input: what must be computed. Immutable; strategies rewrite programs, never graphs.

mod builder;
mod fingerprint;
mod spec;

pub use builder::{GraphBuilder, GraphError, OpSpec, ValueSpec};

use crate::{Bytes, Csr, Dtype, Nanos, OpId, ValueId};

/// Which part of a training step an op belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From inputs to loss; all of an inference graph.
    #[default]
    Forward,
    /// From loss to gradients.
    Backward,
    /// From gradients to new parameters and optimizer state.
    Update,
}

/// What running an op does besides computing its outputs from its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Nothing: may run any number of times.
    #[default]
    Pure,
    /// Draws from the random generator. Runs again only if the host replays the generator's state; first
    /// runs keep the graph's order among seeded ops.
    Seeded,
    /// Has an effect outside the graph: runs exactly once, in the graph's order among once and collective ops.
    Once,
    /// Takes part in communication between ranks: as `Once`.
    Collective,
}

/// What a value is to the training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A batch or label: present at the start, free to go after its last use.
    Input,
    /// Trained weights. Persistent.
    Parameter,
    /// Optimizer state and running statistics. Persistent.
    State,
    /// Tables and buffers that never change. Persistent.
    Constant,
    /// Made by a forward op, or any intermediate.
    #[default]
    Activation,
    /// A derivative of the loss.
    Gradient,
    /// Handed to the caller at the end.
    Output,
}

impl Role {
    /// Whether the storage lives across the step boundary.
    #[must_use]
    pub fn is_persistent(self) -> bool {
        matches!(self, Role::Parameter | Role::State | Role::Constant)
    }

    /// Whether a value of this role may be there without an op that makes it.
    #[must_use]
    pub fn is_source(self) -> bool {
        self.is_persistent() || self == Role::Input
    }
}

/// What an op reads of an operand. Each asks for less than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Nothing but its shape: whatever is in its bytes, the op does the same.
    Shape,
    /// Of each element no more than whether it is above zero; NaN is not. So the backward pass of a ReLU reads its output.
    Sign,
    /// Everything.
    #[default]
    Value,
}

macro_rules! named {
    ($type:ident: $($variant:ident = $name:literal),+) => {
        impl $type {
            /// Every variant with its name in files.
            pub const ALL: &[($type, &str)] = &[$(($type::$variant, $name)),+];

            /// Name in files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }

            /// The variant called `name` in files.
            #[must_use]
            pub fn by_name(name: &str) -> Option<$type> {
                $type::ALL.iter().find(|(_, known)| *known == name).map(|(found, _)| *found)
            }
        }
    };
}
named!(Phase: Forward = "forward", Backward = "backward", Update = "update");
named!(Effect: Pure = "pure", Seeded = "seeded", Once = "once", Collective = "collective");
named!(Need: Shape = "shape", Sign = "sign", Value = "value");
named!(Role: Input = "input", Parameter = "parameter", State = "state", Constant = "constant",
       Activation = "activation", Gradient = "gradient", Output = "output");

/// An output that takes, or may take, the bytes of an input of its op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reuse {
    /// The input, whose last reader this op then is.
    pub input: ValueId,
    /// The output, of the same size.
    pub output: ValueId,
    /// `true`: in-place mutation, the output is the input's storage. `false`: permitted, as for element-wise
    /// ops, which read each byte before they write it.
    pub must: bool,
}

/// Another way to run an op, with its own scratch memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// Scratch bytes while it runs.
    pub workspace: Bytes,
    /// What it takes.
    pub price: Price,
}

/// What an [`Algorithm`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// A measured run time.
    Time(Nanos),
    /// Floating-point operations in the op's dtype, and bytes that travel between memory and processor: the device says how long
    /// that takes.
    Work {
        /// A multiply-add is two.
        flops: u64,
        /// Those of its scratch memory included.
        moved: Bytes,
    },
}

/// A demanded address: for firmware that shares memory with hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin {
    /// Index of the bank, see [`crate::Limits::banks`].
    pub bank: u16,
    /// Offset in that bank, or anywhere in it.
    pub offset: Option<Bytes>,
}

/// Everything about one op, borrowed from its graph.
#[derive(Clone, Copy, Debug)]
pub struct Op<'g> {
    /// Name shown to people.
    pub name: &'g str,
    /// What it does, as its framework calls it: `aten.convolution.default`, `Conv`.
    pub kind: &'g str,
    /// What its framework told it beside its operands, and how it sees those: two pure ops of one kind with the same text
    /// compute the same from the same operands. `None`: nothing is known, so no other op is the same.
    pub attributes: Option<&'g str>,
    /// Dotted path of the module it comes from; may be empty.
    pub module: &'g str,
    /// Part of the step.
    pub phase: Phase,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written, for the roofline.
    pub moved: Bytes,
    /// Element type the arithmetic is done in.
    pub dtype: Dtype,
    /// Measured run time, if the graph brings one.
    pub time: Option<Nanos>,
    /// Scratch bytes while it runs.
    pub workspace: Bytes,
    /// What it does besides.
    pub effect: Effect,
    /// Values read; one may stand there twice.
    pub reads: &'g [ValueId],
    /// What it reads of each of them; empty if that is everything.
    pub needs: &'g [Need],
    /// Values defined.
    pub writes: &'g [ValueId],
    /// In-place pairs.
    pub reuses: &'g [Reuse],
    /// Alternatives to the default cost and workspace.
    pub algorithms: &'g [Algorithm],
}

impl Op<'_> {
    /// What it reads of operand `at`.
    #[must_use]
    pub fn need(&self, at: usize) -> Need {
        self.needs.get(at).copied().unwrap_or_default()
    }

    /// The most that it reads of `value` by any of its operands.
    #[must_use]
    pub fn need_of(&self, value: ValueId) -> Need {
        let all = self.reads.iter().enumerate().filter(|&(_, &read)| read == value);
        all.map(|(at, _)| self.need(at)).max().unwrap_or(Need::Shape)
    }
}

/// Everything about one value, borrowed from its graph.
#[derive(Clone, Copy, Debug)]
pub struct Value<'g> {
    /// Name shown to people.
    pub name: &'g str,
    /// Bytes it occupies when it is resident and not encoded.
    pub size: Bytes,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, for people; `size` is what counts.
    pub shape: &'g [u64],
    /// What it is to the step.
    pub role: Role,
    /// The largest share of its words of four bytes that is expected not to be zero, for compression.
    pub density: Option<f32>,
    /// How much gradients differ when it waits for the backward pass in few bits, beside other values of the graph: the square of
    /// their distance when it has one bit.
    pub sensitivity: Option<f32>,
    /// Demanded address.
    pub pin: Option<Pin>,
    /// The op that defines it; `None` for sources.
    pub producer: Option<OpId>,
    /// The op that overwrites it, if one must.
    pub mutator: Option<OpId>,
    /// The input of its producer over which it must be written.
    pub over: Option<ValueId>,
    /// The inputs of its producer over which it may be written, in the order of the pairs.
    pub may_over: &'g [ValueId],
    /// The ops that read it, in the graph's order, each once for each operand.
    pub readers: &'g [OpId],
}

/// Strings, one after another.
#[derive(Clone, Debug, Default)]
struct Names {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Names {
    fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[index]]
    }
}

/// Strings of which many are equal.
#[derive(Clone, Debug, Default)]
struct Interned {
    names: Vec<String>,
    known: std::collections::BTreeMap<String, u32>,
}

impl Interned {
    fn id(&mut self, name: String) -> u32 {
        if let Some(&id) = self.known.get(&name) {
            return id;
        }
        let id = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.known.insert(name, id);
        id
    }
}

#[derive(Clone, Copy, Debug)]
struct OpRow {
    kind: u32,
    attributes: Option<u32>,
    module: u32,
    phase: Phase,
    effect: Effect,
    dtype: Dtype,
    flops: f64,
    moved: Bytes,
    time: Option<Nanos>,
    workspace: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct ValueRow {
    size: Bytes,
    dtype: Dtype,
    role: Role,
    density: Option<f32>,
    sensitivity: Option<f32>,
    pin: Option<Pin>,
    producer: Option<OpId>,
    mutator: Option<OpId>,
    over: Option<ValueId>,
    result: bool,
}

/// A dataflow graph: ops that read and write values. The order of the ops is a valid order to run them in.
///
/// Flat arrays throughout: a million ops is a normal size. Made by a [`GraphBuilder`], which checks it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    name: String,
    replays_random: bool,
    ops: Vec<OpRow>,
    op_names: Names,
    kinds: Interned,
    attributes: Interned,
    modules: Interned,
    reads: Csr<ValueId>,
    needs: Csr<Need>,
    writes: Csr<ValueId>,
    reuses: Csr<Reuse>,
    /// By output.
    may_over: Csr<ValueId>,
    algorithms: Csr<Algorithm>,
    values: Vec<ValueRow>,
    value_names: Names,
    shapes: Csr<u64>,
    readers: Csr<OpId>,
    results: Vec<ValueId>,
}

impl Graph {
    /// Gives back what was allocated for more: a recorded step is kept for as long as its plan.
    fn shrink_to_fit(&mut self) {
        self.ops.shrink_to_fit();
        self.values.shrink_to_fit();
        self.results.shrink_to_fit();
        self.op_names.shrink_to_fit();
        self.value_names.shrink_to_fit();
        self.reads.shrink_to_fit();
        self.writes.shrink_to_fit();
        self.needs.shrink_to_fit();
        self.reuses.shrink_to_fit();
        self.algorithms.shrink_to_fit();
        self.shapes.shrink_to_fit();
    }

    /// Name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the host it comes from can replay the state of its random generators, so that seeded ops may run again.
    #[must_use]
    pub fn replays_random(&self) -> bool {
        self.replays_random
    }

    /// Number of ops.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// Number of values.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// All ops, in the graph's order.
    pub fn op_ids(&self) -> impl ExactSizeIterator<Item = OpId> + DoubleEndedIterator + use<> {
        (0..self.ops.len()).map(OpId::at)
    }

    /// All values.
    pub fn value_ids(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId::at)
    }

    /// Values that must be in memory when the step ends: what the caller asked for, and the last version of
    /// every persistent storage. Ascending, each once.
    #[must_use]
    pub fn results(&self) -> &[ValueId] {
        &self.results
    }

    /// Whether it says of any value that a part of it is zero.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.values.iter().any(|value| value.density.is_some_and(|density| density < 1.0))
    }

    /// Whether `value` is one of [`Graph::results`].
    #[must_use]
    pub fn is_result(&self, value: ValueId) -> bool {
        self.values[value.index()].result
    }

    /// The most that is ever read of `value`: all of a result.
    #[must_use]
    pub fn need_of(&self, value: ValueId) -> Need {
        let readers = self.value(value).readers.iter().map(|&op| self.op(op).need_of(value)).max();
        if self.is_result(value) { Need::Value } else { readers.unwrap_or(Need::Shape) }
    }

    /// By value: whether it is a version of a storage that is a source and ends in a result, so that its bytes are there
    /// before the first step and after the last. Time O(values + pairs).
    #[must_use]
    pub fn lasting(&self) -> Vec<bool> {
        let source = |value: ValueId| self.value(value).producer.is_none().then_some(value.index());
        let mut root: Vec<Option<usize>> = self.value_ids().map(source).collect();
        for id in self.op_ids() {
            for pair in self.op(id).reuses.iter().filter(|pair| pair.must) {
                root[pair.output.index()] = root[pair.input.index()];
            }
        }
        let mut ends = vec![false; root.len()];
        for root in self.results().iter().filter_map(|value| root[value.index()]) {
            ends[root] = true;
        }
        root.iter().map(|root| root.is_some_and(|root| ends[root])).collect()
    }

    /// The op named `id`, which must be one of this graph's.
    #[must_use]
    pub fn op(&self, id: OpId) -> Op<'_> {
        let row = &self.ops[id.index()];
        Op {
            name: self.op_names.get(id.index()),
            kind: &self.kinds.names[row.kind as usize],
            attributes: row.attributes.map(|text| self.attributes.names[text as usize].as_str()),
            module: &self.modules.names[row.module as usize],
            phase: row.phase,
            flops: row.flops,
            moved: row.moved,
            dtype: row.dtype,
            time: row.time,
            workspace: row.workspace,
            effect: row.effect,
            reads: self.reads.row(id.index()),
            needs: self.needs.row(id.index()),
            writes: self.writes.row(id.index()),
            reuses: self.reuses.row(id.index()),
            algorithms: self.algorithms.row(id.index()),
        }
    }

    /// The value named `id`, which must be one of this graph's.
    #[must_use]
    pub fn value(&self, id: ValueId) -> Value<'_> {
        let row = &self.values[id.index()];
        Value {
            name: self.value_names.get(id.index()),
            size: row.size,
            dtype: row.dtype,
            shape: self.shapes.row(id.index()),
            role: row.role,
            density: row.density,
            sensitivity: row.sensitivity,
            pin: row.pin,
            producer: row.producer,
            mutator: row.mutator,
            over: row.over,
            may_over: self.may_over.row(id.index()),
            readers: self.readers.row(id.index()),
        }
    }
}
