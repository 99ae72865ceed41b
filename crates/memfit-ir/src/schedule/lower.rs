//! From actions to the steps of a program.

use std::collections::BTreeMap;

use super::stays::{StayId, Stays, home_before};
use super::{Action, Form};
use crate::{
    BufferId, Bytes, Codec, Content, CopyId, Graph, InPlace, OpId, Program, Step, StepId, Tier, ValueId,
};

/// The last transfers that touch something, by queue: each tier has one there and one back.
type Busy = [Option<StepId>; 2 * Tier::ALL.len()];
const IDLE: Busy = [None; 2 * Tier::ALL.len()];

/// The queue of transfers to `tier`.
const fn out(tier: Tier) -> usize {
    2 * tier.index()
}

/// The queue of transfers from `tier`.
const fn into(tier: Tier) -> usize {
    2 * tier.index() + 1
}

/// A value in device memory.
#[derive(Clone, Copy)]
struct Here {
    stay: StayId,
    buffer: BufferId,
    busy: Busy,
    /// The buffer holds what was fetched in this encoding: nothing has used the value yet.
    packed: Option<Codec>,
}

/// A form of a value.
#[derive(Clone, Copy)]
struct Stored {
    stay: StayId,
    held: Held,
    busy: Busy,
}

#[derive(Clone, Copy)]
enum Held {
    Buffer(BufferId),
    Copy(CopyId),
}

struct Lowering<'a> {
    graph: &'a Graph,
    in_place: InPlace,
    stays: &'a Stays,
    program: Program,
    here: Vec<Option<Here>>,
    forms: BTreeMap<(ValueId, Form), Stored>,
    /// Stays begun so far: they are numbered as [`Stays`] numbers them.
    begun: usize,
    /// The last transfer of each queue that was waited for. Those before it are done as well.
    awaited: Busy,
    /// Copies that end when this fetch of this queue has been waited for.
    leaving: Vec<(CopyId, usize, StepId)>,
}

/// The program of `actions`, which `stays` has found to be a schedule.
pub(super) fn program(graph: &Graph, actions: &[Action], in_place: InPlace, stays: &Stays) -> Program {
    let mut lowering = Lowering {
        graph,
        in_place,
        stays,
        program: Program::default(),
        here: vec![None; graph.value_count()],
        forms: BTreeMap::new(),
        begun: 0,
        awaited: IDLE,
        leaving: Vec::new(),
    };
    lowering.sources();
    for (at, &action) in actions.iter().enumerate() {
        match action {
            Action::Run { op, algorithm } => lowering.run(at, op, algorithm),
            Action::Store(value, form) => lowering.store(at, value, form),
            Action::Load(value, form) => lowering.load(at, value, form),
            Action::Release(value, None) => lowering.end_plain(value, at),
            Action::Release(value, Some(form)) => lowering.end_form((value, form), at),
        }
    }
    for &result in graph.results() {
        lowering.ready(result);
    }
    while let Some(&(_, queue, fetch)) = lowering.leaving.first() {
        lowering.wait(Some(fetch), queue);
    }
    lowering.program
}

