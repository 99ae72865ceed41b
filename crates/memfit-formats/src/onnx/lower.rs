//! From nodes to tasks over storages: shapes inferred, views resolved, functions inlined, constants folded.

mod attributes;
mod control;
mod frame;
mod naming;
mod scan;

use std::collections::{BTreeMap, BTreeSet};

use memfit_ir::{Dtype, Effect, Role};

use frame::Frame;
use naming::{absent, label, module, place, unknown};

use super::Plan;
use super::call::Call;
use super::operators::{Flops, OPERATORS, Operator};
use super::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use super::symbols::Symbols;
use super::tensor::{MAX_RANK, Tensor, Trouble, dims, refuse};
use crate::FormatError;

/// The most nodes, operands and attributes in functions, counted each time one is inlined.
const MAX_WORK: usize = 4_000_000;

/// The most bytes of names that inlining may make.
const MAX_TEXT: usize = 256 << 20;

/// How deep functions may call functions.
const MAX_DEPTH: usize = 64;

/// The most elements of all folded constants together.
const MAX_FOLDED: usize = 1 << 24;

/// Memory under one name; views share it.
pub(super) struct Storage {
    pub(super) name: String,
    pub(super) tensor: Tensor,
    /// Its role if no task writes it.
    pub(super) role: Role,
    /// Whether its bytes are counted in the graph around this one.
    pub(super) elsewhere: bool,
}

/// A node that runs; operands are indices of storages.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) kind: String,
    /// What it is told beside its operands, if that is all known.
    pub(super) attributes: Option<String>,
    pub(super) module: String,
    pub(super) flops: f64,
    pub(super) moved: u64,
    /// Bytes that it needs while it runs, beside its operands.
    pub(super) workspace: u64,
    pub(super) dtype: Dtype,
    pub(super) effect: Effect,
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    /// Pairs of storages of which the second may take the place of the first.
    pub(super) reuses: Vec<(usize, usize)>,
}

/// A model in a planner's terms.
#[derive(Default)]
pub(super) struct Lowered {
    pub(super) storages: Vec<Storage>,
    pub(super) tasks: Vec<Task>,
    pub(super) outputs: Vec<usize>,
    /// Storages of the graph around this one, and what they are called here.
    captured: BTreeMap<usize, usize>,
}

struct Lowering<'a> {
    symbols: Symbols<'a>,
    operators: BTreeMap<&'static str, &'static Operator>,
    functions: BTreeMap<(&'a str, &'a str, &'a str), &'a FunctionProto>,
    /// The graph or body at hand.
    lowered: Lowered,
    /// Those around it, outermost first.
    around: Vec<Lowered>,
    /// Bytes that a body takes.
    plan: Plan<'a>,
    /// Bodies and branches so far.
    bodies: usize,
    work: usize,
    text: usize,
    told: usize,
    folded: usize,
}

/// Lowers `model` with `bounds` for its symbolic dimensions; `plan` is asked how many bytes a body takes.
pub(super) fn lower(
    model: &ModelProto,
    bounds: &BTreeMap<String, u64>,
    plan: Plan<'_>,
) -> Result<Lowered, FormatError> {
    let Some(graph) = &model.graph else {
        return Err(FormatError::new("", "not an ONNX model: the file holds no graph"));
    };
    let functions = model.functions.iter().map(|f| ((domain(f.domain()), f.name(), f.overload()), f));
    let lowering = Lowering {
        symbols: Symbols::new(bounds, model, graph)?,
        operators: OPERATORS.iter().map(|operator| (operator.name, operator)).collect(),
        functions: functions.collect(),
        lowered: Lowered::default(),
        around: Vec::new(),
        plan,
        bodies: 0,
        work: 0,
        text: 0,
        told: 0,
        folded: 0,
    };
    lowering.graph(graph, &model.opset_import)
}

