//! The symbolic run.

use std::collections::BTreeMap;

use memfit_ir::{
    BufferId, Bytes, Compute, Content, CopyId, Effect, Graph, Limits, OpId, Place, Plan, Program, Step,
    ValueId,
};

use crate::memory::{Accesses, Held, Memory, Stamp};
use crate::rules::{Rejected, Rule, Violation, describe};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unborn,
    Here,
    Gone,
}

/// A host copy during the run.
#[derive(Clone, Debug)]
struct Copy {
    stage: Stage,
    held: Option<Held>,
    accesses: Accesses,
}

/// A sequence of effects whose first runs must keep the graph's order.
#[derive(Clone, Debug, Default)]
struct Sequence {
    expected: Vec<usize>,
    next: usize,
    last: Accesses,
}

struct Judge<'a> {
    graph: &'a Graph,
    limits: &'a Limits,
    plan: &'a Plan,
    program: &'a Program,
    /// Index of the running step; `None` before the first and after the last.
    step: Option<usize>,
    banks: Vec<Memory>,
    stages: Vec<Stage>,
    copies: Vec<Copy>,
    runs: Vec<u32>,
    sequences: [Sequence; 2],
    /// `clocks[t][u]`: how much of thread u has happened before what thread t does now. Lanes, out, in.
    clocks: Vec<Vec<u32>>,
    /// The clock at the completion of each step that some `Await` names.
    completed: BTreeMap<usize, Vec<u32>>,
    peaks: Vec<Bytes>,
    host: (Bytes, Bytes),
    violations: Vec<Violation>,
}

/// All violations, the peak of each bank, the peak of the host.
pub(crate) fn run(graph: &Graph, limits: &Limits, plan: &Plan) -> (Vec<Violation>, Vec<Bytes>, Bytes) {
    let lanes = usize::from(limits.lanes.max(1));
    let copy = Copy { stage: Stage::Unborn, held: None, accesses: Accesses::default() };
    let mut judge = Judge {
        graph,
        limits,
        plan,
        program: &plan.program,
        step: None,
        banks: vec![Memory::default(); limits.banks.len()],
        stages: vec![Stage::Unborn; plan.program.buffers.len()],
        copies: vec![copy; plan.program.copies.len()],
        runs: vec![0; graph.op_count()],
        sequences: [Sequence::default(), Sequence::default()],
        clocks: vec![vec![0; lanes + 2]; lanes + 2],
        completed: BTreeMap::new(),
        peaks: vec![Bytes::ZERO; limits.banks.len()],
        host: (Bytes::ZERO, Bytes::ZERO),
        violations: Vec::new(),
    };
    if plan.graph != graph.digest() {
        judge.object(Rule::Graph, || format!("the plan was made for another graph: {}", plan.graph));
    }
    judge.structure();
    if judge.violations.is_empty() {
        judge.whole();
    }
    (judge.violations, judge.peaks, judge.host.1)
}

