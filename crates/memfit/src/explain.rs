//! What holds the memory of a step, and what each remedy would give.

use std::collections::BTreeMap;

use memfit_ir::{BufferId, Bytes, Content, Graph, InPlace, Nanos, OpId, Program, Role, Step};
use memfit_plan::Context;
use memfit_plan::families::{self, default_of};
use memfit_plan::liveness::Profile;
use memfit_plan::place::{PLACERS, Problem};

use crate::floor::label;
use crate::held::{held_by, label_of};
use crate::planner::{base_time, place_with};
use crate::{Failure, Floor, Goal, Summary, Tools, plan};

/// Bytes that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Role, module or kind of op.
    pub name: String,
    /// Bytes, each buffer rounded up to the alignment.
    pub bytes: Bytes,
    /// Number of buffers.
    pub count: usize,
}

/// A buffer that is in memory at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name of its value.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its bytes.
    pub bytes: Bytes,
    /// `f32[32, 64, 56, 56]`.
    pub shape: String,
    /// Name of the op that made it, empty for what is there from the start.
    pub made_by: String,
    /// Module of that op.
    pub module: String,
    /// Name of the last op that reads it, empty if it stays to the end.
    pub last_read_by: String,
}

/// Something that exists today and makes the step smaller.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// Short name.
    pub name: &'static str,
    /// What it is.
    pub what: String,
    /// Bytes of device memory that the step takes with it.
    pub peak: Bytes,
    /// What moving values comes to, where that is part of it.
    pub moved: Option<Box<Summary>>,
}

impl Remedy {
    fn new(name: &'static str, what: impl Into<String>, peak: Bytes) -> Remedy {
        Remedy { name, what: what.into(), peak, moved: None }
    }
}

/// Where the memory of a step goes. All of it is about the step as given: its own order, every op once, each
/// buffer freed after its last use; `remedies` are about other ways to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Name of the model.
    pub graph: String,
    /// Number of ops.
    pub ops: usize,
    /// Number of values.
    pub values: usize,
    /// Floating-point operations of the step.
    pub flops: f64,
    /// Predicted time of the step.
    pub time: Nanos,
    /// Bytes that stay for the whole step, by role: parameters, optimizer state, constants, persistent outputs.
    pub fixed: Vec<Share>,
    /// Sum of `fixed`.
    pub fixed_bytes: Bytes,
    /// Largest sum of live bytes.
    pub live_peak: Bytes,
    /// The op that runs at the peak.
    pub peak_op: Option<OpId>,
    /// Live bytes while each op runs, in the order of the ops.
    pub live: Vec<Bytes>,
    /// What is live at the peak, by role.
    pub by_role: Vec<Share>,
    /// The same by module.
    pub by_module: Vec<Share>,
    /// The same by kind of the op that made it.
    pub by_kind: Vec<Share>,
    /// The largest buffers at the peak.
    pub top: Vec<Holder>,
    /// Persistent bytes plus the largest single-op working set.
    pub floor: Floor,
    /// The op at the peak, if nothing is live then that could be elsewhere: moving values does not lower the peak.
    pub held_by: Option<String>,
    /// What can be done about it; the first row is no remedy at all.
    pub remedies: Vec<Remedy>,
}