/// A domain by the shorter of its names.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// What `trouble` says, at the place it was met.
fn at(place: String, trouble: Trouble) -> FormatError {
    let error = FormatError::new(place, trouble.message);
    match trouble.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

impl<'a> Lowering<'a> {
    fn graph(
        mut self,
        graph: &'a GraphProto,
        opsets: &'a [OperatorSetIdProto],
    ) -> Result<Lowered, FormatError> {
        let mut frame = Frame::of_model(graph, version(opsets));
        self.initializers(graph, &mut frame)?;
        let given = |info: &&ValueInfoProto| frame.names.contains_key(info.name());
        self.symbols.all_known(graph.input.iter().filter(|info| !given(info)))?;
        for info in &graph.input {
            // An initializer of the same name is this input's default.
            if self.lowered.storages.is_empty() || !frame.names.contains_key(info.name()) {
                let tensor =
                    self.symbols.tensor(info).map(|tensor| self.symbols.content(info.name(), tensor));
                tensor
                    .and_then(|tensor| self.define(&mut frame, info.name(), tensor, Some(Role::Input)))
                    .map_err(|trouble| at(format!("input `{}`", info.name()), trouble))?;
            }
        }
        self.nodes(&graph.node, &mut frame)?;
        let mut named = BTreeSet::new();
        for info in &graph.output {
            let Some((storage, tensor)) = frame.names.get(info.name()).and_then(|t| Some((t.storage?, t)))
            else {
                return Err(FormatError::new(format!("output `{}`", info.name()), "no node makes it"));
            };
            self.lowered.outputs.push(storage);
            // What the caller gets has the caller's name, though a view or a function made it under another.
            let stored = &mut self.lowered.storages[storage];
            if !stored.role.is_source() && stored.tensor.shape == tensor.shape && named.insert(storage) {
                info.name().clone_into(&mut stored.name);
            }
        }
        Ok(self.lowered)
    }

    /// Weights and tables of `graph`.
    fn initializers(&mut self, graph: &'a GraphProto, frame: &mut Frame<'_, 'a>) -> Result<(), FormatError> {
        for proto in &graph.initializer {
            let place = || format!("initializer `{}`", proto.name());
            let tensor = Tensor::from_proto(proto).map_err(|trouble| at(place(), trouble))?;
            self.define(frame, proto.name(), tensor, None).map_err(|trouble| at(place(), trouble))?;
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name());
            let dense = sparse.values.as_ref().map(Tensor::from_proto).transpose();
            let dense = dense.and_then(|values| match values {
                // Runtimes hold it with its zeros.
                Some(values) => Ok(Tensor::constant(values.elem, dims(&sparse.dims)?, None)),
                None => refuse!("it has no values"),
            });
            let place = || format!("sparse initializer `{name}`");
            let tensor = dense.map_err(|trouble| at(place(), trouble))?;
            self.define(frame, name, tensor, None).map_err(|trouble| at(place(), trouble))?;
        }
        Ok(())
    }

    /// Gives `tensor` a name, and a storage if it has none. Without a role it's a weight or table.
    fn define(
        &mut self,
        frame: &mut Frame<'_, 'a>,
        name: &'a str,
        mut tensor: Tensor,
        role: Option<Role>,
    ) -> Result<(), Trouble> {
        if name.is_empty() {
            refuse!("it has no name");
        }
        if tensor.rank() > MAX_RANK {
            refuse!(
                "`{name}` would have `{}` dimensions; more than {MAX_RANK} are not supported",
                tensor.rank()
            );
        }
        if let Some(dim) = tensor.shape.iter().find(|&&dim| i64::try_from(dim).is_err()) {
            refuse!("dimension `{dim}` of `{name}` overflows 63 bits");
        }
        tensor.bytes()?;
        if tensor.storage.is_none() {
            let fixed = if tensor.elem.is_float() { Role::Parameter } else { Role::Constant };
            let name = format!("{}{name}", frame.prefix);
            self.write(&name, frame)?;
            let stored = Tensor { known: None, ..tensor.clone() };
            tensor.storage = Some(self.store(Storage {
                name,
                tensor: stored,
                role: role.unwrap_or(fixed),
                elsewhere: false,
            })?);
            self.folded += tensor.known.as_ref().map_or(0, super::tensor::Known::len);
            if self.folded > MAX_FOLDED {
                refuse!("the model's small constants have more than {MAX_FOLDED} elements");
            }
        }
        if frame.names.insert(name, tensor).is_some() {
            refuse!("`{name}` is defined twice");
        }
        Ok(())
    }

    fn nodes(&mut self, nodes: &'a [NodeProto], frame: &mut Frame<'_, 'a>) -> Result<(), FormatError> {
        for (index, node) in nodes.iter().enumerate() {
            let missing = |name: &str| at(place(node, frame), absent(name, &nodes[index..], frame));
            let inputs = node.input.iter().map(|name| match self.find(name, frame) {
                Ok(None) if !name.is_empty() => Err(missing(name)),
                found => found.map_err(|trouble| at(place(node, frame), trouble)),
            });
            let inputs = inputs.collect::<Result<_, _>>()?;
            self.node(node, inputs, frame)?;
        }
        Ok(())
    }

    fn node(
        &mut self,
        node: &'a NodeProto,
        inputs: Vec<Option<Tensor>>,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), FormatError> {
        self.work(node, frame).map_err(|trouble| at(place(node, frame), trouble))?;
        let actual = |attribute: &'a AttributeProto| match attribute.ref_attr_name() {
            "" => Some((attribute.name(), attribute)),
            outer => frame.attributes.get(outer).map(|&found| (attribute.name(), found)),
        };
        let attributes: Vec<_> = node.attribute.iter().filter_map(actual).collect();
        let domain = domain(node.domain());
        if let Some(&function) = self.functions.get(&(domain, node.op_type(), node.overload())) {
            return self.inline(function, node, inputs, attributes, frame);
        }
        if domain.is_empty() && matches!(node.op_type(), "If" | "Loop" | "Scan") {
            return self.control(node, inputs, attributes, frame);
        }
        let kind = if domain.is_empty() {
            node.op_type().to_owned()
        } else {
            format!("{domain}.{}", node.op_type())
        };
        let run = || {
            let Some(&operator) = self.operators.get(kind.as_str()) else { return Err(unknown(node)) };
            let call = Call { node, inputs, attributes, opset: opset(domain, frame)? };
            let mut outputs = match (operator.infer)(&call) {
                Err(trouble) if trouble.run_time => self.bounded(&call, frame, trouble)?,
                answer => answer?,
            };
            outputs.truncate(node.output.len());
            if let Some(name) = node.output.iter().skip(outputs.len()).find(|name| !name.is_empty()) {
                refuse!("it has no output `{name}`: `{}` has `{}` outputs", node.op_type(), outputs.len());
            }
            Ok((operator, call, outputs))
        };
        let (operator, call, outputs) = run().map_err(|trouble| at(place(node, frame), trouble))?;
        self.task(operator, &call, outputs, kind, frame).map_err(|trouble| at(place(node, frame), trouble))
    }

    /// Names the outputs of a node, and adds it to the tasks if one of them must be computed.
    fn task(
        &mut self,
        operator: &Operator,
        call: &Call<'a>,
        outputs: Vec<Tensor>,
        kind: String,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), Trouble> {
        let flops = match operator.flops {
            Flops::Zero => 0.0,
            Flops::Output(each) => each * count(outputs.first())?,
            Flops::Input(each) => each * count(call.optional(0))?,
            Flops::Of(function) => function(call, count(outputs.first())?),
        };
        let first = outputs.first().cloned();
        let named = |(name, tensor): (&String, &Tensor)| (!name.is_empty()).then(|| tensor.clone());
        let seen: Vec<Option<Tensor>> = call.node.output.iter().zip(&outputs).map(named).collect();
        let mut writes = Vec::new();
        let mut moved = 0u64;
        let mut written = 0u64;
        for (name, tensor) in call.node.output.iter().zip(outputs) {
            if name.is_empty() {
                continue;
            }
            let computed = tensor.storage.is_none() && !tensor.constant;
            if computed {
                written = written.saturating_add(tensor.bytes()?);
                writes.push(self.lowered.storages.len());
            }
            self.define(frame, name, tensor, computed.then_some(Role::Activation))?;
        }
        if writes.is_empty() {
            return Ok(());
        }
        let mut reads = Vec::new();
        let mut operands = Vec::new();
        let mut places = vec![None; call.inputs.len()];
        for (index, tensor) in call.inputs.iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let Some(storage) = tensor.storage else { refuse!("operand {index} has no storage") };
            if operator.unread.contains(&index) || (tensor.constant && operator.host.contains(&index)) {
                continue;
            }
            let bytes = tensor.bytes()?;
            moved =
                moved.saturating_add(if operator.picks && index == 0 { bytes.min(written) } else { bytes });
            places[index] = Some(reads.len());
            reads.push(storage);
            operands.push((storage, tensor));
        }
        let trains = call.flag("training_mode", false).unwrap_or_default();
        let output = first.filter(|first| first.storage.is_none() && operator.element_wise && !trains);
        // Output 0 is the first storage written, unless it has no name.
        let target =
            if call.node.output.first().is_some_and(|name| !name.is_empty()) { writes.first() } else { None };
        let mut fits: BTreeMap<usize, bool> = BTreeMap::new();
        if let Some(output) = &output {
            for (storage, tensor) in operands {
                let fit = tensor.shape == output.shape && tensor.elem.bits() == output.elem.bits();
                *fits.entry(storage).or_insert(!self.lowered.storages[storage].role.is_persistent()) &= fit;
            }
        }
        let reuses = target.map_or_else(Vec::new, |&target| {
            fits.into_iter().filter(|&(_, fit)| fit).map(|(storage, _)| (storage, target)).collect()
        });
        let name = format!("{}{}", frame.prefix, label(call.node));
        self.write(&name, frame)?;
        let attributes = attributes::of(call, &places, &seen).filter(|text| self.tells(text, frame));
        self.lowered.tasks.push(Task {
            name,
            kind,
            attributes,
            module: module(call.node),
            flops: if flops.is_finite() { flops } else { 0.0 },
            moved: moved.saturating_add(written),
            workspace: 0,
            dtype: arithmetic(call, &self.lowered.storages[writes[0]].tensor),
            effect: if operator.seeded { Effect::Seeded } else { Effect::Pure },
            reads,
            writes,
            reuses,
        });
        Ok(())
    }

    /// Counts the visit of `node`, so that functions that call functions can't grow without bound.
    fn work(&mut self, node: &NodeProto, frame: &Frame<'_, '_>) -> Result<(), Trouble> {
        if frame.is_read_once() {
            return Ok(());
        }
        self.work +=
            1 + node.input.len() + node.output.len() + node.attribute.len() + node.metadata_props.len();
        if self.work > MAX_WORK {
            refuse!(
                "its functions, branches and bodies have more than {MAX_WORK} nodes, operands and attributes"
            );
        }
        Ok(())
    }

    /// Counts a name that inlining may have made longer.
    fn write(&mut self, name: &str, frame: &Frame<'_, '_>) -> Result<(), Trouble> {
        self.text += if frame.is_read_once() { 0 } else { name.len() };
        if self.text > MAX_TEXT {
            refuse!(
                "the names in its functions, branches and bodies are longer than {MAX_TEXT} bytes together"
            );
        }
        Ok(())
    }

    /// Counts what a task is told: once inlining has made too much of it, tasks are told nothing.
    fn tells(&mut self, attributes: &str, frame: &Frame<'_, '_>) -> bool {
        self.told += if frame.is_read_once() { 0 } else { attributes.len() };
        self.told <= MAX_TEXT
    }

    /// Runs the body of `function` in place of `node`.
    fn inline(
        &mut self,
        function: &'a FunctionProto,
        node: &'a NodeProto,
        inputs: Vec<Option<Tensor>>,
        attributes: Vec<(&'a str, &'a AttributeProto)>,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), FormatError> {
        let fail = |message: String| Err(FormatError::new(place(node, frame), message));
        if frame.calls.iter().any(|&caller| std::ptr::eq(caller, function)) {
            return fail(format!("function `{}` calls itself", function.name()));
        }
        if frame.depth >= MAX_DEPTH {
            return fail(format!("functions call each other more than {MAX_DEPTH} deep"));
        }
        // What the call itself costs; the next node is refused if it is too much.
        self.work += function.attribute_proto.len() + function.opset_import.len() + function.output.len();
        if inputs.len() > function.input.len() || node.output.len() > function.output.len() {
            return fail(format!(
                "it has `{}` operands and `{}` outputs, its function `{}` and `{}`",
                inputs.len(),
                node.output.len(),
                function.input.len(),
                function.output.len()
            ));
        }
        let defaults = function.attribute_proto.iter().map(|default| (default.name(), default));
        let formal = function.input.iter().map(String::as_str).zip(inputs);
        let mut inner = Frame {
            names: formal.filter_map(|(name, tensor)| Some((name, tensor?))).collect(),
            attributes: defaults.chain(attributes).collect(),
            declared: BTreeMap::new(),
            opset: version(&function.opset_import),
            prefix: format!("{}{}/", frame.prefix, label(node)),
            calls: [frame.calls.as_slice(), &[function]].concat(),
            outer: None,
            level: frame.level,
            depth: frame.depth + 1,
        };
        self.nodes(&function.node, &mut inner)?;
        for (name, formal) in node.output.iter().zip(&function.output) {
            let found = match inner.names.remove(formal.as_str()) {
                _ if name.is_empty() => continue,
                Some(tensor) => self.define(frame, name, tensor, None),
                None => Err(Trouble::new(format!("its function does not define `{formal}`"))),
            };
            found.map_err(|trouble| at(place(node, frame), trouble))?;
        }
        Ok(())
    }
}

fn count(tensor: Option<&Tensor>) -> Result<f64, Trouble> {
    Ok(tensor.map(Tensor::count).transpose()?.unwrap_or(0) as f64)
}

/// The type in which a node computes: that of its result, or of its first operand where the result is no float.
fn arithmetic(call: &Call<'_>, output: &Tensor) -> Dtype {
    let elem = match call.optional(0) {
        Some(first) if !output.elem.is_float() => first.elem,
        _ => output.elem,
    };
    elem.dtype()
}

/// The version of the default operators.
fn version(opsets: &[OperatorSetIdProto]) -> Option<i64> {
    let default = opsets.iter().find(|opset| domain(opset.domain()).is_empty());
    default.map(OperatorSetIdProto::version).filter(|version| *version > 0)
}

/// The version of the operators of `domain` that the nodes of `frame` are written for.
fn opset(domain: &str, frame: &Frame<'_, '_>) -> Result<i64, Trouble> {
    // The versions of the other domains don't change what is asked of them here.
    let version = if domain.is_empty() { frame.opset } else { Some(i64::MAX) };
    version.ok_or_else(|| {
        Trouble::new("the model does not say which version of the operators it uses (`opset_import`)")
    })
}
