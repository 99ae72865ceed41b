//! A program as stays and slices: what is where in memory, and what each lane and link does when.

use memfit_formats::report::{Axis, Lane, NameId, Report, Slice, SliceKind, Stay};
use memfit_ir::{
    Buffer, BufferId, Bytes, Content, Device, Graph, Layout, Nanos, OpId, Phase, Program, Step, Tier, ValueId,
};
use memfit_sim::{Timeline, simulate};

use crate::floor::label;

/// The memory of `program`, and with `graph` its names and its times on `device`. Sizes are rounded up to `align`.
///
/// `program` must be well-formed, and without a verifier's word may be nonsense: then so is the report.
#[must_use]
pub fn of_program(
    graph: Option<&Graph>,
    program: &Program,
    layout: Option<&Layout>,
    device: &Device,
    align: Bytes,
) -> (Report, Option<Timeline>) {
    let mut report = Report { axis: Axis::Steps, instants: program.steps.len(), ..Report::default() };
    let timeline = graph.map(|graph| simulate(graph, program, layout, device));
    stays(&mut report, graph, program, layout, align);
    if let (Some(graph), Some(timeline)) = (graph, &timeline) {
        let mut lanes = Lanes::new(graph, program, device, timeline, &mut report);
        for at in 0..program.steps.len() {
            lanes.step(at);
        }
        let (times, slices) = (lanes.times, lanes.slices);
        report.times = times;
        report.times.push(timeline.time.max(report.times.last().copied().unwrap_or_default()));
        report.slices = slices;
        if program.lanes.iter().any(|lane| *lane > 0) {
            by_time(&mut report, program, timeline);
        }
    }
    (report, timeline)
}

/// Of a program on several lanes: a stay begins when the step that fills it does, and ends with the last touch, for a free touches
/// nothing, and may be issued before a step of another lane that still reads.
fn by_time(report: &mut Report, program: &Program, timeline: &Timeline) {
    let whole = timeline.time.0;
    let mut born: Vec<Option<u64>> = vec![None; program.buffers.len()];
    let mut touched = vec![0; program.buffers.len()];
    let mut taken: Vec<Option<u64>> = vec![None; program.buffers.len()];
    let mut is_freed = vec![false; program.buffers.len()];
    program.resident.iter().for_each(|buffer| born[buffer.index()] = Some(0));
    for (step, span) in program.steps.iter().zip(&timeline.steps) {
        let (start, end) = (span.start.0, span.end.0);
        let mut touch = |buffer: BufferId| touched[buffer.index()] = end.max(touched[buffer.index()]);
        let mut fills: Vec<BufferId> = Vec::new();
        match step {
            Step::Compute(compute) => {
                program.reads(compute).iter().for_each(|&buffer| touch(buffer));
                fills.extend(program.writes(compute));
                if let Some(scratch) = compute.workspace {
                    is_freed[scratch.index()] = true;
                    fills.push(scratch);
                }
            }
            Step::Encode { from, to } | Step::Decode { from, to } => {
                touch(*from);
                fills.push(*to);
            }
            Step::Fetch { to, .. } => fills.push(*to),
            Step::Offload { from, .. } => touch(*from),
            Step::Free(buffer) => is_freed[buffer.index()] = true,
            Step::Discard(_) | Step::Await(_) => {}
        }
        for buffer in fills {
            touch(buffer);
            born[buffer.index()] = Some(start);
            if let Some(over) = program.buffers[buffer.index()].over {
                taken[over.index()] = Some(start);
            }
        }
    }
    let gone = |at: usize| match (taken[at], is_freed[at]) {
        (Some(time), _) => time,
        (None, true) => touched[at],
        (None, false) => whole,
    };
    let lives: Vec<(u64, u64)> =
        (0..born.len()).map(|at| born[at].map_or((0, 0), |from| (from, gone(at).max(from)))).collect();
    let mut times: Vec<u64> =
        lives.iter().flat_map(|&(from, until)| [from, until]).chain([0, whole]).collect();
    times.sort_unstable();
    times.dedup();
    let index = |time: u64| times.partition_point(|other| *other < time);
    for (stay, (from, until)) in report.stays.iter_mut().zip(lives) {
        (stay.from, stay.until) = (index(from), index(until));
    }
    report.axis = Axis::Moments;
    report.instants = times.len() - 1;
    report.times = times.into_iter().map(Nanos).collect();
}