impl Lowering<'_> {
    fn push(&mut self, step: Step) -> StepId {
        self.program.steps.push(step);
        StepId::at(self.program.steps.len() - 1)
    }

    fn size(&self, value: ValueId) -> Bytes {
        self.graph.value(value).size
    }

    fn begin(&mut self) -> StayId {
        self.begun += 1;
        self.begun - 1
    }

    /// Sources are there; those that nothing uses go at once.
    fn sources(&mut self) {
        let is_source = |&value: &ValueId| self.graph.value(value).producer.is_none();
        let sources: Vec<ValueId> = self.graph.value_ids().filter(is_source).collect();
        for &value in &sources {
            if let Some(form) = self.stays.parked(value) {
                let held = self.parked(value, form);
                let stored = Stored { stay: self.begin(), held, busy: IDLE };
                self.forms.insert((value, form), stored);
                continue;
            }
            let buffer = self.program.buffer(Content::Value(value), self.size(value), None);
            self.program.resident.push(buffer);
            let stay = self.begin();
            self.here[value.index()] = Some(Here { stay, buffer, busy: IDLE, packed: None });
        }
        for value in sources {
            if self.here[value.index()].is_some_and(|here| self.stays.is_unused(here.stay)) {
                self.free(value);
            }
        }
    }

    /// What holds `value` before the first action, which is at home in `form`.
    fn parked(&mut self, value: ValueId, form: Form) -> Held {
        match form {
            Form::Tier(tier) | Form::EncodedOn(tier, _) => {
                let copy = self.program.copy(Content::Value(value), self.size(value), tier);
                self.program.parked.push(copy);
                Held::Copy(copy)
            }
            Form::Encoded(codec) => {
                let room = codec.room(&self.graph.value(value));
                let buffer = self.program.buffer(Content::Encoded(value, codec), room, None);
                self.program.resident.push(buffer);
                Held::Buffer(buffer)
            }
        }
    }

    /// Waits for a transfer of queue `queue`, unless that is done.
    fn wait(&mut self, transfer: Option<StepId>, queue: usize) {
        let Some(transfer) = transfer.filter(|&transfer| self.awaited[queue] < Some(transfer)) else {
            return;
        };
        self.push(Step::Await(transfer));
        self.awaited[queue] = Some(transfer);
        for (copy, by, fetch) in std::mem::take(&mut self.leaving) {
            if by == queue && fetch <= transfer {
                self.push(Step::Discard(copy));
            } else {
                self.leaving.push((copy, by, fetch));
            }
        }
    }

    /// Waits for all stores, and for loads as well where `loads` says so.
    fn wait_all(&mut self, busy: Busy, loads: bool) {
        for (tier, _) in Tier::ALL {
            self.wait(busy[out(tier)], out(tier));
            self.wait(busy[into(tier)].filter(|_| loads), into(tier));
        }
    }

    fn free(&mut self, value: ValueId) {
        if let Some(here) = self.here[value.index()].take() {
            self.wait_all(here.busy, true);
            self.push(Step::Free(here.buffer));
        }
    }

    fn end_plain(&mut self, value: ValueId, at: usize) {
        if self.here[value.index()].is_some_and(|here| self.stays.ends_at(here.stay, at)) {
            self.free(value);
        }
    }

    fn end_form(&mut self, key: (ValueId, Form), at: usize) {
        let Some(&stored) = self.forms.get(&key) else { return };
        if !self.stays.ends_at(stored.stay, at) {
            return;
        }
        self.forms.remove(&key);
        self.wait_all(stored.busy, false);
        let under_way = |&queue: &usize| self.awaited[queue] < stored.busy[queue];
        let load = Tier::ALL.iter().map(|&(tier, _)| into(tier)).find(under_way);
        let load = load.and_then(|queue| stored.busy[queue].map(|fetch| (queue, fetch)));
        match (stored.held, load) {
            (Held::Buffer(buffer), _) => {
                self.push(Step::Free(buffer));
            }
            (Held::Copy(copy), Some((queue, fetch))) => {
                self.leaving.push((copy, queue, fetch));
            }
            (Held::Copy(copy), None) => {
                self.push(Step::Discard(copy));
            }
        }
    }

    /// The buffer of `value`, ready to be read.
    fn ready(&mut self, value: ValueId) -> Option<BufferId> {
        let mut here = self.here[value.index()]?;
        for (tier, _) in Tier::ALL {
            self.wait(here.busy[into(tier)], into(tier));
        }
        if here.packed.take().is_some() {
            let to = self.program.buffer(Content::Value(value), self.size(value), None);
            self.push(Step::Decode { from: here.buffer, to });
            self.push(Step::Free(here.buffer));
            (here.buffer, here.busy) = (to, IDLE);
            self.here[value.index()] = Some(here);
        }
        Some(here.buffer)
    }

    fn run(&mut self, at: usize, id: OpId, algorithm: u16) {
        let op = self.graph.op(id);
        let mut reads = Vec::with_capacity(op.reads.len());
        for &value in op.reads {
            reads.extend(self.ready(value));
        }
        let mut writes = Vec::with_capacity(op.writes.len());
        let mut aside = Vec::new();
        for &value in op.writes {
            let input = self.predecessor(id, value, at);
            let over = input.and_then(|input| self.here[input.index()].take());
            self.wait_all(over.map_or(IDLE, |over| over.busy), true);
            let over = over.map(|over| over.buffer);
            let buffer = self.program.buffer(Content::Value(value), self.size(value), over);
            let here = Here { stay: self.begin(), buffer, busy: IDLE, packed: None };
            if self.here[value.index()].is_some_and(|here| self.stays.is_home(here.stay)) {
                aside.push(buffer);
            } else {
                self.here[value.index()] = Some(here);
            }
            writes.push(buffer);
        }
        let other = usize::from(algorithm).checked_sub(1).and_then(|other| op.algorithms.get(other));
        let bytes = other.map_or(op.workspace, |other| other.workspace);
        let workspace = (bytes > Bytes::ZERO).then(|| self.program.buffer(Content::Workspace, bytes, None));
        let step = self.program.compute(id, algorithm, reads, writes, workspace);
        self.push(step);
        self.program.steps.extend(aside.into_iter().map(Step::Free));
        for &value in op.reads.iter().chain(op.writes) {
            self.end_plain(value, at);
        }
    }

    /// The input whose bytes output `value` takes over, if any.
    fn predecessor(&self, id: OpId, value: ValueId, at: usize) -> Option<ValueId> {
        let this = self.graph.value(value);
        if this.over.is_some() {
            return this.over;
        }
        let demanded = |input: ValueId| self.graph.value(input).mutator == Some(id);
        // What another output has taken over is not here any more.
        let dies = |input: ValueId| {
            let ends = |here: Here| self.stays.ends_at(here.stay, at);
            !self.stays.is_lasting(input) && self.here[input.index()].is_some_and(ends)
        };
        let alone = |input: ValueId| self.graph.value(input).readers.iter().all(|&reader| reader == id);
        let allowed = |input: ValueId| match self.in_place {
            InPlace::Must => false,
            InPlace::SoleReader => dies(input) && alone(input),
            InPlace::May => dies(input),
        };
        this.may_over.iter().copied().find(|&input| allowed(input) && !demanded(input))
    }

    fn store(&mut self, at: usize, value: ValueId, form: Form) {
        let Some(from) = self.ready(value) else { return };
        match form {
            Form::Encoded(codec) => {
                self.encode(value, from, codec);
            }
            Form::Tier(tier) => {
                let step = self.offload((value, form), from, Content::Value(value), self.size(value), tier);
                if let Some(here) = &mut self.here[value.index()] {
                    here.busy[out(tier)] = Some(step);
                }
            }
            Form::EncodedOn(tier, codec) => {
                let encoded = (value, Form::Encoded(codec));
                let known = self.forms.get(&encoded).map(|stored| stored.held);
                let from = match known {
                    Some(Held::Buffer(buffer)) => buffer,
                    _ => self.encode(value, from, codec),
                };
                let size = codec.room(&self.graph.value(value));
                let step = self.offload((value, form), from, Content::Encoded(value, codec), size, tier);
                if let Some(packed) = self.forms.get_mut(&encoded) {
                    packed.busy[out(tier)] = Some(step);
                }
                self.end_form(encoded, at);
            }
        }
        self.end_form((value, form), at);
        self.end_plain(value, at);
    }

    /// Starts a copy to `tier`.
    fn offload(
        &mut self,
        key: (ValueId, Form),
        from: BufferId,
        content: Content,
        size: Bytes,
        tier: Tier,
    ) -> StepId {
        let to = self.program.copy(content, size, tier);
        let step = self.push(Step::Offload { from, to });
        let mut busy = IDLE;
        busy[out(tier)] = Some(step);
        self.forms.insert(key, Stored { stay: self.begun, held: Held::Copy(to), busy });
        self.begun += 1;
        step
    }

    /// Makes the encoded form of `value` in device memory.
    fn encode(&mut self, value: ValueId, from: BufferId, codec: Codec) -> BufferId {
        let form = Form::Encoded(codec);
        let before = home_before(self.graph, self.stays.parked(value), (value, form), &self.forms);
        let before = before.and_then(|(key, _)| self.forms.remove(&key));
        // Its bytes may be on their way to a tier.
        before.into_iter().for_each(|stored| self.wait_all(stored.busy, true));
        let over = before.and_then(|stored| match stored.held {
            Held::Buffer(buffer) => Some(buffer),
            Held::Copy(_) => None,
        });
        let room = codec.room(&self.graph.value(value));
        let to = self.program.buffer(Content::Encoded(value, codec), room, over);
        self.push(Step::Encode { from, to });
        let stored = Stored { stay: self.begin(), held: Held::Buffer(to), busy: IDLE };
        self.forms.insert((value, form), stored);
        to
    }

    fn load(&mut self, at: usize, value: ValueId, form: Form) {
        let Some(&Stored { held, busy, .. }) = self.forms.get(&(value, form)) else { return };
        let stay = self.begin();
        let (content, size, packed) = match form {
            Form::EncodedOn(_, codec) => {
                (Content::Encoded(value, codec), codec.room(&self.graph.value(value)), Some(codec))
            }
            Form::Tier(_) | Form::Encoded(_) => (Content::Value(value), self.size(value), None),
        };
        let mut here = Here { stay, buffer: self.program.buffer(content, size, None), busy: IDLE, packed };
        let to = here.buffer;
        match (held, form) {
            (Held::Copy(from), Form::Tier(tier) | Form::EncodedOn(tier, _)) => {
                self.wait_all(busy, false);
                let step = Some(self.push(Step::Fetch { from, to }));
                here.busy[into(tier)] = step;
                if let Some(stored) = self.forms.get_mut(&(value, form)) {
                    stored.busy[into(tier)] = step;
                }
            }
            (Held::Buffer(from), _) => {
                self.push(Step::Decode { from, to });
            }
            (Held::Copy(_), Form::Encoded(_)) => {}
        }
        self.here[value.index()] = Some(here);
        self.end_form((value, form), at);
        self.end_plain(value, at);
    }
}