/// Explains `graph`. Modules are cut to `depth` components; `top` of the largest buffers are listed.
///
/// # Errors
///
/// As [`plan`]: remedies are real plans.
pub fn explain(
    graph: &Graph,
    goal: &Goal,
    depth: usize,
    top: usize,
    tools: &Tools<'_>,
) -> Result<Explanation, Failure> {
    let align = goal.device.align;
    let program = Program::eager(graph);
    let profile = Profile::of(&program, align);
    let (live_peak, at) = profile.peak();
    let computes = || program.steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::Compute(_)));
    let peak_op = match program.steps.get(at) {
        Some(Step::Compute(compute)) => Some(compute.op),
        _ => None,
    };
    let spans = program.lifespans();
    let here: Vec<BufferId> = (0..program.buffers.len())
        .filter(|&buffer| spans[buffer].from <= at && at < spans[buffer].until)
        .map(BufferId::at)
        .collect();
    let mut holders =
        Holders { graph, program: &program, align, roles: vec![], modules: vec![], kinds: vec![] };
    here.iter().for_each(|&buffer| holders.add(buffer, peak_op, depth));
    let mut largest: Vec<BufferId> = here
        .iter()
        .copied()
        .filter(|buffer| program.buffers[buffer.index()].content != Content::Workspace)
        .collect();
    largest.sort_by_key(|buffer| (std::cmp::Reverse(program.buffers[buffer.index()].size), *buffer));
    largest.truncate(top);
    let fixed = fixed(graph, align);
    Ok(Explanation {
        graph: graph.name().to_owned(),
        ops: graph.op_count(),
        values: graph.value_count(),
        flops: graph.op_ids().map(|op| graph.op(op).flops).sum(),
        time: base_time(graph, &goal.device),
        fixed_bytes: fixed.iter().map(|share| share.bytes).sum(),
        fixed,
        live_peak,
        peak_op,
        live: computes().map(|(step, _)| profile.live[step]).collect(),
        by_role: shares(&holders.roles),
        by_module: shares(&holders.modules),
        by_kind: shares(&holders.kinds),
        top: largest.iter().filter_map(|&buffer| holder(graph, &program, buffer)).collect(),
        floor: Floor::of(graph, align),
        held_by: held_by(graph, &program, align).map(|op| label_of(graph, op)),
        remedies: remedies(graph, goal, &program, tools)?,
    })
}

/// Bytes at the peak under three headings.
struct Holders<'a> {
    graph: &'a Graph,
    program: &'a Program,
    align: Bytes,
    roles: Vec<(String, Bytes)>,
    modules: Vec<(String, Bytes)>,
    kinds: Vec<(String, Bytes)>,
}

impl Holders<'_> {
    fn add(&mut self, buffer: BufferId, running: Option<OpId>, depth: usize) {
        let claim = self.program.buffers[buffer.index()];
        let size = claim.size.round_up(self.align);
        let (role, maker) = match claim.content.value() {
            Some(value) => (self.graph.value(value).role.name(), self.graph.value(value).producer),
            None => ("workspace", running),
        };
        let (module, kind) = match maker {
            Some(op) => (cut(self.graph.op(op).module, depth), self.graph.op(op).kind),
            None => {
                // A source belongs to the module that reads it first.
                let reader = claim.content.value().and_then(|v| self.graph.value(v).readers.first());
                (reader.map_or("", |&op| cut(self.graph.op(op).module, depth)), "(there from the start)")
            }
        };
        let module = if module.is_empty() { "(none)" } else { module };
        self.roles.push((role.to_owned(), size));
        self.modules.push((module.to_owned(), size));
        self.kinds.push((kind.to_owned(), size));
    }
}

/// The first `depth` components of a dotted path.
fn cut(path: &str, depth: usize) -> &str {
    let end = path.match_indices('.').nth(depth.saturating_sub(1)).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

/// Sums by name, largest first, ties by name.
pub(crate) fn shares(entries: &[(String, Bytes)]) -> Vec<Share> {
    let mut sums: BTreeMap<&str, (Bytes, usize)> = BTreeMap::new();
    for (name, bytes) in entries {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + *bytes, sum.1 + 1);
    }
    let mut shares: Vec<Share> = sums
        .into_iter()
        .map(|(name, (bytes, count))| Share { name: name.to_owned(), bytes, count })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    shares
}

/// Bytes of what stays for the whole step: sources that are persistent.
fn fixed(graph: &Graph, align: Bytes) -> Vec<Share> {
    let sources = graph.value_ids().map(|id| graph.value(id));
    let lasting = sources.filter(|value| value.producer.is_none() && value.role.is_persistent());
    let entries: Vec<_> =
        lasting.map(|value| (value.role.name().to_owned(), value.size.round_up(align))).collect();
    shares(&entries)
}