/// Fills in what is in memory, in the order of the buffers.
fn stays(
    report: &mut Report,
    graph: Option<&Graph>,
    program: &Program,
    layout: Option<&Layout>,
    align: Bytes,
) {
    let makers = makers(program);
    let spans = program.lifespans();
    for (at, buffer) in program.buffers.iter().enumerate() {
        let span = spans[at];
        let maker = makers[at].and_then(|step| program.steps.get(step));
        let told = Told::of(graph, buffer, maker, program);
        let names = &mut report.names;
        report.stays.push(Stay {
            name: names.id(&told.name),
            role: names.id(&told.role),
            module: names.id(&told.module),
            shape: names.id(&told.shape),
            made_by: names.id(&told.made_by),
            bytes: buffer.size,
            size: buffer.size.round_up(align),
            place: layout.and_then(|layout| layout.place(BufferId::at(at))),
            from: span.from,
            until: span.until,
        });
    }
}

/// The step that fills each buffer, if one does.
fn makers(program: &Program) -> Vec<Option<usize>> {
    let mut makers = vec![None; program.buffers.len()];
    for (at, step) in program.steps.iter().enumerate() {
        match step {
            Step::Compute(compute) => {
                for buffer in program.writes(compute).iter().chain(&compute.workspace) {
                    makers[buffer.index()] = Some(at);
                }
            }
            Step::Fetch { to, .. } | Step::Encode { to, .. } | Step::Decode { to, .. } => {
                makers[to.index()] = Some(at);
            }
            Step::Free(_) | Step::Offload { .. } | Step::Discard(_) | Step::Await(_) => {}
        }
    }
    makers
}

/// The words for a buffer.
struct Told {
    name: String,
    role: String,
    module: String,
    shape: String,
    made_by: String,
}

impl Told {
    fn of(graph: Option<&Graph>, buffer: &Buffer, maker: Option<&Step>, program: &Program) -> Told {
        let known =
            buffer.content.value().zip(graph).filter(|(value, graph)| value.index() < graph.value_count());
        let op = |op: OpId| match graph.filter(|graph| op.index() < graph.op_count()) {
            Some(graph) if !graph.op(op).name.is_empty() => graph.op(op).name.to_owned(),
            _ => op.to_string(),
        };
        let made_by = match maker {
            Some(Step::Compute(compute)) => op(compute.op),
            Some(Step::Fetch { from, .. }) => {
                format!(
                    "copied in from {}",
                    program.copies.get(from.index()).map_or("host", |copy| copy.tier.name())
                )
            }
            Some(Step::Encode { .. }) => "encoded".to_owned(),
            Some(Step::Decode { .. }) => "decoded".to_owned(),
            _ => String::new(),
        };
        let shape = known.map_or(String::new(), |(value, graph)| shape(graph, value));
        let (name, role) = match (buffer.content, known) {
            (Content::Workspace, _) => ("workspace".to_owned(), "workspace".to_owned()),
            (Content::Encoded(_, codec), Some((value, graph))) => {
                (format!("{} as {}", label(graph, value), codec.name()), "encoded".to_owned())
            }
            (Content::Encoded(value, codec), None) => {
                (format!("{value} as {}", codec.name()), "encoded".to_owned())
            }
            (Content::Value(_), Some((value, graph))) => {
                (label(graph, value), graph.value(value).role.name().to_owned())
            }
            (Content::Value(value), None) => (value.to_string(), "value".to_owned()),
        };
        let module = match (known, maker, graph) {
            (Some((value, graph)), ..) => module(graph, value).to_owned(),
            (None, Some(Step::Compute(compute)), Some(graph)) if compute.op.index() < graph.op_count() => {
                graph.op(compute.op).module.to_owned()
            }
            _ => String::new(),
        };
        Told { name, role, module, shape, made_by }
    }
}

