//! Lanes, queues and the step boundary.

use memfit_ir::{BufferId, Bytes, Content, CopyId, Effect, Graph, Limits, Plan, Step, StepId, Tier, ValueId};

use super::Fault;
use super::kernel::Truth;
use super::machine::{Machine, Pending, Ran};
use crate::Rng;

/// One way in which the machine may work through a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Transfers run as soon as they are issued, or not before somebody waits for them.
    pub(super) early: bool,
    /// Kernels work from the last element to the first.
    pub(super) backwards: bool,
    /// Which lane gets on first when several could.
    pub(super) low_lane_first: bool,
    /// Or lanes and transfers at random, from this seed.
    pub(super) seed: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    steps: Vec<usize>,
    next: usize,
    pending: Option<Pending>,
}

/// Two for each tier.
const QUEUES: usize = 2 * Tier::ALL.len();

/// Transfers in one direction, in issue order.
#[derive(Clone, Debug, Default)]
struct Queue {
    steps: Vec<usize>,
    next: usize,
    /// Whether the next one may already be writing.
    begun: bool,
}

/// A plan being run.
pub(super) struct Run<'a> {
    machine: Machine<'a>,
    truth: &'a Truth,
    plan: &'a Plan,
    pace: Pace,
    rng: Rng,
    copies: Vec<Option<Vec<u8>>>,
    lanes: Vec<Lane>,
    /// To each tier, and from it.
    queues: [Queue; QUEUES],
    issued: Vec<bool>,
    done: Vec<bool>,
    draws: u64,
    first_draws: Vec<Option<u64>>,
    order: Vec<usize>,
    at: Option<usize>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        truth: &'a Truth,
        graph: &'a Graph,
        limits: &'a Limits,
        plan: &'a Plan,
        pace: Pace,
    ) -> Self {
        Run {
            machine: Machine::new(graph, limits, plan, pace.backwards),
            truth,
            plan,
            pace,
            rng: Rng::new(pace.seed.unwrap_or(0)),
            copies: vec![None; plan.program.copies.len()],
            lanes: Vec::new(),
            queues: Default::default(),
            issued: Vec::new(),
            done: Vec::new(),
            draws: 0,
            first_draws: Vec::new(),
            order: Vec::new(),
            at: None,
        }
    }

    /// Two training steps in a row, the second on what the first has left.
    pub(super) fn two_steps(mut self) -> Result<Vec<Bytes>, Fault> {
        let steps = if self.truth.persistent { 2 } else { 1 };
        for step in 0..steps {
            let ran = self.one_step(step);
            ran.map_err(|what| Fault { step: self.at, what })?;
        }
        Ok(self.machine.peaks)
    }

    fn one_step(&mut self, step: usize) -> Ran<()> {
        let program = &self.plan.program;
        self.at = None;
        for (tier, _) in Tier::ALL {
            self.tier_budget(tier)?;
        }
        self.load(step)?;
        let count = program.steps.len();
        self.issued = vec![false; count];
        self.done = vec![false; count];
        self.first_draws = vec![None; self.machine.graph.op_count()];
        self.order.clear();
        self.lanes = vec![Lane::default(); usize::from(self.machine.limits.lanes.max(1))];
        self.queues = Default::default();
        for (at, step) in program.steps.iter().enumerate() {
            let lane =
                self.lanes.get_mut(usize::from(program.lane(at))).ok_or("a lane that does not exist")?;
            lane.steps.push(at);
            match step {
                Step::Offload { to: copy, .. } => self.queues[2 * self.tier(*copy)].steps.push(at),
                Step::Fetch { from: copy, .. } => self.queues[2 * self.tier(*copy) + 1].steps.push(at),
                _ => {}
            }
        }
        while self.lanes.iter().any(|lane| lane.next < lane.steps.len()) {
            self.advance()?;
        }
        self.at = None;
        for queue in 0..QUEUES {
            while self.transfer(queue)? {}
        }
        self.compare(step)
    }

    /// The position of a copy's tier; that of a copy that does not exist is found out elsewhere.
    fn tier(&self, copy: CopyId) -> usize {
        self.plan.program.copies.get(copy.index()).map_or(0, |copy| copy.tier.index())
    }

    /// Copies in issue order never take more than `tier` gives.
    fn tier_budget(&self, tier: Tier) -> Ran<()> {
        let program = &self.plan.program;
        let copy = |copy: CopyId| program.copies.get(copy.index()).filter(|copy| copy.tier == tier);
        let size = |id: CopyId| copy(id).map_or(Bytes::ZERO, |copy| copy.size);
        let mut live: Vec<CopyId> = program.parked.clone();
        let mut now: Bytes = live.iter().map(|&copy| size(copy)).sum();
        let mut peak = now;
        for step in &program.steps {
            match *step {
                Step::Offload { to, .. } => {
                    live.push(to);
                    now += size(to);
                }
                Step::Discard(copy) if live.contains(&copy) => {
                    live.retain(|&other| other != copy);
                    now = now.saturating_sub(size(copy));
                }
                _ => {}
            }
            peak = peak.max(now);
        }
        if peak > self.machine.limits.tier(tier) { Err("a tier is full") } else { Ok(()) }
    }

    /// What is in memory before a step: its batch, and what the step before has left.
    fn load(&mut self, step: usize) -> Ran<()> {
        let program = &self.plan.program;
        let mut loads: Vec<(BufferId, Vec<u8>)> = Vec::new();
        for &buffer in &program.resident {
            let content = self.machine.content(buffer);
            let value = self.source(content)?;
            let (this, last) = (self.machine.graph.value(value), self.truth.last[value.index()]);
            let codec = content.and_then(Content::codec);
            if codec.is_some() && last.is_none() {
                return Err("a batch that is encoded");
            }
            let size = codec.map_or(this.size, |codec| codec.room(&this));
            let span = self.machine.span(buffer, size)?;
            let bytes = if step > 0 && last.is_some() {
                self.machine.bytes(span).to_vec()
            } else {
                let plain = self.truth.source(self.machine.graph, value, step);
                let room = self.machine.bytes(span).len();
                codec.map_or(plain.clone(), |codec| self.machine.pack(plain, (value, codec), room))
            };
            loads.push((buffer, bytes));
        }
        let mut parked: Vec<(CopyId, Vec<u8>)> = Vec::new();
        for &copy in &program.parked {
            let content = program.copies.get(copy.index()).map(|copy| copy.content);
            let value = self.source(content)?;
            if content != Some(Content::Value(value)) {
                return Err("a source that is none");
            }
            let last = self.truth.last[value.index()].ok_or("a batch on the host")?;
            let bytes = if step == 0 {
                self.truth.source(self.machine.graph, value, step)
            } else {
                let tier = program.copies[copy.index()].tier;
                self.parked_in(tier, last, 0).ok_or("a storage that is lost")?
            };
            parked.push((copy, bytes));
        }
        self.machine.scribble_all();
        self.machine.filled.fill(false);
        self.copies.fill(None);
        for (buffer, bytes) in loads {
            let content = self.machine.content(buffer);
            let value = self.source(content)?;
            self.machine.fill_span(buffer, Some(value).filter(|_| content == Some(Content::Value(value))))?;
            let span = self.machine.span(buffer, Bytes(bytes.len() as u64))?;
            self.machine.store(span, &bytes);
        }
        for (copy, bytes) in parked {
            self.copies[copy.index()] = Some(bytes);
        }
        Ok(())
    }

    fn source(&self, content: Option<Content>) -> Ran<ValueId> {
        let graph = self.machine.graph;
        match content {
            Some(Content::Value(value) | Content::Encoded(value, _))
                if value.index() < graph.value_count() && graph.value(value).producer.is_none() =>
            {
                Ok(value)
            }
            _ => Err("a source that is none"),
        }
    }

    /// The right bytes of `value` in some live copy in `tier` that claims them.
    fn parked_in(&self, tier: Tier, value: ValueId, step: usize) -> Option<Vec<u8>> {
        let right = &self.truth.values[step][value.index()];
        let claims = |at: usize| {
            let copy = &self.plan.program.copies[at];
            copy.content == Content::Value(value) && copy.tier == tier
        };
        let found =
            self.copies.iter().enumerate().find(|(at, copy)| claims(*at) && copy.as_ref() == Some(right));
        found.and_then(|(_, copy)| copy.clone())
    }

    /// Lets one lane take one step, or one transfer happen.
    fn advance(&mut self) -> Ran<()> {
        let count = self.lanes.len();
        let mut order: Vec<usize> = (0..count).collect();
        if self.pace.seed.is_some() {
            let turn = self.rng.below(count);
            order.rotate_left(turn);
            if self.rng.chance(25) {
                let queue = self.rng.below(QUEUES);
                if self.transfer(queue)? {
                    return Ok(());
                }
            }
        } else if !self.pace.low_lane_first {
            order.reverse();
        }
        for lane in order {
            let Some(&at) = self.lanes[lane].steps.get(self.lanes[lane].next) else { continue };
            self.at = Some(at);
            if self.lane_step(lane, at)? {
                return Ok(());
            }
        }
        Err("everybody waits")
    }

    /// One step of a lane; false if it must wait.
    fn lane_step(&mut self, lane: usize, at: usize) -> Ran<bool> {
        if let Some(pending) = self.lanes[lane].pending.take() {
            self.machine.finish(&pending);
        } else {
            match self.plan.program.steps[at] {
                Step::Compute(compute) => {
                    self.machine.op_exists(compute.op)?;
                    let salt = self.salt(compute.op.index());
                    let pending = self.machine.begin(&compute, salt)?;
                    if self.lanes.len() > 1 {
                        // Others may get between.
                        self.lanes[lane].pending = Some(pending);
                        return Ok(true);
                    }
                    self.machine.finish(&pending);
                }
                Step::Free(buffer) => {
                    let span = self.machine.all(buffer)?;
                    // Freeing touches nothing, so with others at work it must leave the bytes to them.
                    if self.alone() {
                        self.machine.scribble(span);
                    }
                    self.machine.filled[buffer.index()] = false;
                }
                Step::Discard(copy) => {
                    *self.copies.get_mut(copy.index()).ok_or("a copy that does not exist")? = None;
                }
                Step::Await(step) => {
                    if !self.wait(step, at)? {
                        return Ok(false);
                    }
                }
                Step::Encode { from, to } => self.machine.encode(from, to)?,
                Step::Decode { from, to } => self.machine.decode(from, to)?,
                Step::Offload { from, to } => {
                    self.machine.all(from)?;
                    let size =
                        self.plan.program.copies.get(to.index()).ok_or("a copy that does not exist")?.size;
                    let noise = self.machine.noise();
                    let size = usize::try_from(size.0).ok().filter(|&size| size < 1 << 24);
                    self.copies[to.index()] = Some(vec![noise; size.ok_or("too large to run here")?]);
                    return self.issue(lane, at, 2 * self.tier(to));
                }
                Step::Fetch { from, to } => {
                    if from.index() >= self.copies.len() {
                        return Err("a copy that does not exist");
                    }
                    self.machine.all(to)?;
                    return self.issue(lane, at, 2 * self.tier(from) + 1);
                }
            }
        }
        self.done[at] = true;
        self.lanes[lane].next += 1;
        Ok(true)
    }

    /// Whether one lane runs all, and no transfer is under way beside it.
    fn alone(&self) -> bool {
        let is_transfer = |step: &Step| matches!(step, Step::Offload { .. } | Step::Fetch { .. });
        self.lanes.len() == 1 && !self.plan.program.steps.iter().any(is_transfer)
    }

    fn issue(&mut self, lane: usize, at: usize, queue: usize) -> Ran<bool> {
        self.issued[at] = true;
        self.lanes[lane].next += 1;
        self.begin_transfer(queue)?;
        if self.pace.early {
            while self.transfer(queue)? {}
        }
        Ok(true)
    }

    /// Generator state, or place in the order of effects.
    fn salt(&mut self, op: usize) -> u64 {
        match self.machine.graph.op(memfit_ir::OpId::at(op)).effect {
            Effect::Pure => 0,
            Effect::Seeded => match self.first_draws[op] {
                Some(draw) if self.machine.limits.replays_random => draw,
                _ => {
                    self.draws += 1;
                    self.first_draws[op] = Some(self.draws);
                    self.draws
                }
            },
            Effect::Once | Effect::Collective => {
                self.order.push(op);
                self.order.len() as u64
            }
        }
    }

    /// Whether `step` is complete, after what transfers can do for it.
    fn wait(&mut self, step: StepId, at: usize) -> Ran<bool> {
        let step = step.index();
        if step >= at {
            return Err("waits for what comes later");
        }
        for queue in 0..QUEUES {
            if self.queues[queue].steps.contains(&step) {
                while !self.done[step] && self.transfer(queue)? {}
            }
        }
        Ok(self.done[step])
    }

    /// Once the next transfer of a queue is issued, where it goes to holds nothing until it is done.
    fn begin_transfer(&mut self, queue: usize) -> Ran<()> {
        let Some(&at) = self.queues[queue].steps.get(self.queues[queue].next) else { return Ok(()) };
        let Step::Fetch { to, .. } = self.plan.program.steps[at] else { return Ok(()) };
        if self.issued[at] && !std::mem::replace(&mut self.queues[queue].begun, true) {
            let value = match self.machine.content(to) {
                Some(Content::Value(value)) if value.index() < self.machine.graph.value_count() => {
                    Some(value)
                }
                _ => None,
            };
            let span = self.machine.fill_span(to, value)?;
            self.machine.scribble(span);
        }
        Ok(())
    }

    /// Performs the next transfer of a queue, if it has been issued.
    fn transfer(&mut self, queue: usize) -> Ran<bool> {
        let Some(&at) = self.queues[queue].steps.get(self.queues[queue].next) else { return Ok(false) };
        if !self.issued[at] {
            return Ok(false);
        }
        match self.plan.program.steps[at] {
            Step::Offload { from, to } => {
                let span = self.machine.all(from)?;
                let bytes = self.machine.bytes(span);
                let copy = self.copies[to.index()].as_mut().ok_or("a transfer into no copy")?;
                if copy.len() != bytes.len() {
                    return Err("a transfer between different sizes");
                }
                copy.copy_from_slice(bytes);
            }
            Step::Fetch { from, to } => {
                let span = self.machine.all(to)?;
                let copy = self.copies[from.index()].take().ok_or("a transfer from no copy")?;
                if copy.len() != self.machine.bytes(span).len() {
                    return Err("a transfer between different sizes");
                }
                self.machine.store(span, &copy);
                self.copies[from.index()] = Some(copy);
            }
            _ => {}
        }
        self.done[at] = true;
        self.queues[queue].next += 1;
        self.queues[queue].begun = false;
        self.begin_transfer(queue)?;
        Ok(true)
    }

    /// Compares what is left with the truth.
    fn compare(&mut self, step: usize) -> Ran<()> {
        let program = &self.plan.program;
        if self.draws != self.truth.draws[step] {
            return Err("the random generator is in another state");
        }
        if self.order != self.truth.order {
            return Err("effects out of order");
        }
        for &value in self.machine.graph.results() {
            let right = &self.truth.values[step][value.index()];
            let size = self.machine.graph.value(value).size;
            let found = match self.truth.last_of[value.index()] {
                Some(source) => {
                    let claim = Content::Value(source);
                    let content = |buffer: BufferId| self.machine.content(buffer);
                    let is_home =
                        |buffer: BufferId| content(buffer).is_some_and(|c| c.value() == Some(source));
                    let home = program.resident.iter().find(|&&buffer| is_home(buffer));
                    match home.map(|&home| (home, content(home).and_then(Content::codec))) {
                        Some((home, None)) => {
                            let span = self.machine.span(home, size)?;
                            self.machine.bytes(span) == right.as_slice()
                        }
                        Some((home, Some(codec))) => {
                            let room = codec.room(&self.machine.graph.value(source));
                            let span = self.machine.span(home, room)?;
                            self.machine.unpacks_to(span, codec, right)
                        }
                        None => {
                            let mut copies = program.parked.iter().map(|copy| &program.copies[copy.index()]);
                            let home = copies.find(|copy| copy.content == claim);
                            home.is_some_and(|home| self.parked_in(home.tier, value, step).is_some())
                        }
                    }
                }
                None => self.in_memory(value, size, right)?,
            };
            if !found {
                return Err("a result is wrong");
            }
        }
        Ok(())
    }

    /// Whether some buffer that claims `value` holds it.
    fn in_memory(&mut self, value: ValueId, size: Bytes, right: &[u8]) -> Ran<bool> {
        for (at, buffer) in self.plan.program.buffers.iter().enumerate() {
            if buffer.content == Content::Value(value) && self.machine.filled[at] {
                let span = self.machine.span(BufferId::at(at), size)?;
                if self.machine.bytes(span) == right {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