fn holder(graph: &Graph, program: &Program, buffer: BufferId) -> Option<Holder> {
    let id = program.buffers[buffer.index()].content.value()?;
    let value = graph.value(id);
    let dims: Vec<String> = value.shape.iter().map(u64::to_string).collect();
    let reader = value.readers.last().filter(|_| !graph.is_result(id));
    Some(Holder {
        name: label(graph, id),
        role: value.role,
        bytes: value.size,
        shape: format!("{}[{}]", value.dtype.name(), dims.join(", ")),
        made_by: value.producer.map_or(String::new(), |op| graph.op(op).name.to_owned()),
        module: value.producer.map_or(String::new(), |op| graph.op(op).module.to_owned()),
        last_read_by: reader.map_or(String::new(), |&op| graph.op(op).name.to_owned()),
    })
}

/// What each means that exists today gives, from nothing to all of them.
fn remedies(graph: &Graph, goal: &Goal, eager: &Program, tools: &Tools<'_>) -> Result<Vec<Remedy>, Failure> {
    let align = goal.device.align;
    let context = Context { seed: goal.options.seed, stop: tools.stop, ..Context::new(&goal.device) };
    let mut limits = goal.device.limits();
    limits.banks[0].capacity = Bytes::MAX;
    let (problem, _) = Problem::of(graph, eager, &limits);
    let mut rows =
        vec![Remedy::new("none", "without reuse: every value in memory of its own", problem.total())];
    for placer in PLACERS.iter().filter(|placer| placer.replays_allocator()) {
        let info = placer.info();
        let placed = place_with(*placer, &problem, &context)?;
        rows.push(Remedy::new(info.name, format!("{}, as given", info.summary), placed.reserved));
    }
    let live = |program: &Program| Profile::of(program, align).peak().0;
    let given: Vec<OpId> = graph.op_ids().collect();
    let in_place = Program::in_order(graph, &given, InPlace::May);
    let (problem, _) = Problem::of(graph, &in_place, &limits);
    let placed = place_with(families::placer(default_of("place"))?, &problem, &context)?;
    let ordered = families::order(default_of("order"))?.order(graph, &context);
    let reordered = Program::in_order(graph, &ordered, InPlace::May);
    let everything = Goal { budget: crate::Budget::Bytes(Bytes::MAX), ..goal.clone() };
    let half = Goal { budget: crate::Budget::AboveFloor(0.5), ..goal.clone() };
    let planned = plan(graph, &everything, tools)?.summary.peak;
    rows.extend([
        Remedy::new("share", "live bytes only, with no fragmentation", live(eager)),
        Remedy::new("in-place", "also outputs over inputs where the ops permit it", live(&in_place)),
        Remedy::new("place", "planned offsets for that, fragmentation included", placed.height),
        Remedy::new("order", "live bytes in a better order", live(&reordered)),
        Remedy::new("plan", "`memfit plan`: order, in-place and offsets together, verified", planned),
    ]);
    match plan(graph, &half, tools) {
        Ok(planned) => rows.push(halved(planned.summary)),
        Err(Failure::Infeasible(_) | Failure::Timeout(_)) => {} // Not every step can trade time for memory.
        Err(failure) => return Err(failure),
    }
    Ok(rows)
}

/// What a plan for half of what lies above the floor gives.
fn halved(summary: Summary) -> Remedy {
    let (runs, moves) = (summary.recompute > Nanos::ZERO, summary.offloaded > Bytes::ZERO);
    let (name, how) = match (runs, moves) {
        (_, false) => ("recompute", "ops that run again"),
        (false, true) => ("offload", "values that wait in other memory"),
        (true, true) => ("hybrid", "ops that run again and values that wait in other memory"),
    };
    let slower = summary.overhead() * 100.0;
    let what = format!("`memfit plan --budget floor+50%`: also {how}, step {slower:+.1} %");
    let peak = summary.peak;
    Remedy { moved: moves.then(|| Box::new(summary)), ..Remedy::new(name, what, peak) }
}