/// Empty where the graph has no shape; a scalar has one of no dimensions.
fn shape(graph: &Graph, value: ValueId) -> String {
    let value = graph.value(value);
    if value.shape.is_empty() && value.size > Bytes(16) {
        return String::new();
    }
    let dims: Vec<String> = value.shape.iter().map(u64::to_string).collect();
    format!("{}[{}]", value.dtype.name(), dims.join(", "))
}

/// The module of what makes a value; that of its first reader for a source.
fn module(graph: &Graph, value: ValueId) -> &str {
    let value = graph.value(value);
    value.producer.or(value.readers.first().copied()).map_or("", |op| graph.op(op).module)
}

/// Who does what when, step by step in the order of issue.
struct Lanes<'a> {
    graph: &'a Graph,
    program: &'a Program,
    device: &'a Device,
    timeline: &'a Timeline,
    report: &'a mut Report,
    /// By lane, when it is done with what it has been given so far.
    ready: Vec<u64>,
    /// By tier and direction, the row of the timeline.
    links: [[Option<usize>; 2]; Tier::ALL.len()],
    ran: Vec<bool>,
    times: Vec<Nanos>,
    slices: Vec<Slice>,
}

impl<'a> Lanes<'a> {
    fn new(
        graph: &'a Graph,
        program: &'a Program,
        device: &'a Device,
        timeline: &'a Timeline,
        report: &'a mut Report,
    ) -> Lanes<'a> {
        let count = (0..program.steps.len()).map(|at| usize::from(program.lane(at)) + 1).max().unwrap_or(1);
        for lane in 0..count {
            let name = if count == 1 { "compute".to_owned() } else { format!("compute {lane}") };
            report.lanes.push(Lane { name });
        }
        Lanes {
            graph,
            program,
            device,
            timeline,
            report,
            ready: vec![0; count],
            links: Default::default(),
            ran: vec![false; graph.op_count()],
            times: Vec::with_capacity(program.steps.len() + 1),
            slices: Vec::new(),
        }
    }

    /// Takes up one step: when it was issued, and what it kept busy.
    fn step(&mut self, at: usize) {
        let lane = usize::from(self.program.lane(at));
        let span = self.timeline.steps[at];
        let issued = self.ready[lane];
        let before = self.times.last().copied().unwrap_or_default();
        self.times.push(Nanos(issued).max(before));
        match self.program.steps[at] {
            Step::Compute(ref compute) => {
                let op = compute.op;
                if op.index() >= self.graph.op_count() {
                    return;
                }
                let kind = match (std::mem::replace(&mut self.ran[op.index()], true), self.graph.op(op).phase)
                {
                    (true, _) => SliceKind::Recompute,
                    (false, Phase::Forward) => SliceKind::Forward,
                    (false, Phase::Backward) => SliceKind::Backward,
                    (false, Phase::Update) => SliceKind::Update,
                };
                let name = self.op_name(op);
                self.busy(lane, kind, name, at, Bytes::ZERO);
            }
            Step::Encode { from, .. } => {
                let name = self.buffer_name(from);
                self.busy(lane, SliceKind::Encode, name, at, self.size(from));
            }
            Step::Decode { to, .. } => {
                let name = self.buffer_name(to);
                self.busy(lane, SliceKind::Decode, name, at, self.size(to));
            }
            Step::Offload { from, to } => self.transfer(lane, at, from, to.index(), true),
            Step::Fetch { from, to } => self.transfer(lane, at, to, from.index(), false),
            Step::Await(step) => {
                let name = self.awaited(step.index());
                self.wait(lane, name, issued, span.end.0);
            }
            Step::Free(_) | Step::Discard(_) => {}
        }
    }

    /// The lane works on step `at`.
    fn busy(&mut self, lane: usize, kind: SliceKind, name: NameId, at: usize, bytes: Bytes) {
        let span = self.timeline.steps[at];
        self.slice(lane, kind, name, (span.start.0, span.end.0), bytes);
        self.ready[lane] = self.ready[lane].max(span.end.0);
    }

    /// The link carries `buffer` out of the device, or back; where ops do not go on meanwhile, the lane waits.
    fn transfer(&mut self, lane: usize, at: usize, buffer: BufferId, copy: usize, is_out: bool) {
        let span = self.timeline.steps[at];
        let tier = self.program.copies.get(copy).map_or(Tier::Host, |copy| copy.tier);
        let row = &mut self.links[tier.index()][usize::from(!is_out)];
        let row = *row.get_or_insert_with(|| {
            let way = if is_out { "out to" } else { "in from" };
            self.report.lanes.push(Lane { name: format!("{way} {}", tier.name()) });
            self.report.lanes.len() - 1
        });
        let kind = if is_out { SliceKind::Out } else { SliceKind::In };
        let name = self.buffer_name(buffer);
        self.slice(row, kind, name, (span.start.0, span.end.0), self.size(buffer));
        if self.device.link_to(tier).is_some_and(|link| !link.asynchronous) {
            self.wait(lane, name, span.start.0, span.end.0);
        }
    }

    /// The lane waits.
    fn wait(&mut self, lane: usize, name: NameId, from: u64, until: u64) {
        self.slice(lane, SliceKind::Stall, name, (from, until), Bytes::ZERO);
        self.ready[lane] = self.ready[lane].max(until);
    }

    fn slice(&mut self, lane: usize, kind: SliceKind, name: NameId, (from, until): (u64, u64), bytes: Bytes) {
        if from < until {
            let (start, time) = (Nanos(from), Nanos(until - from));
            self.slices.push(Slice { lane, kind, name, start, time, bytes });
        }
    }

    fn size(&self, buffer: BufferId) -> Bytes {
        self.program.buffers.get(buffer.index()).map_or(Bytes::ZERO, |buffer| buffer.size)
    }

    fn op_name(&mut self, op: OpId) -> NameId {
        let name = self.graph.op(op).name;
        if name.is_empty() { self.report.names.id(&op.to_string()) } else { self.report.names.id(name) }
    }

    /// The name that its stay has.
    fn buffer_name(&self, buffer: BufferId) -> NameId {
        self.report.stays.get(buffer.index()).map_or(0, |stay| stay.name)
    }

    /// What a step that is waited for is about.
    fn awaited(&mut self, step: usize) -> NameId {
        match self.program.steps.get(step) {
            Some(Step::Offload { from: buffer, .. } | Step::Fetch { to: buffer, .. }) => {
                self.buffer_name(*buffer)
            }
            Some(Step::Compute(compute)) if compute.op.index() < self.graph.op_count() => {
                self.op_name(compute.op)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::text::parse;

    use super::*;

    #[test]
    fn a_program_without_a_graph_has_sizes_and_no_times() {
        let text = r#"graph "a step"
  v0 = input 8192 "x"
  v1 = activation 8192 "y"
  op0 = forward f(v0) -> v1 "f"
"#;
        let graph = parse(text).unwrap().graph.unwrap();
        let device = crate::input::device("H100").unwrap();
        let program = Program::eager(&graph);
        let (bare, none) = of_program(None, &program, None, &device, Bytes(16));
        assert!(none.is_none() && bare.times.is_empty() && bare.slices.is_empty());
        let (named, timeline) = of_program(Some(&graph), &program, None, &device, Bytes(16));
        assert_eq!(bare.live(), named.live());
        assert_eq!(named.times.last(), timeline.map(|timeline| timeline.time).as_ref());
        assert_eq!(named.names.get(named.stays[1].made_by), "f");
    }
}
