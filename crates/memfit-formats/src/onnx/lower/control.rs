//! `If`, `Loop` and `Scan`: one op each, with the arena of its worst branch or of its body as workspace.
//!
//! A branch or body is a graph of its own. What it reads from around it (operands and captured names) stays alive
//! through the op and costs nothing within; its results are written where the op's outputs are. All else is placed once, in
//! an arena of which the op has as many bytes while it runs. A branch of which the model says that it is taken stands in
//! place of its node.
//!
//! What a `Loop` carries is counted twice: the body reads the version of the iteration before, which lies in its arena, and writes
//! the next to where the output is; in between it is copied. Slices of scan operands and outputs along axis 0 lie within the whole.

use std::collections::BTreeSet;

use memfit_ir::{Dtype, Effect, Role};

use super::super::call::{Call, run_time};
use super::super::elem::Elem;
use super::super::emit;
use super::super::proto::{AttributeProto, GraphProto, NodeProto};
use super::super::symbols::option;
use super::super::tensor::{Known, Tensor, Trouble, refuse, show};
use super::frame::Frame;
use super::naming::{label, module, place};
use super::scan::Scan;
use super::{Lowered, Lowering, MAX_DEPTH, Task, at, opset};
use crate::FormatError;

/// The most branches and bodies, counted each time a function that holds them is inlined.
const MAX_BODIES: usize = 4096;

/// A branch or body.
struct Body {
    lowered: Lowered,
    outputs: Vec<Tensor>,
}

/// What bodies cost the op that holds them.
#[derive(Default)]
struct Cost {
    workspace: u64,
    flops: f64,
    moved: u64,
    seeded: bool,
    captured: BTreeSet<usize>,
}

/// What a loop or scan asks of its body.
pub(super) struct Shape {
    /// Operands of the body: type, and whether it lies around the body.
    pub(super) inputs: Vec<(Tensor, bool)>,
    /// For each output of the body: the output of the node that it is written to, if it is written there directly.
    pub(super) targets: Vec<Option<usize>>,
}

impl<'a> Lowering<'a> {
    /// Lowers a node of control flow.
    pub(super) fn control(
        &mut self,
        node: &'a NodeProto,
        inputs: Vec<Option<Tensor>>,
        attributes: Vec<(&'a str, &'a AttributeProto)>,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), FormatError> {
        let opset = opset("", frame).map_err(|trouble| at(place(node, frame), trouble))?;
        let call = Call { node, inputs, attributes, opset };
        match node.op_type() {
            "If" => self.branches(&call, frame),
            "Loop" => self.repeat(&call, frame),
            _ => self.scan(&call, frame),
        }
    }

