//! Programs of every step kind, made from a graph by random legal choices.
//!
//! The generator runs the graph in a random legal order. Between ops it throws buffers away, offloads,
//! encodes and fetches at random, as long as everything still needed can be brought back: from the host, from
//! its encoded form, or by running its op again. It decides neither places nor lanes nor awaits: see
//! [`crate::place`] and [`crate::lanes`]. Where its choices lead into a dead end it gives up, and the caller
//! tries another seed.

use memfit_ir::{BufferId, Bytes, Codec, Content, CopyId, Effect, Graph, OpId, Tier, ValueId};

use crate::Rng;
use crate::draft::{Act, Draft};

/// What the generator may do, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// Percent chance of each disturbance between two ops.
    pub(crate) disturb: usize,
    /// Whether copies on the host are made, and sources parked there.
    pub(crate) host: bool,
    /// Codecs that may be used.
    pub(crate) codecs: Vec<Codec>,
    /// Whether seeded ops may run again.
    pub(crate) replays_random: bool,
    /// Percent chance that a permitted in-place pair is taken where it can be.
    pub(crate) in_place: usize,
}

/// A program without places, lanes and awaits.
#[derive(Clone, Debug)]
pub(crate) struct Rough {
    /// The program.
    pub(crate) draft: Draft,
    /// For each buffer a group: buffers of one group lie at one place.
    pub(crate) groups: Vec<usize>,
}

/// More lines than this, and the generator gives up.
const MOST_LINES: usize = 160;

/// A random legal program for `graph`; `None` from a dead end.
#[must_use]
pub(crate) fn rewrite(graph: &Graph, habits: &Habits, rng: &mut Rng) -> Option<Rough> {
    let mut writer = Writer::new(graph, habits, rng);
    writer.start();
    while writer.done.iter().any(|done| !done) {
        for _ in 0..2 {
            if writer.rng.chance(habits.disturb) {
                writer.disturb()?;
            }
        }
        let op = writer.ready()?;
        writer.run(op, true)?;
        writer.clean(85);
        if writer.draft.lines.len() > MOST_LINES {
            return None;
        }
    }
    writer.end()?;
    Some(Rough { draft: writer.draft, groups: writer.groups })
}

/// Something that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    Plain(BufferId),
    Encoded(BufferId),
    Host(CopyId),
}

