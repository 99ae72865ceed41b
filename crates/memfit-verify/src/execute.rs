//! The symbolic run.

mod structure;

use std::collections::BTreeMap;

use memfit_ir::{
    Bytes, Codec, Compute, Content, CopyId, Effect, Graph, Limits, Need, OpId, Place, Plan, Program, Step,
    Tier, Value, ValueId,
};

use crate::memory::{Accesses, Cell, Held, Memory, Stamp, Stay};
use crate::rules::{Rejected, Rule, Violation};

/// Queues of transfers, which are the first threads: to each tier, and from it. Lanes come after them.
const QUEUES: usize = 2 * Tier::ALL.len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unborn,
    Here,
    Gone,
}

/// Effects whose first runs must keep the graph's order.
#[derive(Clone, Debug, Default)]
struct Sequence {
    /// What is still to run, the next one last.
    expected: Vec<OpId>,
    last: Accesses,
}

struct Judge<'a> {
    graph: &'a Graph,
    limits: &'a Limits,
    program: &'a Program,
    places: &'a [Place],
    /// Index of the running step; `None` before the first and after the last.
    step: Option<usize>,
    /// What each stay claims to hold, its size, and the tier if it is a copy.
    claims: Vec<(Content, Bytes, Tier)>,
    /// The device's banks, then all other tiers, in which copies have no addresses.
    banks: Vec<Memory>,
    stages: Vec<Stage>,
    /// When each op ran first.
    firsts: Vec<Option<Stamp>>,
    sequences: [Sequence; 2],
    /// `clocks[t][u]`: how much of thread u has happened before what thread t does now.
    clocks: Vec<Vec<u32>>,
    /// The clock at the completion of each step that some `Await` names.
    completed: BTreeMap<usize, Vec<u32>>,
    /// Of each bank, then of each tier.
    peaks: Vec<Bytes>,
    /// Bytes of copies in each tier now.
    copied: [Bytes; Tier::ALL.len()],
    violations: Vec<Violation>,
}

/// The peak of each bank, then of each tier.
pub(crate) fn run(graph: &Graph, limits: &Limits, plan: &Plan) -> Result<Vec<Bytes>, Rejected> {
    // Clocks for the lanes that are used, not for all that may be; those of 1,024 lanes take 8 MiB.
    let used = plan.program.lanes.iter().max().map_or(1, |&lane| usize::from(lane) + 1);
    let threads = QUEUES + used.min(usize::from(limits.lanes)).clamp(1, 1024);
    let copies = plan.program.copies.iter().map(|c| (c.content, c.size, c.tier));
    let buffers = plan.program.buffers.iter().map(|b| (b.content, b.size, Tier::default()));
    let mut judge = Judge {
        graph,
        limits,
        program: &plan.program,
        places: &plan.layout.places,
        step: None,
        banks: vec![Memory::default(); limits.banks.len() + 1],
        stages: vec![Stage::Unborn; plan.program.buffers.len() + plan.program.copies.len()],
        claims: buffers.chain(copies).collect(),
        firsts: vec![None; graph.op_count()],
        sequences: Default::default(),
        clocks: vec![vec![0; threads]; threads],
        completed: BTreeMap::new(),
        peaks: vec![Bytes::ZERO; limits.banks.len() + Tier::ALL.len()],
        copied: [Bytes::ZERO; Tier::ALL.len()],
        violations: Vec::new(),
    };
    if plan.graph != graph.digest() {
        judge.object(Rule::Graph, || format!("the plan was made for another graph: {}", plan.graph));
    }
    judge.structure();
    if judge.violations.is_empty() {
        judge.whole();
    }
    if judge.violations.is_empty() { Ok(judge.peaks) } else { Err(Rejected { violations: judge.violations }) }
}