impl Judge<'_> {
    fn object(&mut self, rule: Rule, message: impl FnOnce() -> String) {
        if self.violations.len() < Rejected::MOST {
            let mut message = message();
            if let Some(step) = self.step {
                message = format!("{}: {message}", describe(self.graph, self.plan, step));
            }
            self.violations.push(Violation { rule, step: self.step, message });
        }
    }

    /// R1 for everything, so that the run itself can index freely.
    fn structure(&mut self) {
        let program = self.program;
        let (buffers, copies) = (program.buffers.len(), program.copies.len());
        let is_buffer = |buffer: &BufferId| buffer.index() < buffers;
        let is_copy = |copy: &CopyId| copy.index() < copies;
        let is_content = |content: Content| match content {
            Content::Value(value) | Content::Encoded(value, _) => value.index() < self.graph.value_count(),
            Content::Workspace => true,
        };
        let known =
            program.buffers.iter().all(|b| is_content(b.content) && b.over.as_ref().is_none_or(is_buffer))
                && program.copies.iter().all(|c| is_content(c.content))
                && program.resident.iter().all(is_buffer)
                && program.parked.iter().all(is_copy);
        let places = &self.plan.layout.places;
        let placed =
            places.len() == buffers && places.iter().all(|p| usize::from(p.bank) < self.limits.banks.len());
        let laned = program.lanes.is_empty() || program.lanes.len() == program.steps.len();
        if !known {
            self.object(Rule::Structure, || {
                "a buffer, copy or value is named that does not exist".to_owned()
            });
        }
        if !placed {
            self.object(Rule::Structure, || {
                "the layout does not give each buffer a place in a bank".to_owned()
            });
        }
        if !laned {
            self.object(Rule::Structure, || "there is not one lane for each step".to_owned());
        }
        for (at, step) in program.steps.iter().enumerate() {
            self.step = Some(at);
            let fine = match step {
                Step::Compute(compute) => {
                    compute.op.index() < self.graph.op_count() && {
                        let op = self.graph.op(compute.op);
                        let (reads, writes) = (program.reads(compute), program.writes(compute));
                        reads.len() == op.reads.len()
                            && writes.len() == op.writes.len()
                            && reads.iter().chain(writes).chain(&compute.workspace).all(is_buffer)
                            && usize::from(compute.algorithm) <= op.algorithms.len()
                    }
                }
                Step::Free(buffer) => is_buffer(buffer),
                Step::Offload { from, to } => is_buffer(from) && is_copy(to),
                Step::Fetch { from, to } => is_copy(from) && is_buffer(to),
                Step::Discard(copy) => is_copy(copy),
                Step::Await(_) => true,
                Step::Encode { from, to } | Step::Decode { from, to } => is_buffer(from) && is_buffer(to),
            };
            if !fine {
                self.object(Rule::Structure, || "operands do not match the op, or name nothing".to_owned());
            }
        }
        self.step = None;
    }

    fn whole(&mut self) {
        for id in self.graph.op_ids() {
            if let Some(kind) = sequence_of(self.graph.op(id).effect) {
                self.sequences[kind].expected.push(id.index());
            }
        }
        for step in &self.program.steps {
            if let Step::Await(awaited) = step {
                self.completed.insert(awaited.index(), Vec::new());
            }
        }
        self.start();
        for (at, step) in self.program.steps.iter().enumerate() {
            self.step = Some(at);
            let lane = usize::from(self.program.lane(at));
            if lane >= self.clocks.len() - 2 {
                self.object(Rule::Lane, || format!("lane {lane} does not exist"));
                continue;
            }
            let thread = self.run(step, lane);
            if let Some(clock) = self.completed.get_mut(&at) {
                clock.clone_from(&self.clocks[thread]);
            }
        }
        self.step = None;
        self.end();
    }

    /// What is in memory before the first step.
    fn start(&mut self) {
        let mut present = vec![false; self.graph.value_count()];
        let program = self.program;
        let sources = program
            .resident
            .iter()
            .map(|b| program.buffers[b.index()].content)
            .chain(program.parked.iter().map(|c| program.copies[c.index()].content));
        for content in sources {
            match content {
                Content::Value(value) if self.graph.value(value).producer.is_none() => {
                    if std::mem::replace(&mut present[value.index()], true) {
                        self.object(Rule::Stay, || format!("{value} is there twice at the start"));
                    }
                }
                other => {
                    self.object(Rule::Value, || {
                        format!("{other:?} can't be there at the start: it is no source")
                    });
                }
            }
        }
        let start = Stamp::default();
        for &buffer in &program.resident {
            let content = program.buffers[buffer.index()].content;
            self.define(buffer, content, false, start);
        }
        for &copy in &program.parked {
            self.define_copy(copy, program.copies[copy.index()].content, false, start);
        }
    }

    /// Runs a step and returns the thread it completes on.
    fn run(&mut self, step: &Step, lane: usize) -> usize {
        let (out, back) = (self.clocks.len() - 2, self.clocks.len() - 1);
        match *step {
            Step::Compute(ref compute) => {
                let now = self.tick(lane);
                self.compute(compute, now);
            }
            Step::Free(buffer) => {
                let now = self.tick(lane);
                self.end_stay(buffer, now);
            }
            Step::Offload { from, to } => {
                let now = self.issue(lane, out);
                if let Some(held) = self.read(from, now) {
                    let size = self.program.buffers[from.index()].size;
                    if self.program.copies[to.index()].size != size {
                        self.object(Rule::Size, || format!("{to} is not {size}, the size of {from}"));
                    }
                    self.define_copy(to, held.content, held.lossy, now);
                }
                return out;
            }
            Step::Fetch { from, to } => {
                let now = self.issue(lane, back);
                if let Some(held) = self.read_copy(from, now) {
                    let size = self.program.copies[from.index()].size;
                    if self.program.buffers[to.index()].size != size {
                        self.object(Rule::Size, || format!("{to} is not {size}, the size of {from}"));
                    }
                    self.define(to, held.content, held.lossy, now);
                }
                return back;
            }
            Step::Discard(copy) => {
                let now = self.tick(lane);
                if self.read_copy(copy, now).is_some() {
                    let accesses = self.copies[copy.index()].accesses.clone();
                    self.ordered(&accesses, true, now, || format!("{copy}"));
                    self.copies[copy.index()].stage = Stage::Gone;
                    self.host.0 = self.host.0.saturating_sub(self.program.copies[copy.index()].size);
                }
            }
            Step::Await(step) => {
                self.tick(lane);
                if self.step.is_none_or(|now| step.index() >= now) {
                    self.object(Rule::Lane, || format!("{step} is not an earlier step"));
                } else if let Some(clock) = self.completed.get(&step.index()) {
                    join(&mut self.clocks[lane], clock);
                }
            }
            Step::Encode { from, to } => {
                let now = self.tick(lane);
                if let Some(held) = self.read(from, now) {
                    match (held.content, self.program.buffers[to.index()].content) {
                        (Content::Value(value), claim @ Content::Encoded(same, codec)) if value == same => {
                            if codec.is_lossy() && !self.limits.lossy.contains(&codec) {
                                self.object(Rule::Lossy, || {
                                    format!("`{}` is lossy and not allowed", codec.name())
                                });
                            }
                            self.define(to, claim, held.lossy || codec.is_lossy(), now);
                        }
                        _ => self
                            .object(Rule::Value, || format!("{to} is no encoded form of what {from} holds")),
                    }
                }
            }
            Step::Decode { from, to } => {
                let now = self.tick(lane);
                match self.read(from, now) {
                    Some(Held { content: Content::Encoded(value, _), lossy, .. }) => {
                        self.define(to, Content::Value(value), lossy, now);
                    }
                    Some(_) => self.object(Rule::Value, || format!("{from} holds nothing encoded")),
                    None => {}
                }
            }
        }
        lane
    }

    fn compute(&mut self, compute: &Compute, now: Stamp) {
        let (program, op) = (self.program, self.graph.op(compute.op));
        self.effect(compute, now);
        let mut lossy = false;
        for (&buffer, &wanted) in program.reads(compute).iter().zip(op.reads) {
            if let Some(held) = self.read(buffer, now) {
                lossy |= held.lossy;
                if held.content != Content::Value(wanted) {
                    let name = self.graph.value(wanted).name;
                    self.object(Rule::Value, || {
                        format!("{buffer} holds {:?}, but {wanted} `{name}` is needed", held.content)
                    });
                }
            }
        }
        let needed = match compute.algorithm {
            0 => op.workspace,
            k => op.algorithms[usize::from(k) - 1].workspace,
        };
        match compute.workspace {
            Some(workspace) => {
                let buffer = program.buffers[workspace.index()];
                if buffer.size < needed {
                    self.object(Rule::Size, || format!("workspace {workspace} is less than {needed}"));
                }
                self.define(workspace, Content::Workspace, false, now);
            }
            None if needed > Bytes::ZERO => {
                self.object(Rule::Size, || format!("workspace of {needed} is missing"));
            }
            None => {}
        }
        for (&buffer, &value) in program.writes(compute).iter().zip(op.writes) {
            let reads = program.reads(compute);
            let must = op.reuses.iter().find(|pair| pair.must && pair.output == value);
            match program.buffers[buffer.index()].over {
                Some(before) => {
                    let from = reads.iter().zip(op.reads).find(|(read, _)| **read == before).map(|(_, v)| *v);
                    let paired = |input| op.reuses.iter().any(|p| p.output == value && p.input == input);
                    if !from.is_some_and(paired) || must.is_some_and(|pair| Some(pair.input) != from) {
                        self.object(Rule::InPlace, || {
                            format!("{buffer} may not take over {before} in this step")
                        });
                    }
                    self.take_over(
                        before,
                        buffer,
                        Held { content: Content::Value(value), lossy, owner: buffer },
                        now,
                    );
                }
                None => {
                    if must.is_some() {
                        self.object(Rule::InPlace, || {
                            format!("{buffer} must take over the bytes of its input")
                        });
                    }
                    self.define(buffer, Content::Value(value), lossy, now);
                }
            }
        }
        if let Some(workspace) = compute.workspace {
            self.end_stay(workspace, now);
        }
    }

    /// R8.
    fn effect(&mut self, compute: &Compute, now: Stamp) {
        let (id, effect) = (compute.op, self.graph.op(compute.op).effect);
        self.runs[id.index()] += 1;
        let Some(kind) = sequence_of(effect) else { return };
        if self.runs[id.index()] > 1 {
            if effect != Effect::Seeded || !self.limits.replays_random {
                self.object(Rule::Effect, || format!("a `{}` op runs again", effect.name()));
            }
            return;
        }
        let sequence = &mut self.sequences[kind];
        let accesses = sequence.last.clone();
        sequence.last.write(now);
        let due = sequence.expected.get(sequence.next).copied();
        sequence.next += 1;
        if due != Some(id.index()) {
            self.object(Rule::Effect, || format!("runs out of the order of `{}` ops", effect.name()));
        }
        self.ordered(&accesses, true, now, || format!("the order of `{}` ops", effect.name()));
    }

    /// Starts `buffer`'s stay: R2, R3, R4, R6, and the order of accesses.
    fn define(&mut self, buffer: BufferId, content: Content, lossy: bool, now: Stamp) {
        let claim = self.program.buffers[buffer.index()];
        if claim.over.is_some() {
            self.object(Rule::InPlace, || format!("{buffer} takes over nothing in this step"));
        }
        if !self.begin(buffer, content) {
            return;
        }
        let Place { bank, offset } = self.plan.layout.places[buffer.index()];
        let Some(end) = offset.checked_add(claim.size) else { return };
        let held = Held { content, lossy, owner: buffer };
        let (lost, before) = self.banks[usize::from(bank)].fill(offset.0, end.0, held, now);
        for old in lost {
            self.object(Rule::Overwrite, || {
                let owner = old.owner;
                format!("{buffer} at {} overwrites {owner} {:?}, which has not ended", offset.0, old.content)
            });
        }
        for accesses in before {
            self.ordered(&accesses, true, now, || format!("{buffer}"));
        }
    }

    /// R7: `buffer` goes on in the bytes of `before`.
    fn take_over(&mut self, before: BufferId, buffer: BufferId, held: Held, now: Stamp) {
        let places = &self.plan.layout.places;
        let same = places[before.index()] == places[buffer.index()]
            && self.program.buffers[before.index()].size == self.program.buffers[buffer.index()].size;
        if !same {
            self.object(Rule::InPlace, || format!("{buffer} does not lie where {before} lies"));
        }
        self.end_stay(before, now);
        if !self.begin(buffer, held.content) {
            return;
        }
        let Place { bank, offset } = self.plan.layout.places[buffer.index()];
        let Some(end) = offset.checked_add(self.program.buffers[buffer.index()].size) else { return };
        let (lost, _) = self.banks[usize::from(bank)].fill(offset.0, end.0, held, now);
        for old in lost {
            self.object(Rule::Overwrite, || {
                format!("{buffer} overwrites {}, which has not ended", old.owner)
            });
        }
    }

    /// R2, R3, R4 of a buffer that starts its stay; false if it can't.
    fn begin(&mut self, buffer: BufferId, content: Content) -> bool {
        let claim = self.program.buffers[buffer.index()];
        if std::mem::replace(&mut self.stages[buffer.index()], Stage::Here) != Stage::Unborn {
            self.object(Rule::Stay, || format!("{buffer} is filled a second time"));
        }
        if claim.content != content {
            self.object(Rule::Size, || format!("{buffer} claims {:?}, but gets {content:?}", claim.content));
        }
        let fits = match content {
            Content::Value(value) => claim.size == self.graph.value(value).size,
            Content::Encoded(value, codec) => claim.size >= codec.bound(self.graph.value(value).size),
            Content::Workspace => true,
        };
        if !fits {
            self.object(Rule::Size, || {
                format!("{buffer} has {} B, not the size of {content:?}", claim.size.0)
            });
        }
        let Place { bank, offset } = self.plan.layout.places[buffer.index()];
        let limits = &self.limits.banks[usize::from(bank)];
        if offset.0 % limits.align.0.max(1) != 0 {
            self.object(Rule::Place, || {
                format!("{buffer} at {} is not aligned to {}", offset.0, limits.align.0)
            });
        }
        if let Content::Value(value) = content
            && let Some(pin) = self.graph.value(value).pin
            && (pin.bank != bank || pin.offset.is_some_and(|pinned| pinned != offset))
        {
            self.object(Rule::Place, || format!("{buffer} is not where {value} is pinned"));
        }
        match offset.checked_add(claim.size).filter(|end| *end <= limits.capacity) {
            Some(end) => {
                self.peaks[usize::from(bank)] = self.peaks[usize::from(bank)].max(end);
                true
            }
            None => {
                self.object(Rule::Place, || {
                    format!("{buffer} ends beyond the {} B of bank `{}`", limits.capacity.0, limits.name)
                });
                offset.checked_add(claim.size).is_some()
            }
        }
    }

    /// Ends `buffer`'s stay: its bytes are free after `now`.
    fn end_stay(&mut self, buffer: BufferId, now: Stamp) {
        if self.stages[buffer.index()] != Stage::Here {
            self.object(Rule::Stay, || format!("{buffer} is not in memory"));
            return;
        }
        self.stages[buffer.index()] = Stage::Gone;
        let Some(cell) = self.cell(buffer) else { return };
        if cell.held.is_some_and(|held| held.owner == buffer) {
            cell.held = None;
            let accesses = std::mem::take(&mut cell.accesses);
            cell.accesses.write(now);
            self.ordered(&accesses, true, now, || format!("{buffer}"));
        }
    }

    /// What `buffer` holds, if it is whole; marks the read.
    fn read(&mut self, buffer: BufferId, now: Stamp) -> Option<Held> {
        if self.stages[buffer.index()] != Stage::Here {
            self.object(Rule::Stay, || format!("{buffer} is not in memory"));
            return None;
        }
        let found = self.cell(buffer).and_then(|cell| {
            let held = cell.held.filter(|held| held.owner == buffer)?;
            let accesses = cell.accesses.clone();
            cell.accesses.read(now);
            Some((held, accesses))
        });
        let Some((held, accesses)) = found else {
            self.object(Rule::Value, || format!("{buffer} has been overwritten"));
            return None;
        };
        self.ordered(&accesses, false, now, || format!("{buffer}"));
        Some(held)
    }

    fn cell(&mut self, buffer: BufferId) -> Option<&mut crate::memory::Cell> {
        let Place { bank, offset } = self.plan.layout.places[buffer.index()];
        let end = offset.checked_add(self.program.buffers[buffer.index()].size)?;
        self.banks[usize::from(bank)].cell(buffer, offset.0, end.0)
    }

    fn define_copy(&mut self, copy: CopyId, content: Content, lossy: bool, now: Stamp) {
        let claim = self.program.copies[copy.index()];
        let state = &mut self.copies[copy.index()];
        let stage = std::mem::replace(&mut state.stage, Stage::Here);
        state.held = Some(Held { content, lossy, owner: BufferId::at(usize::MAX) });
        state.accesses.write(now);
        if stage != Stage::Unborn {
            self.object(Rule::Stay, || format!("{copy} is filled a second time"));
        }
        let size = match content {
            Content::Value(value) => Some(self.graph.value(value).size),
            _ => None, // As large as the buffer it comes from, which was checked.
        };
        if claim.content != content || size.is_some_and(|size| size != claim.size) {
            self.object(Rule::Size, || format!("{copy} claims {:?}, {} B", claim.content, claim.size.0));
        }
        self.host.0 += claim.size;
        self.host.1 = self.host.1.max(self.host.0);
        if self.host.0 > self.limits.host {
            let (have, need) = (self.limits.host, self.host.0);
            self.object(Rule::Host, || format!("host copies take {} B of {} B", need.0, have.0));
        }
    }

    fn read_copy(&mut self, copy: CopyId, now: Stamp) -> Option<Held> {
        let state = &mut self.copies[copy.index()];
        if state.stage != Stage::Here {
            self.object(Rule::Stay, || format!("{copy} is not on the host"));
            return None;
        }
        let (held, accesses) = (state.held, state.accesses.clone());
        state.accesses.read(now);
        self.ordered(&accesses, false, now, || format!("{copy}"));
        held
    }

    /// R11 and R12: everything in `accesses` that conflicts has happened before `now`.
    fn ordered(&mut self, accesses: &Accesses, writes: bool, now: Stamp, what: impl Fn() -> String) {
        let lanes = self.clocks.len() - 2;
        let reads: &[Stamp] = if writes { &accesses.reads } else { &[] };
        for stamp in reads.iter().chain([&accesses.write]) {
            // A step's own earlier accesses are its own affair: R6 and R7 judge them.
            if *stamp != now && self.clocks[now.thread][stamp.thread] < stamp.tick {
                let rule = if stamp.thread >= lanes { Rule::Transfer } else { Rule::Lane };
                self.object(rule, || {
                    format!("touches {}, on which another step may still be at work", what())
                });
                return;
            }
        }
    }

    fn tick(&mut self, thread: usize) -> Stamp {
        self.clocks[thread][thread] += 1;
        Stamp { thread, tick: self.clocks[thread][thread] }
    }

    /// A transfer starts on `queue` after all that `lane` has seen, and after the queue's earlier ones.
    fn issue(&mut self, lane: usize, queue: usize) -> Stamp {
        let seen = self.clocks[lane].clone();
        join(&mut self.clocks[queue], &seen);
        self.tick(queue)
    }

    /// R8's missing runs, and R13.
    fn end(&mut self) {
        for kind in 0..self.sequences.len() {
            let mut expected = self.sequences[kind].expected.iter();
            if let Some(&op) = expected.find(|&&op| self.runs[op] == 0) {
                let name = self.graph.op(OpId::at(op)).name;
                self.object(Rule::Effect, || format!("op{op} `{name}` never runs"));
            }
        }
        // Where each storage is, by the value it now holds.
        let mut homes: BTreeMap<ValueId, Vec<Place>> = BTreeMap::new();
        for (bank, memory) in (0u16..).zip(&self.banks) {
            for (start, held) in memory.held() {
                if let Content::Value(value) = held.content
                    && self.stages[held.owner.index()] == Stage::Here
                {
                    let zero = self.graph.value(value).size == Bytes::ZERO;
                    let place = Place { bank, offset: Bytes(start) };
                    homes.entry(value).or_default().push(if zero { Place::default() } else { place });
                }
            }
        }
        let on_host = |judge: &Self, value: ValueId| {
            let holds = |copy: &Copy| copy.held.is_some_and(|held| held.content == Content::Value(value));
            judge.copies.iter().any(|copy| copy.stage == Stage::Here && holds(copy))
        };
        let last = last_versions(self.graph);
        let mut returned = vec![false; self.graph.value_count()];
        for (&source, &value) in &last {
            returned[value.index()] = true;
            let started = |content: Content| content == Content::Value(source);
            let (buffers, copies) = (&self.program.buffers, &self.program.copies);
            let home = self.program.resident.iter().find(|b| started(buffers[b.index()].content));
            let parked = self.program.parked.iter().any(|c| started(copies[c.index()].content));
            let back = match home {
                Some(buffer) if self.graph.value(source).size > Bytes::ZERO => {
                    homes.get(&value).is_some_and(|at| at.contains(&self.plan.layout.places[buffer.index()]))
                }
                Some(_) => homes.contains_key(&value),
                None => parked && on_host(self, value),
            };
            if !back {
                let name = self.graph.value(value).name;
                self.object(Rule::Result, || format!("{value} `{name}` is not where its storage began"));
            }
        }
        for &value in self.graph.results() {
            if !returned[value.index()] && !homes.contains_key(&value) {
                let name = self.graph.value(value).name;
                self.object(Rule::Result, || format!("{value} `{name}` is not in memory at the end"));
            }
        }
    }
}

/// The index of the sequence that ops with this effect belong to.
fn sequence_of(effect: Effect) -> Option<usize> {
    match effect {
        Effect::Pure => None,
        Effect::Seeded => Some(0),
        Effect::Once | Effect::Collective => Some(1),
    }
}

fn join(into: &mut [u32], other: &[u32]) {
    for (mine, theirs) in into.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// For each persistent source the value its storage holds after all mutation.
fn last_versions(graph: &Graph) -> BTreeMap<ValueId, ValueId> {
    let mut source_of: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in graph.value_ids() {
        let value = graph.value(id);
        if value.producer.is_none() && value.role.is_persistent() {
            source_of.insert(id, id);
        }
    }
    for op in graph.op_ids() {
        for pair in graph.op(op).reuses.iter().filter(|pair| pair.must) {
            if let Some(source) = source_of.remove(&pair.input) {
                source_of.insert(pair.output, source);
            }
        }
    }
    source_of.into_iter().map(|(value, source)| (source, value)).collect()
}
