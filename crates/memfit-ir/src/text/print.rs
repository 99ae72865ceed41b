//! Writing the text form.

use std::fmt::{self, Write};

use super::cursor::is_word;
use crate::{
    BufferId, Bytes, Content, CopyId, Dtype, Effect, Graph, Limits, Need, OpId, Place, Plan, Price, Program,
    Step, Tier, ValueId,
};

/// The text of what is given. [`super::parse()`] reads it back to the same.
///
/// A plan for the graph beside it leaves its digest out. Time and space O(length of the text).
#[must_use]
pub fn print(limits: Option<&Limits>, graph: Option<&Graph>, plan: Option<&Plan>) -> String {
    let mut out = String::new();
    let mut all = || -> fmt::Result {
        if let Some(limits) = limits {
            print_limits(&mut out, limits)?;
        }
        if let Some(graph) = graph {
            print_graph(&mut out, graph)?;
        }
        if let Some(plan) = plan {
            print_plan(&mut out, plan, graph.is_some_and(|graph| graph.digest() == plan.graph))?;
        }
        Ok(())
    };
    all().ok(); // Writing to a string does not fail.
    out
}

/// One step of a plan as a line, with every buffer and copy that it speaks of in full. Time O(operands).
#[must_use]
pub fn step(plan: &Plan, index: usize) -> String {
    let mut out = String::new();
    if let Some(step) = plan.program.steps.get(index) {
        PlanPrinter { plan, seen: None }.step(&mut out, step).ok();
    }
    out
}

fn quote(out: &mut String, name: &str) -> fmt::Result {
    out.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(())
}

/// A name after a space, or nothing for the empty name.
fn name(out: &mut String, name: &str) -> fmt::Result {
    if name.is_empty() {
        return Ok(());
    }
    out.push(' ');
    quote(out, name)
}