impl Judge<'_> {
    fn object(&mut self, rule: Rule, message: impl FnOnce() -> String) {
        let op = match self.step.and_then(|step| self.program.steps.get(step)) {
            Some(Step::Compute(compute)) if compute.op.index() < self.graph.op_count() => {
                format!("{} `{}`: ", compute.op, self.graph.op(compute.op).name)
            }
            _ => String::new(),
        };
        if self.violations.len() < Rejected::MOST {
            let message = format!("{op}{}", message());
            self.violations.push(Violation { rule, step: self.step, message });
        }
    }

    fn whole(&mut self) {
        for id in self.graph.op_ids().rev() {
            if let Some(kind) = sequence_of(self.graph.op(id).effect) {
                self.sequences[kind].expected.push(id);
            }
        }
        let awaited = self.program.steps.iter().filter_map(|step| match step {
            Step::Await(awaited) => Some((awaited.index(), Vec::new())),
            _ => None,
        });
        self.completed = awaited.collect();
        self.start();
        for (at, step) in self.program.steps.iter().enumerate() {
            self.step = Some(at);
            let lane = QUEUES + usize::from(self.program.lane(at));
            if lane >= self.clocks.len() {
                self.object(Rule::Lane, || format!("lane {} does not exist", lane - QUEUES));
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

    /// The number of a host copy's stay.
    fn copy(&self, copy: CopyId) -> Stay {
        self.program.buffers.len() + copy.index()
    }

    /// The bank and byte range of `stay`; a copy has an empty one in the last bank, at the number of its tier.
    fn range(&self, stay: Stay) -> (usize, u64, u64) {
        match self.program.buffers.get(stay) {
            Some(buffer) => {
                let Place { bank, offset } = self.places[stay];
                (usize::from(bank), offset.0, (offset + buffer.size).0)
            }
            None => (self.banks.len() - 1, self.claims[stay].2 as u64, self.claims[stay].2 as u64),
        }
    }

    fn name(&self, stay: Stay) -> String {
        let buffers = self.program.buffers.len();
        if stay < buffers { format!("b{stay}") } else { format!("c{}", stay - buffers) }
    }

    /// What is in memory before the first step.
    fn start(&mut self) {
        let mut present = vec![false; self.graph.value_count()];
        let parked = self.program.parked.iter().map(|&copy| self.copy(copy));
        let stays: Vec<Stay> = self.program.resident.iter().map(|b| b.index()).chain(parked).collect();
        for stay in stays {
            let (content, here) = (self.claims[stay].0, stay < self.program.buffers.len());
            let source = content.value().filter(|&id| {
                let Value { producer, role, .. } = self.graph.value(id);
                let plain = content == Content::Value(id);
                producer.is_none() && (here && plain || (here || plain) && role.is_persistent())
            });
            if source.is_none_or(|value| std::mem::replace(&mut present[value.index()], true)) {
                self.object(Rule::Stay, || format!("{content:?} is no source, or is there twice"));
            }
            self.define(stay, content, content.codec().map_or(Need::Value, Codec::keeps), Stamp::default());
        }
    }

    /// Runs a step and returns the thread it completes on.
    fn run(&mut self, step: &Step, lane: usize) -> usize {
        let thread = match step {
            Step::Offload { to, .. } => 2 * self.claims[self.copy(*to)].2.index(),
            Step::Fetch { from, .. } => 2 * self.claims[self.copy(*from)].2.index() + 1,
            _ => lane,
        };
        // A transfer starts after all that its lane has seen, and after its queue's earlier ones.
        let seen = self.clocks[lane].clone();
        join(&mut self.clocks[thread], &seen);
        self.clocks[thread][thread] += 1;
        let now = Stamp { thread, tick: self.clocks[thread][thread] };
        match *step {
            Step::Compute(ref compute) => self.compute(compute, now),
            Step::Free(buffer) => self.end_stay(buffer.index(), now),
            Step::Discard(copy) => self.end_stay(self.copy(copy), now),
            Step::Offload { from, to } => self.transfer(from.index(), self.copy(to), now),
            Step::Fetch { from, to } => self.transfer(self.copy(from), to.index(), now),
            Step::Await(awaited) => {
                if self.step.is_none_or(|now| awaited.index() >= now) {
                    self.object(Rule::Lane, || format!("{awaited} is not an earlier step"));
                } else if let Some(clock) = self.completed.get(&awaited.index()) {
                    join(&mut self.clocks[lane], clock);
                }
            }
            Step::Encode { from, to } | Step::Decode { from, to } => self.code(from.index(), to.index(), now),
        }
        thread
    }

    fn transfer(&mut self, from: Stay, to: Stay, now: Stamp) {
        let Some(held) = self.read(from, now) else { return };
        let (size, other) = (self.claims[from].1, self.claims[to].1);
        if size != other {
            self.object(Rule::Size, || format!("{} B are copied to {} B", size.0, other.0));
        }
        self.define(to, held.content, held.keeps, now);
    }

    /// Encodes or decodes: both sides hold the same value, one of them plain.
    fn code(&mut self, from: Stay, to: Stay, now: Stamp) {
        let Some(held) = self.read(from, now) else { return };
        let encode = matches!(self.step.map(|at| self.program.steps[at]), Some(Step::Encode { .. }));
        match (held.content, self.claims[to].0) {
            (Content::Value(value), claim @ Content::Encoded(same, codec)) if encode && value == same => {
                // Its old bytes are given back, as by `Free`, but for what is being read: R13 asks whether it is at home.
                let over = self.program.buffers.get(to).and_then(|buffer| buffer.over);
                over.filter(|b| b.index() != from).into_iter().for_each(|b| self.end_stay(b.index(), now));
                self.define(to, claim, held.keeps.min(codec.keeps()), now);
            }
            (Content::Encoded(of, _), _) if !encode => self.define(to, Content::Value(of), held.keeps, now),
            (held, claim) => self.object(Rule::Value, || format!("{held:?} can't become {claim:?} here")),
        }
    }

    fn compute(&mut self, compute: &Compute, now: Stamp) {
        let (program, op) = (self.program, self.graph.op(compute.op));
        self.effect(compute.op, now);
        for (at, (&buffer, &wanted)) in program.reads(compute).iter().zip(op.reads).enumerate() {
            let Some(Held { content, keeps, .. }) = self.read(buffer.index(), now) else { continue };
            let (name, need) = (self.graph.value(wanted).name, op.need(at));
            let rule = if content == Content::Value(wanted) { Rule::Codec } else { Rule::Value };
            if rule == Rule::Value || keeps < need {
                self.object(rule, || format!("{buffer} is {content:?} ({keeps:?}), not `{name}` ({need:?})"));
            }
        }
        let other = usize::from(compute.algorithm).checked_sub(1).map(|other| op.algorithms[other].workspace);
        let needed = other.unwrap_or(op.workspace);
        let scratch = compute.workspace.map(|buffer| buffer.index());
        if scratch.map_or(Bytes::ZERO, |buffer| self.claims[buffer].1) < needed {
            self.object(Rule::Size, || format!("workspace of {} B is missing or too small", needed.0));
        }
        if let Some(buffer) = scratch {
            self.define(buffer, Content::Workspace, Need::Value, now);
        }
        for (&buffer, &value) in program.writes(compute).iter().zip(op.writes) {
            let Value { over: must, may_over: may, .. } = self.graph.value(value);
            if let Some(before) = program.buffers[buffer.index()].over {
                let operand = program.reads(compute).iter().position(|read| *read == before);
                let may = |input| must.map_or(may.contains(&input), |demanded| demanded == input);
                let paired = operand.is_some_and(|operand| may(op.reads[operand]));
                if !paired || self.range(before.index()) != self.range(buffer.index()) {
                    self.object(Rule::InPlace, || format!("{buffer} may not take over {before} here"));
                }
                self.end_stay(before.index(), now);
            } else if must.is_some() {
                self.object(Rule::InPlace, || format!("{buffer} must take over the bytes of its input"));
            }
            self.define(buffer.index(), Content::Value(value), Need::Value, now);
        }
        if let Some(buffer) = scratch {
            self.end_stay(buffer, now);
        }
    }

    /// R8.
    fn effect(&mut self, id: OpId, now: Stamp) {
        let effect = self.graph.op(id).effect;
        let Some(kind) = sequence_of(effect) else { return };
        if let Some(first) = self.firsts[id.index()] {
            if effect != Effect::Seeded || !self.limits.replays_random {
                self.object(Rule::Effect, || format!("a `{}` op runs again", effect.name()));
            }
            // It draws from where the first run began, which is known once that has run.
            let first = Accesses { write: first, reads: Vec::new() };
            self.ordered(&first, false, now, || "the numbers of its first run".to_owned());
            return;
        }
        self.firsts[id.index()] = Some(now);
        let sequence = &mut self.sequences[kind];
        let before = std::mem::replace(&mut sequence.last, Accesses { write: now, reads: Vec::new() });
        if sequence.expected.pop() != Some(id) {
            self.object(Rule::Effect, || format!("runs out of the order of `{}` ops", effect.name()));
        }
        self.ordered(&before, true, now, || "the order of effects".to_owned());
    }

    /// Starts a stay: R2, R3, R4, R6, R9, R10, and what R14 says of types.
    fn define(&mut self, stay: Stay, content: Content, keeps: Need, now: Stamp) {
        let name = self.name(stay);
        let (claim, size, tier) = self.claims[stay];
        if std::mem::replace(&mut self.stages[stay], Stage::Here) != Stage::Unborn {
            self.object(Rule::Stay, || format!("{name} is filled a second time"));
        }
        let fits = match content {
            Content::Value(value) => size == self.graph.value(value).size,
            Content::Encoded(value, codec) => size >= codec.room(&self.graph.value(value)),
            Content::Workspace => true,
        };
        if claim != content || !fits {
            self.object(Rule::Size, || format!("{name}, {claim:?} of {} B, gets {content:?}", size.0));
        }
        if let Content::Encoded(value, codec) = content {
            if codec.is_lossy() && !self.limits.lossy.contains(&codec) {
                self.object(Rule::Lossy, || format!("`{}` is lossy and not allowed", codec.name()));
            }
            if !codec.suits(self.graph.value(value).dtype) {
                self.object(Rule::Codec, || format!("`{}` encodes `f32` only", codec.name()));
            }
        }
        match self.program.buffers.get(stay) {
            Some(buffer) => {
                let step = self.step.map(|at| self.program.steps[at]);
                let takes = matches!(step, Some(Step::Compute(_) | Step::Encode { .. }));
                if buffer.over.is_some() && (!takes || content == Content::Workspace) {
                    self.object(Rule::InPlace, || format!("{name} can take over nothing here"));
                }
                self.check_place(stay, content);
            }
            None => {
                let (live, banks) = (&mut self.copied[tier.index()], self.limits.banks.len());
                *live += size;
                let (have, need, name) = (self.limits.tier(tier).0, live.0, tier.name());
                self.peaks[banks + tier.index()] = self.peaks[banks + tier.index()].max(*live);
                if need > have {
                    self.object(Rule::Host, || format!("{name} copies take {need} B of {have} B"));
                }
            }
        }
        let (bank, start, end) = self.range(stay);
        let held = Held { content, keeps, owner: stay };
        for cell in self.banks[bank].fill(start, end, held, now) {
            if let Some(old) = cell.held {
                let owner = self.name(old.owner);
                self.object(Rule::Overwrite, || format!("{name} overwrites {owner}, which has not ended"));
            }
            self.ordered(&cell.accesses, true, now, || name.clone());
        }
    }

    /// R4.
    fn check_place(&mut self, stay: Stay, content: Content) {
        let Place { bank, offset } = self.places[stay];
        let limits = &self.limits.banks[usize::from(bank)];
        let (name, at) = (self.name(stay), offset.0);
        if at % limits.align.0.max(1) != 0 {
            self.object(Rule::Place, || format!("{name} at {at} is not aligned to {}", limits.align.0));
        }
        if let Content::Value(value) = content
            && let Some(pin) = self.graph.value(value).pin
            && (pin.bank != bank || pin.offset.is_some_and(|pinned| pinned != offset))
        {
            self.object(Rule::Place, || format!("{name} is not where {value} is pinned"));
        }
        let end = offset.checked_add(self.claims[stay].1);
        if end.is_none_or(|end| end > limits.capacity) {
            self.object(Rule::Place, || format!("{name} ends beyond bank `{}`", limits.name));
        }
        self.peaks[usize::from(bank)] = self.peaks[usize::from(bank)].max(end.unwrap_or(Bytes::MAX));
    }

    /// Ends a stay. Nobody touches bytes by that: who touched them before still counts for who comes next. A
    /// host copy is given back, so all must be done with it.
    fn end_stay(&mut self, stay: Stay, now: Stamp) {
        let (name, is_copy) = (self.name(stay), stay >= self.program.buffers.len());
        if std::mem::replace(&mut self.stages[stay], Stage::Gone) != Stage::Here {
            self.object(Rule::Stay, || format!("{name} is not in memory"));
            return;
        }
        let Some(cell) = self.own_cell(stay) else { return };
        cell.held = None;
        if is_copy {
            let before = cell.accesses.clone();
            let (_, size, tier) = self.claims[stay];
            self.copied[tier.index()] = self.copied[tier.index()].saturating_sub(size);
            self.ordered(&before, true, now, || name);
        }
    }

    /// What `stay` holds, if it is whole; marks the read.
    fn read(&mut self, stay: Stay, now: Stamp) -> Option<Held> {
        let name = self.name(stay);
        if self.stages[stay] != Stage::Here {
            self.object(Rule::Stay, || format!("{name} is not in memory"));
            return None;
        }
        let Some(cell) = self.own_cell(stay) else {
            self.object(Rule::Value, || format!("{name} has been overwritten"));
            return None;
        };
        let (held, before) = (cell.held, cell.accesses.clone());
        cell.accesses.read(now);
        self.ordered(&before, false, now, || name);
        held
    }

    /// The cell that holds all that `stay` put there.
    fn own_cell(&mut self, stay: Stay) -> Option<&mut Cell> {
        let (bank, start, end) = self.range(stay);
        let cell = self.banks[bank].cell(stay, start, end);
        cell.filter(|cell| cell.held.is_some_and(|held| held.owner == stay))
    }

    /// R11 and R12: everything in `before` that conflicts has happened before `now`.
    fn ordered(&mut self, before: &Accesses, writes: bool, now: Stamp, what: impl FnOnce() -> String) {
        let reads: &[Stamp] = if writes { &before.reads } else { &[] };
        // A step's own accesses are its own affair: R6 and R7 judge them.
        let late = |stamp: &&Stamp| **stamp != now && self.clocks[now.thread][stamp.thread] < stamp.tick;
        if let Some(stamp) = reads.iter().chain([&before.write]).find(late) {
            let rule = if stamp.thread < QUEUES { Rule::Transfer } else { Rule::Lane };
            self.object(rule, || format!("touches {}, on which another step may still be at work", what()));
        }
    }

    /// R8's missing runs, and R13.
    fn end(&mut self) {
        for kind in 0..self.sequences.len() {
            let mut expected = self.sequences[kind].expected.iter().rev();
            if let Some(&op) = expected.find(|op| self.firsts[op.index()].is_none()) {
                let name = self.graph.op(op).name;
                self.object(Rule::Effect, || format!("{op} `{name}` never runs"));
            }
        }
        let mut at_end: BTreeMap<Content, Vec<Stay>> = BTreeMap::new();
        let here = (0..self.stages.len()).filter(|&stay| self.stages[stay] == Stage::Here);
        for stay in here.collect::<Vec<_>>() {
            let held = self.own_cell(stay).and_then(|cell| cell.held);
            if let Some(Held { content, keeps: Need::Value, .. }) = held {
                at_end.entry(content).or_default().push(stay);
            }
        }
        let at_start = self.program.resident.iter().map(|buffer| buffer.index());
        let at_start = at_start.chain(self.program.parked.iter().map(|&copy| self.copy(copy)));
        let homes: BTreeMap<_, _> = at_start.map(|stay| (self.claims[stay].0.value(), stay)).collect();
        let last = last_versions(self.graph);
        for &value in self.graph.results() {
            let home = last.get(&value).map(|&source| homes.get(&Some(source)));
            let codec = home.flatten().and_then(|&home| self.claims[home].0.codec());
            let wanted = codec.map_or(Content::Value(value), |codec| Content::Encoded(value, codec));
            let mut stays = at_end.get(&wanted).into_iter().flatten();
            let back = match home {
                Some(Some(&home)) => stays.any(|&stay| self.range(stay) == self.range(home)),
                Some(None) => false,
                None => stays.any(|&stay| stay < self.program.buffers.len()),
            };
            if !back {
                let name = self.graph.value(value).name;
                self.object(Rule::Result, || format!("{value} `{name}` is not where it must be at the end"));
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
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

/// For the value that each persistent storage holds after all mutation: the value it began with.
fn last_versions(graph: &Graph) -> BTreeMap<ValueId, ValueId> {
    let is_source = |v: &ValueId| graph.value(*v).producer.is_none() && graph.value(*v).role.is_persistent();
    let mut source_of: BTreeMap<_, _> = graph.value_ids().filter(is_source).map(|id| (id, id)).collect();
    for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
        if let Some(source) = source_of.remove(&pair.input) {
            source_of.insert(pair.output, source);
        }
    }
    source_of
}