    /// The graph in attribute `name`.
    fn part(
        &mut self,
        call: &Call<'a>,
        name: &str,
        frame: &Frame<'_, 'a>,
    ) -> Result<&'a GraphProto, Trouble> {
        self.bodies += 1;
        if self.bodies > MAX_BODIES {
            refuse!("the model has more than {MAX_BODIES} branches and bodies");
        }
        if frame.depth >= MAX_DEPTH {
            refuse!("functions, branches and bodies are more than {MAX_DEPTH} deep");
        }
        let found = call.attributes.iter().find(|(known, _)| *known == name);
        match found.and_then(|(_, attribute)| attribute.g.as_deref()) {
            Some(graph) => Ok(graph),
            None => refuse!("its graph `{name}` is missing"),
        }
    }

    fn branches(&mut self, call: &Call<'a>, frame: &mut Frame<'_, 'a>) -> Result<(), FormatError> {
        let node = call.node;
        let fail = |trouble: Trouble, frame: &Frame<'_, 'a>| at(place(node, frame), trouble);
        let condition = call.input(0).map_err(|trouble| fail(trouble, frame))?.clone();
        let taken = match &condition.known {
            Some(Known::Ints(all)) => all.first().map(|&yes| yes != 0),
            _ => None,
        };
        if let Some(yes) = taken {
            let name = if yes { "then_branch" } else { "else_branch" };
            let graph = self.part(call, name, frame).map_err(|trouble| fail(trouble, frame))?;
            return self.taken(graph, node, frame);
        }
        let (mut cost, mut merged) = (Cost::default(), Vec::<Tensor>::new());
        for name in ["then_branch", "else_branch"] {
            let graph = self.part(call, name, frame).map_err(|trouble| fail(trouble, frame))?;
            let targets = (0..graph.output.len()).map(Some).collect();
            let shape = Shape { inputs: Vec::new(), targets };
            let body = self.body(call, graph, name, &shape, frame)?;
            let outputs = body.outputs.clone();
            self.count(body, 1.0, &mut cost, (node, name), frame)?;
            let found = self.merge(node, merged, outputs, frame).map_err(|trouble| fail(trouble, frame))?;
            merged = found;
        }
        self.op(call, merged, cost, frame).map_err(|trouble| fail(trouble, frame))
    }

    /// Puts a branch in place of its node.
    fn taken(
        &mut self,
        graph: &'a GraphProto,
        node: &'a NodeProto,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), FormatError> {
        let mut inner = frame.within(graph, label(node), false);
        self.initializers(graph, &mut inner)?;
        self.nodes(&graph.node, &mut inner)?;
        let outputs = self.outputs(graph, node, &inner)?;
        if outputs.len() != node.output.len() {
            let message =
                format!("its branch has `{}` outputs, it has `{}`", outputs.len(), node.output.len());
            return Err(FormatError::new(place(node, frame), message));
        }
        for (name, tensor) in node.output.iter().zip(outputs).filter(|(name, _)| !name.is_empty()) {
            self.define(frame, name, tensor, None).map_err(|trouble| at(place(node, frame), trouble))?;
        }
        Ok(())
    }

    /// What `graph` results in, as its own storages or those that it captures.
    fn outputs(
        &mut self,
        graph: &'a GraphProto,
        node: &NodeProto,
        inner: &Frame<'_, 'a>,
    ) -> Result<Vec<Tensor>, FormatError> {
        let mut outputs = Vec::new();
        for info in &graph.output {
            match self.find(info.name(), inner) {
                Ok(Some(tensor)) => outputs.push(tensor),
                found => {
                    let trouble = found.err().unwrap_or_else(|| Trouble::new("no node makes it"));
                    return Err(at(
                        format!("output `{}{}` ({})", inner.prefix, info.name(), node.op_type()),
                        trouble,
                    ));
                }
            }
        }
        Ok(outputs)
    }

    /// Types that hold what either branch results in.
    fn merge(
        &self,
        node: &NodeProto,
        before: Vec<Tensor>,
        next: Vec<Tensor>,
        frame: &Frame<'_, 'a>,
    ) -> Result<Vec<Tensor>, Trouble> {
        if next.len() != node.output.len() {
            refuse!("its branch has `{}` outputs, it has `{}`", next.len(), node.output.len());
        }
        let plain = |tensor: &Tensor| Tensor::new(tensor.elem, tensor.shape.clone());
        if before.is_empty() {
            return Ok(next.iter().map(plain).collect());
        }
        let mut merged = Vec::new();
        for ((a, b), name) in before.iter().zip(&next).zip(&node.output) {
            if a.elem != b.elem {
                refuse!("its branches make `{name}` of types `{}` and `{}`", a.elem.name(), b.elem.name());
            }
            let shape = if a.rank() == b.rank() {
                a.shape.iter().zip(&b.shape).map(|(&a, &b)| a.max(b)).collect()
            } else {
                let told = self.told(name, Some(a.elem), frame);
                let Some(told) = told else {
                    let (a, b) = (show(&a.shape), show(&b.shape));
                    return Err(run_time(format!("its branches make `{name}` of shapes `{a}` and `{b}`"))
                        .hint(format!(
                            "give the shape to go on with: `{}`, …",
                            option(&format!("{name}[0]"))
                        )));
                };
                if told.bytes()? < a.bytes()?.max(b.bytes()?) {
                    let (a, b, told) = (show(&a.shape), show(&b.shape), show(&told.shape));
                    refuse!("`{name}` is told to be `{told}`, which does not hold `{a}` and `{b}`");
                }
                told.shape
            };
            merged.push(Tensor::new(a.elem, shape));
        }
        Ok(merged)
    }

    fn repeat(&mut self, call: &Call<'a>, frame: &mut Frame<'_, 'a>) -> Result<(), FormatError> {
        let node = call.node;
        let fail = |trouble: Trouble, frame: &Frame<'_, 'a>| at(place(node, frame), trouble);
        let graph = self.part(call, "body", frame).map_err(|trouble| fail(trouble, frame))?;
        let (trips, shape, count) =
            self.loop_shape(call, graph, frame).map_err(|trouble| fail(trouble, frame))?;
        let body = self.body(call, graph, "body", &shape, frame)?;
        let mut outputs = Vec::new();
        for (at, tensor) in body.outputs.iter().skip(1).enumerate() {
            let carried = shape.inputs.get(2 + at).filter(|_| at < count).map(|(tensor, _)| tensor);
            let name = node.output.get(at).map_or("", String::as_str);
            let output = match carried {
                Some(carried) => self.carries(carried, tensor, name, frame),
                None => self.gathered(tensor, trips, name, frame),
            };
            outputs.push(output.map_err(|trouble| fail(trouble, frame))?);
        }
        let times = trips.or_else(|| outputs.get(count).and_then(|scan| scan.shape.first().copied()));
        let mut cost = Cost::default();
        self.count(body, times.unwrap_or(1) as f64, &mut cost, (node, "body"), frame)?;
        self.op(call, outputs, cost, frame).map_err(|trouble| fail(trouble, frame))
    }

    /// How often the loop runs, if that is known; what its body is given; and how many values it carries.
    fn loop_shape(
        &self,
        call: &Call<'a>,
        graph: &GraphProto,
        frame: &Frame<'_, 'a>,
    ) -> Result<(Option<u64>, Shape, usize), Trouble> {
        let count = call.inputs.len().saturating_sub(2);
        if graph.input.len() != count + 2 || graph.output.len() < count + 1 {
            let (inputs, outputs) = (graph.input.len(), graph.output.len());
            refuse!("its body has `{inputs}` inputs and `{outputs}` outputs, it carries `{count}` values");
        }
        let trips = match call.optional(0).and_then(|most| most.known.as_ref()) {
            Some(Known::Ints(all)) => all.first().map(|&trips| u64::try_from(trips).unwrap_or(0)),
            _ => None,
        };
        let scalar = |elem| (Tensor::new(elem, Vec::new()), false);
        let mut inputs = vec![scalar(Elem::INT64), scalar(Elem::BOOL)];
        for (at, name) in
            (2..call.inputs.len()).zip(call.node.output.iter().map(Some).chain(std::iter::repeat(None)))
        {
            let initial = call.input(at)?;
            // The largest that it may become.
            let told = name.and_then(|name| self.told(name, Some(initial.elem), frame));
            let told = told.filter(|told| told.rank() == initial.rank());
            let shape = told.map_or_else(|| initial.shape.clone(), |told| most(&told.shape, &initial.shape));
            inputs.push((Tensor::new(initial.elem, shape), false));
        }
        let targets = (0..graph.output.len()).map(|at| at.checked_sub(1)).collect();
        Ok((trips, Shape { inputs, targets }, count))
    }

    /// The output for a value that is carried as `before` and comes back as `after`.
    fn carries(
        &self,
        before: &Tensor,
        after: &Tensor,
        name: &str,
        frame: &Frame<'_, 'a>,
    ) -> Result<Tensor, Trouble> {
        if before.elem != after.elem {
            refuse!("it carries `{name}` as `{}` and as `{}`", before.elem.name(), after.elem.name());
        }
        let grows =
            before.rank() != after.rank()
                || before.shape.iter().zip(&after.shape).enumerate().any(|(axis, (before, after))| {
                    after > before && self.told_dim(name, axis, frame).is_none()
                });
        if grows {
            let (before, after) = (show(&before.shape), show(&after.shape));
            return Err(run_time(format!("what it carries as `{name}` grows from `{before}` to `{after}`"))
                .hint(format!(
                    "give the largest shape, each dimension: `{}`, …",
                    option(&format!("{name}[0]"))
                )));
        }
        Ok(Tensor::new(before.elem, before.shape.clone()))
    }

    /// The output that gathers `each` of `trips` iterations.
    fn gathered(
        &self,
        each: &Tensor,
        trips: Option<u64>,
        name: &str,
        frame: &Frame<'_, 'a>,
    ) -> Result<Tensor, Trouble> {
        let declared = || self.told(name, None, frame).and_then(|told| told.shape.first().copied());
        let unnamed = if name.is_empty() { Some(0) } else { None };
        let told = unnamed.or_else(|| self.told_dim(name, 0, frame)).or(trips).or_else(declared);
        let Some(trips) = told else {
            return Err(run_time(format!(
                "`{name}` grows with each iteration, and how many there are only a run can tell"
            ))
            .hint(format!("give the most iterations: `{}`", option(&format!("{name}[0]")))));
        };
        let shape = [&[trips], each.shape.as_slice()].concat();
        Ok(Tensor::new(each.elem, shape))
    }

    fn scan(&mut self, call: &Call<'a>, frame: &mut Frame<'_, 'a>) -> Result<(), FormatError> {
        let node = call.node;
        let fail = |trouble: Trouble, frame: &Frame<'_, 'a>| at(place(node, frame), trouble);
        let graph = self.part(call, "body", frame).map_err(|trouble| fail(trouble, frame))?;
        let scan = Scan::of(call, graph).map_err(|trouble| fail(trouble, frame))?;
        let body = self.body(call, graph, "body", &scan.shape, frame)?;
        let outputs = scan.outputs(&body.outputs).map_err(|trouble| fail(trouble, frame))?;
        let mut cost = Cost::default();
        self.count(body, scan.trips as f64, &mut cost, (node, "body"), frame)?;
        self.op(call, outputs, cost, frame).map_err(|trouble| fail(trouble, frame))
    }

    /// Lowers a branch or body as a graph of its own.
    fn body(
        &mut self,
        call: &Call<'a>,
        graph: &'a GraphProto,
        what: &str,
        shape: &Shape,
        frame: &Frame<'_, 'a>,
    ) -> Result<Body, FormatError> {
        let node = call.node;
        self.around.push(std::mem::take(&mut self.lowered));
        let name = format!("{}/{what}", label(node));
        let mut inner = frame.within(graph, &name, true);
        self.initializers(graph, &mut inner)?;
        for (info, (tensor, elsewhere)) in graph.input.iter().zip(&shape.inputs) {
            let storage = self.lowered.storages.len();
            self.define(&mut inner, info.name(), tensor.clone(), Some(Role::Input))
                .map_err(|trouble| at(format!("input `{}{}`", inner.prefix, info.name()), trouble))?;
            if let Some(storage) = self.lowered.storages.get_mut(storage) {
                storage.elsewhere |= elsewhere;
            }
        }
        self.nodes(&graph.node, &mut inner)?;
        let outputs = self.outputs(graph, node, &inner)?;
        for (output, target) in outputs.iter().zip(&shape.targets) {
            let Some(storage) = output.storage else { continue };
            self.lowered.outputs.push(storage);
            let named = target.and_then(|at| node.output.get(at)).is_some_and(|name| !name.is_empty());
            let stored = &mut self.lowered.storages[storage];
            // It is written where the op's output is.
            stored.elsewhere |= named && stored.role == Role::Activation;
        }
        let outer = self.around.pop().unwrap_or_default();
        Ok(Body { lowered: std::mem::replace(&mut self.lowered, outer), outputs })
    }

    /// Adds what `body` costs if it runs `times` times.
    fn count(
        &mut self,
        body: Body,
        times: f64,
        cost: &mut Cost,
        (node, what): (&NodeProto, &str),
        frame: &Frame<'_, 'a>,
    ) -> Result<(), FormatError> {
        let lowered = body.lowered;
        let tasks = || lowered.tasks.iter();
        let flops = tasks().map(|task| task.flops).sum::<f64>() * times;
        cost.flops = cost.flops.max(flops);
        let moved = tasks().map(|task| task.moved as f64).sum::<f64>() * times;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let moved = moved.min((1u64 << 62) as f64) as u64;
        cost.moved = cost.moved.max(moved);
        cost.seeded |= tasks().any(|task| task.effect == Effect::Seeded);
        let used: BTreeSet<usize> =
            tasks().flat_map(|task| &task.reads).chain(&lowered.outputs).copied().collect();
        let captured = lowered.captured.iter().filter(|(_, inner)| used.contains(inner));
        cost.captured.extend(captured.map(|(outer, _)| outer));
        let name = format!("{}{}/{what}", frame.prefix, label(node));
        let graph = emit::emit(lowered, &name).map_err(|error| FormatError {
            place: format!("{} {}", place(node, frame), error.place),
            ..error
        })?;
        let bytes = (self.plan)(&graph).map_err(|message| {
            FormatError::new(place(node, frame), format!("its branch or body can't be planned: {message}"))
        })?;
        cost.workspace = cost.workspace.max(bytes.0);
        Ok(())
    }

    /// Adds the op of a node of control flow.
    fn op(
        &mut self,
        call: &Call<'a>,
        outputs: Vec<Tensor>,
        cost: Cost,
        frame: &mut Frame<'_, 'a>,
    ) -> Result<(), Trouble> {
        let node = call.node;
        if node.output.len() > outputs.len() {
            refuse!("it has `{}` outputs, its body `{}`", node.output.len(), outputs.len());
        }
        let dtype = outputs.first().map_or(Dtype::F32, |output| output.elem.dtype());
        let mut writes = Vec::new();
        for (name, tensor) in node.output.iter().zip(outputs).filter(|(name, _)| !name.is_empty()) {
            writes.push(self.lowered.storages.len());
            self.define(frame, name, tensor, Some(Role::Activation))?;
        }
        let given =
            call.inputs.iter().flatten().filter(|tensor| !(tensor.constant && tensor.known.is_some()));
        let mut reads: Vec<usize> = given.filter_map(|tensor| tensor.storage).collect();
        reads.extend(cost.captured);
        reads.sort_unstable();
        reads.dedup();
        if writes.is_empty() && !cost.seeded {
            return Ok(());
        }
        self.lowered.tasks.push(Task {
            name: format!("{}{}", frame.prefix, label(node)),
            kind: node.op_type().to_owned(),
            attributes: None,
            module: module(node),
            flops: if cost.flops.is_finite() { cost.flops } else { 0.0 },
            moved: cost.moved,
            workspace: cost.workspace,
            dtype,
            effect: if cost.seeded { Effect::Seeded } else { Effect::Pure },
            reads,
            writes,
            reuses: Vec::new(),
        });
        Ok(())
    }
}

/// The larger of two dimensions each.
fn most(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(&a, &b)| a.max(b)).collect()
}