fn list<T: fmt::Display>(out: &mut String, items: impl IntoIterator<Item = T>) -> fmt::Result {
    for (at, item) in items.into_iter().enumerate() {
        write!(out, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn print_limits(out: &mut String, limits: &Limits) -> fmt::Result {
    writeln!(out, "limits")?;
    for bank in &limits.banks {
        write!(out, "  bank {} align={}", bank.capacity.0, bank.align.0)?;
        name(out, &bank.name)?;
        writeln!(out)?;
    }
    if limits.host != Bytes::ZERO {
        writeln!(out, "  host {}", limits.host.0)?;
    }
    if limits.disk != Bytes::ZERO {
        writeln!(out, "  disk {}", limits.disk.0)?;
    }
    if !limits.lossy.is_empty() {
        write!(out, "  lossy")?;
        for codec in &limits.lossy {
            write!(out, " {}", codec.name())?;
        }
        writeln!(out)?;
    }
    if limits.replays_random {
        writeln!(out, "  replays-random")?;
    }
    if limits.lanes != 1 {
        writeln!(out, "  lanes {}", limits.lanes)?;
    }
    Ok(())
}

fn print_graph(out: &mut String, graph: &Graph) -> fmt::Result {
    write!(out, "graph")?;
    name(out, graph.name())?;
    writeln!(out)?;
    if graph.replays_random() {
        writeln!(out, "  replays-random")?;
    }
    let mut next = 0;
    for id in graph.op_ids() {
        let op = graph.op(id);
        // Every value stands before the first op that speaks of it, or of a later value.
        let until = op.reads.iter().chain(op.writes).map(|value| value.index() + 1).max().unwrap_or(0);
        print_values(out, graph, next..until)?;
        next = next.max(until);
        print_op(out, graph, id)?;
    }
    print_values(out, graph, next..graph.value_count())?;
    for results in graph.results().chunks(12) {
        write!(out, "  result")?;
        for value in results {
            write!(out, " {value}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_values(out: &mut String, graph: &Graph, range: std::ops::Range<usize>) -> fmt::Result {
    for id in range.map(ValueId::at) {
        let value = graph.value(id);
        write!(out, "  {id} = {} {}", value.role.name(), value.size.0)?;
        name(out, value.name)?;
        if value.dtype != Dtype::default() || !value.shape.is_empty() {
            write!(out, " {}[", value.dtype.name())?;
            for (at, dimension) in value.shape.iter().enumerate() {
                write!(out, "{}{dimension}", if at == 0 { "" } else { "," })?;
            }
            write!(out, "]")?;
        }
        if let Some(density) = value.density {
            write!(out, " density={density}")?;
        }
        if let Some(sensitivity) = value.sensitivity {
            write!(out, " sensitivity={sensitivity}")?;
        }
        if let Some(pin) = value.pin {
            write!(out, " pin={}", pin.bank)?;
            if let Some(offset) = pin.offset {
                write!(out, "@{}", offset.0)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_op(out: &mut String, graph: &Graph, id: OpId) -> fmt::Result {
    let op = graph.op(id);
    write!(out, "  {id} = {} ", op.phase.name())?;
    if !op.kind.is_empty() && op.kind.chars().all(is_word) {
        out.push_str(op.kind);
    } else {
        quote(out, op.kind)?;
    }
    out.push('(');
    list(out, op.reads)?;
    out.push(')');
    if !op.writes.is_empty() {
        out.push_str(" -> ");
        list(out, op.writes)?;
    }
    name(out, op.name)?;
    if let Some(attributes) = op.attributes {
        out.push_str(" attributes=");
        quote(out, attributes)?;
    }
    if !op.module.is_empty() {
        out.push_str(" module=");
        quote(out, op.module)?;
    }
    if op.effect != Effect::Pure {
        write!(out, " {}", op.effect.name())?;
    }
    if op.flops.to_bits() != 0 {
        // `{:?}` keeps exponents, and so large numbers short.
        let flops = format!("{:?}", op.flops);
        write!(out, " flops={}", flops.strip_suffix(".0").unwrap_or(&flops))?;
    }
    if op.moved != Bytes::ZERO {
        write!(out, " moved={}", op.moved.0)?;
    }
    if op.dtype != Dtype::default() {
        write!(out, " dtype={}", op.dtype.name())?;
    }
    if let Some(time) = op.time {
        write!(out, " time={}", time.0)?;
    }
    if op.workspace != Bytes::ZERO {
        write!(out, " workspace={}", op.workspace.0)?;
    }
    for algorithm in op.algorithms {
        write!(out, " algorithm={}:", algorithm.workspace.0)?;
        match algorithm.price {
            Price::Time(time) => write!(out, "{}", time.0)?,
            Price::Work { flops, moved } => write!(out, "{flops}/{}", moved.0)?,
        }
    }
    for (at, need) in op.needs.iter().enumerate().filter(|(_, need)| **need != Need::Value) {
        write!(out, " {}={at}", need.name())?;
    }
    for pair in op.reuses {
        write!(out, " {}={}>{}", if pair.must { "must" } else { "may" }, pair.input, pair.output)?;
    }
    writeln!(out)
}

fn print_plan(out: &mut String, plan: &Plan, same_graph: bool) -> fmt::Result {
    write!(out, "plan")?;
    if !same_graph {
        write!(out, " {}", plan.graph)?;
    }
    writeln!(out)?;
    let program = &plan.program;
    let mut printer = PlanPrinter::new(plan);
    for &buffer in &program.resident {
        write!(out, "  resident ")?;
        printer.buffer(out, buffer)?;
        writeln!(out)?;
    }
    for &copy in &program.parked {
        write!(out, "  parked ")?;
        printer.copy(out, copy)?;
        writeln!(out)?;
    }
    let mut awaited = vec![false; program.steps.len()];
    for step in &program.steps {
        if let Step::Await(step) = step
            && let Some(awaited) = awaited.get_mut(step.index())
        {
            *awaited = true;
        }
    }
    for (at, step) in program.steps.iter().enumerate() {
        write!(out, "  ")?;
        if awaited[at] {
            write!(out, "s{at}: ")?;
        }
        printer.step(out, step)?;
        match program.lanes.get(at) {
            Some(&lane) if lane != 0 => writeln!(out, " on {lane}")?,
            _ => writeln!(out)?,
        }
    }
    let (buffers_seen, copies_seen) = printer.seen.clone().unwrap_or_default();
    for (index, _) in buffers_seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        write!(out, "  unused ")?;
        printer.buffer(out, BufferId::at(index))?;
        writeln!(out)?;
    }
    for (index, _) in copies_seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        write!(out, "  unused ")?;
        printer.copy(out, CopyId::at(index))?;
        writeln!(out)?;
    }
    // Any `on` means that every step has a lane; a list that's otherwise must say so.
    let (lanes, steps) = (&program.lanes, program.steps.len());
    let any = lanes.iter().take(steps).any(|&lane| lane != 0);
    if lanes.len() < steps && !lanes.is_empty() || lanes.len() == steps && !any && steps > 0 {
        writeln!(out, "  lanes {}", lanes.len())?;
    }
    for &place in plan.layout.places.iter().skip(program.buffers.len()) {
        writeln!(out, "  surplus @{}", PlaceText(place))?;
    }
    for lane in program.lanes.iter().skip(program.steps.len()) {
        writeln!(out, "  surplus on {lane}")?;
    }
    Ok(())
}

/// Prints what a buffer or copy is where it is first met.
struct PlanPrinter<'p> {
    plan: &'p Plan,
    /// Buffers and copies met so far; `None` describes all of them every time.
    seen: Option<(Vec<bool>, Vec<bool>)>,
}

impl<'p> PlanPrinter<'p> {
    fn new(plan: &'p Plan) -> PlanPrinter<'p> {
        let Program { buffers, copies, .. } = &plan.program;
        PlanPrinter { plan, seen: Some((vec![false; buffers.len()], vec![false; copies.len()])) }
    }

    fn buffer(&mut self, out: &mut String, id: BufferId) -> fmt::Result {
        write!(out, "{id}")?;
        let Some(buffer) = self.plan.program.buffers.get(id.index()) else { return Ok(()) };
        if self.seen.as_mut().is_some_and(|(seen, _)| std::mem::replace(&mut seen[id.index()], true)) {
            return Ok(());
        }
        write!(out, "[{} +{}", ContentText(buffer.content), buffer.size.0)?;
        if let Some(place) = self.plan.layout.place(id) {
            write!(out, " @{}", PlaceText(place))?;
        }
        if let Some(over) = buffer.over {
            write!(out, " over {over}")?;
        }
        write!(out, "]")
    }

    fn buffers(&mut self, out: &mut String, ids: &[BufferId]) -> fmt::Result {
        for (at, &id) in ids.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            self.buffer(out, id)?;
        }
        Ok(())
    }

    fn copy(&mut self, out: &mut String, id: CopyId) -> fmt::Result {
        write!(out, "{id}")?;
        let Some(copy) = self.plan.program.copies.get(id.index()) else { return Ok(()) };
        if self.seen.as_mut().is_some_and(|(_, seen)| std::mem::replace(&mut seen[id.index()], true)) {
            return Ok(());
        }
        let tier = if copy.tier == Tier::Host { "" } else { " disk" };
        write!(out, "[{} +{}{tier}]", ContentText(copy.content), copy.size.0)
    }

    fn step(&mut self, out: &mut String, step: &Step) -> fmt::Result {
        match step {
            Step::Compute(compute) => {
                let program = &self.plan.program;
                write!(out, "compute {}", compute.op)?;
                if compute.algorithm != 0 {
                    write!(out, "#{}", compute.algorithm)?;
                }
                out.push('(');
                self.buffers(out, program.reads(compute))?;
                out.push(')');
                if !program.writes(compute).is_empty() {
                    out.push_str(" -> ");
                    self.buffers(out, program.writes(compute))?;
                }
                if let Some(workspace) = compute.workspace {
                    out.push_str(" work ");
                    self.buffer(out, workspace)?;
                }
            }
            Step::Free(buffer) => {
                out.push_str("free ");
                self.buffer(out, *buffer)?;
            }
            Step::Offload { from, to } => {
                out.push_str("offload ");
                self.buffer(out, *from)?;
                out.push_str(" -> ");
                self.copy(out, *to)?;
            }
            Step::Fetch { from, to } => {
                out.push_str("fetch ");
                self.copy(out, *from)?;
                out.push_str(" -> ");
                self.buffer(out, *to)?;
            }
            Step::Discard(copy) => {
                out.push_str("discard ");
                self.copy(out, *copy)?;
            }
            Step::Await(step) => write!(out, "await {step}")?,
            Step::Encode { from, to } | Step::Decode { from, to } => {
                out.push_str(if matches!(step, Step::Encode { .. }) { "encode " } else { "decode " });
                self.buffer(out, *from)?;
                out.push_str(" -> ");
                self.buffer(out, *to)?;
            }
        }
        Ok(())
    }
}

struct ContentText(Content);

impl fmt::Display for ContentText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Content::Value(value) => write!(f, "{value}"),
            Content::Encoded(value, codec) => write!(f, "{} {value}", codec.name()),
            Content::Workspace => f.write_str("work"),
        }
    }
}

struct PlaceText(Place);

impl fmt::Display for PlaceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place { bank: 0, offset } => write!(f, "{}", offset.0),
            Place { bank, offset } => write!(f, "{bank}:{}", offset.0),
        }
    }
}