struct Writer<'a> {
    graph: &'a Graph,
    habits: &'a Habits,
    rng: &'a mut Rng,
    draft: Draft,
    groups: Vec<usize>,
    /// For each value what holds it now.
    holdings: Vec<Vec<Holding>>,
    computed: Vec<bool>,
    done: Vec<bool>,
    /// For each value the persistent source whose storage it is a version of.
    storage: Vec<Option<ValueId>>,
    /// For each persistent source that starts on the device: the group of its place.
    homes: Vec<Option<usize>>,
    /// Buffers that a step in the making reads.
    held: Vec<BufferId>,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph, habits: &'a Habits, rng: &'a mut Rng) -> Self {
        let values = graph.value_count();
        let mut storage = vec![None; values];
        for id in graph.value_ids() {
            if graph.value(id).producer.is_none() && graph.value(id).role.is_persistent() {
                storage[id.index()] = Some(id);
            }
        }
        for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
            storage[pair.output.index()] = storage[pair.input.index()];
        }
        Writer {
            graph,
            habits,
            rng,
            draft: Draft::default(),
            groups: Vec::new(),
            holdings: vec![Vec::new(); values],
            computed: vec![false; values],
            done: vec![false; graph.op_count()],
            storage,
            homes: vec![None; values],
            held: Vec::new(),
        }
    }

    fn start(&mut self) {
        for id in self.graph.value_ids().filter(|&id| self.graph.value(id).producer.is_none()) {
            let size = self.graph.value(id).size;
            self.computed[id.index()] = true;
            let persistent = self.storage[id.index()].is_some();
            if persistent && self.habits.host && self.rng.chance(30) {
                let tier = self.tier();
                let copy = self.draft.copy(Content::Value(id), size, tier);
                self.draft.parked.push(copy);
                self.holdings[id.index()].push(Holding::Host(copy));
            } else {
                let buffer = self.buffer(Content::Value(id), size, None, None);
                self.draft.resident.push(buffer);
                self.holdings[id.index()].push(Holding::Plain(buffer));
                if persistent {
                    self.homes[id.index()] = Some(self.groups[buffer.index()]);
                }
            }
        }
    }

    fn tier(&mut self) -> Tier {
        if self.rng.chance(35) { Tier::Disk } else { Tier::Host }
    }

    fn buffer(
        &mut self,
        content: Content,
        size: Bytes,
        over: Option<BufferId>,
        group: Option<usize>,
    ) -> BufferId {
        let buffer = self.draft.buffer(content, size, over);
        let group = over.map(|over| self.groups[over.index()]).or(group);
        self.groups.push(group.unwrap_or(buffer.index()));
        buffer
    }

    /// A buffer for a version of a storage lies at home while home is empty.
    fn plain(&mut self, value: ValueId) -> BufferId {
        let group = self.home_group(value).filter(|_| self.at_home(value).is_none());
        let size = self.graph.value(value).size;
        let buffer = self.buffer(Content::Value(value), size, None, group);
        self.holdings[value.index()].push(Holding::Plain(buffer));
        buffer
    }

    fn home_group(&self, value: ValueId) -> Option<usize> {
        self.storage[value.index()].and_then(|source| self.homes[source.index()])
    }

    /// The buffer at the home of `value`'s storage, whatever version it holds.
    fn at_home(&self, value: ValueId) -> Option<BufferId> {
        let group = self.home_group(value)?;
        let plain = self.holdings.iter().flatten().filter_map(|holding| match holding {
            Holding::Plain(buffer) => Some(*buffer),
            _ => None,
        });
        plain.into_iter().find(|buffer| self.groups[buffer.index()] == group)
    }

    fn plains(&self, value: ValueId) -> Vec<BufferId> {
        let plain = |holding: &Holding| match holding {
            Holding::Plain(buffer) => Some(*buffer),
            _ => None,
        };
        self.holdings[value.index()].iter().filter_map(plain).collect()
    }

    fn is_last_version(&self, value: ValueId) -> bool {
        self.storage[value.index()].is_some() && self.graph.is_result(value)
    }

    fn needed(&self, value: ValueId) -> bool {
        let waiting = |op: &OpId| !self.done[op.index()];
        self.graph.is_result(value) || self.graph.value(value).readers.iter().any(waiting)
    }

    fn reruns(&self, op: OpId) -> bool {
        let op = self.graph.op(op);
        let effect = match op.effect {
            Effect::Pure => true,
            Effect::Seeded => self.habits.replays_random,
            Effect::Once | Effect::Collective => false,
        };
        effect && !op.reuses.iter().any(|pair| pair.must && self.storage[pair.input.index()].is_some())
    }

    /// Whether everything needed could still be had if `gone` were gone.
    fn safe_without(&self, gone: &[Holding]) -> bool {
        let mut has = vec![false; self.graph.value_count()];
        let held =
            |value: ValueId| self.holdings[value.index()].iter().any(|holding| !gone.contains(holding));
        for id in self.graph.value_ids() {
            has[id.index()] = self.computed[id.index()] && held(id);
        }
        for op in self.graph.op_ids().filter(|&op| self.done[op.index()] && self.reruns(op)) {
            if self.graph.op(op).reads.iter().all(|value| has[value.index()]) {
                for value in self.graph.op(op).writes {
                    has[value.index()] = true;
                }
            }
        }
        let missing = |id: ValueId| self.computed[id.index()] && !has[id.index()] && self.needed(id);
        !self.graph.value_ids().any(missing)
    }

    fn drop_holding(&mut self, value: ValueId, holding: Holding) {
        self.holdings[value.index()].retain(|&other| other != holding);
        self.draft.push(match holding {
            Holding::Plain(buffer) | Holding::Encoded(buffer) => Act::Free(buffer),
            Holding::Host(copy) => Act::Discard(copy),
        });
    }

    /// Frees what nobody needs, each with `percent` chance.
    fn clean(&mut self, percent: usize) {
        for value in self.graph.value_ids() {
            if !self.computed[value.index()] || self.needed(value) {
                continue;
            }
            for holding in self.holdings[value.index()].clone() {
                if self.rng.chance(percent) && self.safe_without(&[holding]) {
                    self.drop_holding(value, holding);
                }
            }
        }
    }

    /// One random thing that no op asked for.
    fn disturb(&mut self) -> Option<()> {
        let all: Vec<(ValueId, Holding)> = self
            .graph
            .value_ids()
            .flat_map(|id| self.holdings[id.index()].iter().map(move |&holding| (id, holding)))
            .collect();
        let (value, holding) = self.rng.pick(&all)?;
        match (holding, self.rng.below(10)) {
            (_, 0..5) => {
                // Home is left only for good: what stays elsewhere on the device would block the way back.
                let leaves_home =
                    matches!(holding, Holding::Plain(buffer) if self.at_home(value) == Some(buffer));
                let stuck = leaves_home
                    && (self.plains(value).len() > 1
                        || self.holdings[value.index()].iter().all(|&other| other == holding));
                if !stuck && self.safe_without(&[holding]) {
                    self.drop_holding(value, holding);
                }
            }
            (Holding::Plain(from) | Holding::Encoded(from), 5..8) if self.habits.host => {
                let buffer = self.draft.buffers[from.index()];
                let tier = self.tier();
                let to = self.draft.copy(buffer.content, buffer.size, tier);
                self.draft.push(Act::Offload { from, to });
                self.holdings[value.index()].push(Holding::Host(to));
            }
            (Holding::Plain(from), _) => {
                let (needed, dtype) = (self.graph.need_of(value), self.graph.value(value).dtype);
                let may = |codec: &Codec| codec.keeps() >= needed && codec.suits(dtype);
                let codec = self.rng.pick(&self.habits.codecs).filter(may);
                let Some(codec) = codec else { return Some(()) };
                let slack = Bytes(if self.rng.chance(20) { self.rng.below(9) as u64 } else { 0 });
                let size = codec.room(&self.graph.value(value)) + slack;
                let to = self.buffer(Content::Encoded(value, codec), size, None, None);
                self.draft.push(Act::Encode { from, to });
                self.holdings[value.index()].push(Holding::Encoded(to));
            }
            (Holding::Encoded(from), _) => self.decode(value, from),
            (Holding::Host(from), _) => self.fetch(value, from),
        }
        Some(())
    }

    fn decode(&mut self, value: ValueId, from: BufferId) {
        let to = self.plain(value);
        self.draft.push(Act::Decode { from, to });
    }

    fn fetch(&mut self, value: ValueId, from: CopyId) {
        let copy = self.draft.copies[from.index()];
        let to = if copy.content == Content::Value(value) {
            self.plain(value)
        } else {
            let to = self.buffer(copy.content, copy.size, None, None);
            self.holdings[value.index()].push(Holding::Encoded(to));
            to
        };
        self.draft.push(Act::Fetch { from, to });
    }

    /// A buffer that holds `value`, brought back if need be.
    fn ensure(&mut self, value: ValueId) -> Option<BufferId> {
        let mut tries = 0;
        loop {
            if let Some(buffer) = self.rng.pick(&self.plains(value)) {
                return Some(buffer);
            }
            tries += 1;
            if tries > 4 || self.draft.lines.len() > MOST_LINES {
                return None;
            }
            let producer = self.graph.value(value).producer.filter(|&op| self.reruns(op));
            let held = self.rng.pick(&self.holdings[value.index()]);
            match (held, producer) {
                (None, None) => return None,
                (None, Some(op)) => self.run(op, false)?,
                (Some(_), Some(op)) if self.rng.chance(15) => self.run(op, false)?,
                (Some(Holding::Encoded(from)), _) => self.decode(value, from),
                (Some(Holding::Host(from)), _) => self.fetch(value, from),
                (Some(Holding::Plain(buffer)), _) => return Some(buffer),
            }
        }
    }

    /// The buffer with `value` that lies at home.
    fn ensure_home(&mut self, value: ValueId) -> Option<BufferId> {
        for _ in 0..4 {
            if let Some(buffer) = self.at_home(value) {
                return self.plains(value).contains(&buffer).then_some(buffer);
            }
            match self.rng.pick(&self.holdings[value.index()])? {
                Holding::Encoded(from) => self.decode(value, from),
                Holding::Host(from) => self.fetch(value, from),
                Holding::Plain(_) => return None,
            }
        }
        None
    }

    /// An op whose turn may be next.
    fn ready(&mut self) -> Option<OpId> {
        let waits = |op: OpId| !self.done[op.index()];
        let before = |op: OpId, effects: &[Effect]| {
            self.graph
                .op_ids()
                .take(op.index())
                .any(|other| waits(other) && effects.contains(&self.graph.op(other).effect))
        };
        let candidates: Vec<OpId> = self
            .graph
            .op_ids()
            .filter(|&id| {
                let op = self.graph.op(id);
                let blocked = match op.effect {
                    Effect::Pure => false,
                    Effect::Seeded => before(id, &[Effect::Seeded]),
                    Effect::Once | Effect::Collective => before(id, &[Effect::Once, Effect::Collective]),
                };
                let mutates_early = op.reuses.iter().filter(|pair| pair.must).any(|pair| {
                    self.graph.value(pair.input).readers.iter().any(|&reader| reader != id && waits(reader))
                });
                waits(id)
                    && !blocked
                    && !mutates_early
                    && op.reads.iter().all(|value| self.computed[value.index()])
            })
            .collect();
        self.rng.pick(&candidates)
    }

    /// Runs an op, for the first time or again.
    fn run(&mut self, id: OpId, first: bool) -> Option<()> {
        let op = self.graph.op(id);
        let depth = self.held.len();
        let mut reads: Vec<BufferId> = Vec::new();
        for &value in op.reads {
            let must = op.reuses.iter().any(|pair| pair.must && pair.input == value);
            let at_home = must && self.home_group(value).is_some();
            let buffer = if at_home { self.ensure_home(value)? } else { self.ensure(value)? };
            // A must input is consumed: all its operands are one buffer.
            let same =
                op.reads.iter().zip(&reads).find(|(other, _)| must && **other == value).map(|(_, &b)| b);
            let buffer = same.unwrap_or(buffer);
            reads.push(buffer);
            self.held.push(buffer);
        }
        let outer = self.held[..depth].to_vec();
        self.held.truncate(depth);
        let mut overs: Vec<Option<BufferId>> = Vec::new();
        for &value in op.writes {
            let over = self.over(id, value, &reads, &outer, &overs, first)?;
            overs.push(over);
        }
        let mut writes = Vec::new();
        for (&value, &over) in op.writes.iter().zip(&overs) {
            if let Some(over) = over {
                for holdings in &mut self.holdings {
                    holdings.retain(|&holding| holding != Holding::Plain(over));
                }
            }
            let buffer = self.buffer(Content::Value(value), self.graph.value(value).size, over, None);
            self.holdings[value.index()].push(Holding::Plain(buffer));
            self.computed[value.index()] = true;
            writes.push(buffer);
        }
        let algorithm = if self.rng.chance(40) { self.rng.below(op.algorithms.len() + 1) } else { 0 };
        let needed = algorithm.checked_sub(1).map_or(op.workspace, |at| op.algorithms[at].workspace);
        let slack = Bytes(if self.rng.chance(10) { self.rng.below(9) as u64 } else { 0 });
        let workspace = (needed + slack > Bytes::ZERO)
            .then(|| self.buffer(Content::Workspace, needed + slack, None, None));
        let algorithm = u16::try_from(algorithm).ok()?;
        self.draft.push(Act::Compute { op: id, algorithm, reads, writes, workspace });
        if first {
            self.done[id.index()] = true;
        }
        Some(())
    }

    /// The buffer that output `value` takes over: `Some(None)` if none, `None` if it must and can't.
    fn over(
        &mut self,
        id: OpId,
        value: ValueId,
        reads: &[BufferId],
        outer: &[BufferId],
        taken: &[Option<BufferId>],
        first: bool,
    ) -> Option<Option<BufferId>> {
        let op = self.graph.op(id);
        let operand = |input: ValueId| op.reads.iter().position(|&read| read == input).map(|at| reads[at]);
        if let Some(pair) = op.reuses.iter().find(|pair| pair.must && pair.output == value) {
            let buffer = operand(pair.input)?;
            let is_free = !outer.contains(&buffer) && !taken.contains(&Some(buffer));
            if first {
                // Whatever can't be had again without the input must be had before it goes; rather give up.
                self.done[id.index()] = true;
                let safe = self.safe_without(&[Holding::Plain(buffer)]);
                self.done[id.index()] = false;
                return (is_free && safe).then_some(Some(buffer));
            }
            return (is_free && self.safe_without(&[Holding::Plain(buffer)])).then_some(Some(buffer));
        }
        for pair in op.reuses.iter().filter(|pair| pair.output == value) {
            let Some(buffer) = operand(pair.input) else { continue };
            let demanded = op.reuses.iter().any(|other| other.must && other.input == pair.input);
            let home = self.at_home(pair.input) == Some(buffer);
            if demanded || home || outer.contains(&buffer) || taken.contains(&Some(buffer)) {
                continue;
            }
            let was = std::mem::replace(&mut self.done[id.index()], true);
            let mut gone: Vec<Holding> =
                taken.iter().flatten().map(|&buffer| Holding::Plain(buffer)).collect();
            gone.push(Holding::Plain(buffer));
            let safe = self.safe_without(&gone);
            self.done[id.index()] = was;
            if safe && self.rng.chance(self.habits.in_place) {
                return Some(Some(buffer));
            }
        }
        Some(None)
    }

    /// Brings every result to where it must be.
    fn end(&mut self) -> Option<()> {
        let results = self.graph.results().to_vec();
        for &value in &results {
            if !self.is_last_version(value) {
                let buffer = self.ensure(value)?;
                self.held.push(buffer);
            } else if self.home_group(value).is_some() {
                self.ensure_home(value)?;
            } else {
                let plain = Content::Value(value);
                let tier = self.draft.parked_in(self.storage[value.index()]?)?;
                let mut copies = self.holdings[value.index()].iter().filter_map(|holding| match holding {
                    Holding::Host(copy) => Some(&self.draft.copies[copy.index()]),
                    _ => None,
                });
                if !copies.any(|copy| (copy.content, copy.tier) == (plain, tier)) {
                    let from = self.ensure(value)?;
                    let to = self.draft.copy(plain, self.graph.value(value).size, tier);
                    self.draft.push(Act::Offload { from, to });
                    self.holdings[value.index()].push(Holding::Host(to));
                }
            }
        }
        for &value in &results {
            if !self.is_last_version(value) && self.plains(value).is_empty() {
                return None;
            }
        }
        self.clean(70);
        Some(())
    }
}
