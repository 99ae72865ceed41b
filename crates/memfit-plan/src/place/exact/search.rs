//! Depth-first search for a packing under a capacity, over canonical packings only; can be continued.
//!
//! A packing is canonical if pieces are placed in order of offset, each at its lowest offset: on 0 or on top
//! of another piece. Some packing of least height is canonical. A node of the search places one piece; the
//! rules by which nodes are left out are in the parent module. All bookkeeping is incremental: what a
//! placement changes is written to a trail and taken back from there.

mod board;
mod jump;

use super::instance::Instance;
use crate::place::arena::ids;
use crate::place::rank::{Order, scaled};

/// What a search may do besides; neither is always worth its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Count the gaps under pieces that start well above the floor of a section.
    pub(crate) stairs: bool,
    /// Branch where a section has not a byte to spare.
    pub(crate) pivots: bool,
    /// Go back to what lies where it failed, past what does not.
    pub(crate) jumps: bool,
    /// Branch also where a section has this many 1024ths of the capacity to spare.
    pub(crate) spare: u64,
}

/// How a run of a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Offsets, indexed as [`Instance::names`].
    Found(Vec<u64>),
    /// No packing is within the capacity.
    Infeasible,
    /// The allowance is used up.
    Open,
    /// Given up without having tried everything.
    GivenUp,
}

/// What a trail entry takes back.
#[derive(Clone, Copy, Debug)]
enum Undo {
    /// The lowest offset of a piece.
    Rest(u32, u64),
    /// The proved lowest offset of a piece.
    Low(u32, u64),
    /// The floor of a section.
    Floor(u32, u64),
    /// A piece was placed.
    Place(u32),
    /// The rank of a piece.
    Rank(u32, u32),
}

/// A choice point: candidates of one part, or a part that fell into independent parts.
#[derive(Clone, Debug)]
struct Frame {
    /// Sections of the part.
    part: (u32, u32),
    /// Candidates, or parts, still to be tried: `pool[next..end]`.
    next: usize,
    end: usize,
    /// Length of the trail before the current candidate.
    trail: usize,
    /// Index of the innermost enclosing split frame.
    split: usize,
    /// Whether it is the first frame of its part.
    root: bool,
    /// If the candidates are all that can be lowest in some section: what its placements go on from.
    pivot: Option<(u64, u32)>,
    /// The sections at which its candidates have failed.
    failed: Vec<u64>,
}

const NONE: usize = usize::MAX;
/// Among candidates: that none of them is lowest.
const NOBODY: u32 = u32::MAX;

/// A depth-first search that can be continued.
#[derive(Clone, Debug)]
pub(crate) struct Search<'a> {
    inst: &'a Instance,
    order: Order,
    /// Factors, in 1024ths, to the first key of each piece; empty: 1.
    noise: Vec<u32>,
    rank: Vec<u32>,
    capacity: u64,
    /// Lowest offset each piece can rest at.
    rest: Vec<u64>,
    /// Proved lowest offset of each piece: `rest`, or more where that was passed over.
    low: Vec<u64>,
    placed: Vec<bool>,
    /// Lowest `low` of the unplaced pieces of each section.
    floor: Vec<u64>,
    /// Bytes of the unplaced pieces of each section.
    total: Vec<u64>,
    /// Unplaced pieces across the border between a section and the next.
    cuts: Vec<u32>,
    /// Unplaced pieces of each section first; `active` of them.
    members: Vec<Vec<u32>>,
    active: Vec<u32>,
    /// Position of a piece in the member list of each of its sections.
    position: Vec<u32>,
    trail: Vec<Undo>,
    frames: Vec<Frame>,
    /// Candidates as (piece, 0) and parts as (first, last) of all frames.
    pool: Vec<(u32, u32)>,
    scratch: Vec<(u64, u32, u32)>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    habits: Habits,
    stack: Vec<(u64, u64)>,
    state: State,
    /// Sections of the latest failure, a bit each.
    why: Vec<u64>,
    /// Whether something was left out that might have been of use.
    jumped: bool,
    /// Failures of each section.
    pub(crate) blame: Vec<u64>,
    /// Nodes so far.
    pub(crate) nodes: u64,
    /// Work so far, about a nanosecond each.
    pub(crate) work: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Descend into the part of the top frame's latest placement.
    Enter {
        part: (u32, u32),
        last: (u64, u32),
        split: usize,
        root: bool,
    },
    /// Try the next candidate of the top frame.
    Next,
    Done(bool),
}

impl<'a> Search<'a> {
    /// A search that has not started yet.
    pub(crate) fn new(
        inst: &'a Instance,
        order: Order,
        capacity: u64,
        noise: Vec<u32>,
        blame: Vec<u64>,
        habits: Habits,
    ) -> Search<'a> {
        let n = inst.len();
        let sections = inst.members.len();
        let rest = inst.start.clone();
        let floor = inst
            .members
            .iter()
            .map(|members| members.iter().map(|&piece| rest[piece as usize]).min().unwrap_or(0))
            .collect();
        let mut cuts = vec![0u32; sections];
        let mut position = vec![0u32; inst.pairs];
        for piece in 0..n {
            for border in inst.lo[piece]..inst.hi[piece] - 1 {
                cuts[border as usize] += 1;
            }
        }
        for (section, members) in (0u32..).zip(&inst.members) {
            for (at, &piece) in (0u32..).zip(members) {
                position[(inst.base[piece as usize] + section - inst.lo[piece as usize]) as usize] = at;
            }
        }
        let active = inst.members.iter().map(|members| u32::try_from(members.len()).unwrap_or(0)).collect();
        let too_much = inst.load.iter().any(|&load| load > capacity);
        let all = (0, u32::try_from(sections).unwrap_or(u32::MAX));
        Search {
            inst,
            order,
            noise,
            rank: vec![0; n],
            capacity,
            low: rest.clone(),
            rest,
            placed: vec![false; n],
            floor,
            total: inst.load.clone(),
            cuts,
            members: inst.members.clone(),
            active,
            position,
            trail: Vec::new(),
            frames: Vec::new(),
            pool: Vec::new(),
            scratch: Vec::new(),
            touched: Vec::new(),
            is_touched: vec![false; sections],
            habits,
            stack: Vec::new(),
            state: if n == 0 {
                State::Done(true)
            } else if too_much {
                State::Done(false)
            } else {
                State::Enter { part: all, last: (0, 0), split: NONE, root: true }
            },
            why: vec![0; sections.div_ceil(64)],
            jumped: false,
            blame,
            nodes: 0,
            work: 0,
        }
    }

    /// Goes on for at most `allowance` nodes.
    pub(crate) fn run(&mut self, allowance: u64) -> Outcome {
        let until = self.nodes.saturating_add(allowance);
        loop {
            match self.state {
                State::Done(true) => return Outcome::Found(self.rest.clone()),
                State::Done(false) if self.jumped => return Outcome::GivenUp,
                State::Done(false) => return Outcome::Infeasible,
                _ if self.nodes >= until => return Outcome::Open,
                State::Enter { part, last, split, root } => self.enter(part, last, split, root),
                State::Next => self.next(),
            }
        }
    }

    /// Opens a frame for `part`, or one for the parts it has fallen into, or finds it done.
    fn enter(&mut self, part: (u32, u32), last: (u64, u32), split: usize, root: bool) {
        if !self.inst.splits {
            if self.placed.iter().all(|&placed| placed) {
                self.state = State::Done(true);
            } else {
                self.candidates(part, last, split, root);
            }
            return;
        }
        let start = self.pool.len();
        let mut first = part.0;
        let mut any = false;
        for border in part.0..part.1 {
            any |= self.active[border as usize] > 0;
            if border + 1 == part.1 || self.cuts[border as usize] == 0 {
                if any {
                    self.pool.push((first, border + 1));
                }
                (first, any) = (border + 1, false);
            }
        }
        match self.pool.len() - start {
            0 => self.solved(split),
            1 => {
                let part = self.pool[start];
                self.pool.truncate(start);
                self.candidates(part, last, split, root);
            }
            _ => {
                let (end, trail) = (self.pool.len(), self.trail.len());
                let failed = Vec::new();
                self.frames.push(Frame { part, next: start, end, trail, split, root, pivot: None, failed });
                self.solved(self.frames.len() - 1);
            }
        }
    }

    /// A part is done: goes on with the next part of the split it belongs to.
    fn solved(&mut self, mut split: usize) {
        while split != NONE {
            let frame = &mut self.frames[split];
            if frame.next < frame.end {
                let part = self.pool[frame.next];
                frame.next += 1;
                self.state = State::Enter { part, last: (0, 0), split, root: true };
                return;
            }
            split = frame.split;
        }
        self.state = State::Done(true);
    }

    /// Ranks the unplaced pieces of a part by what is left in it.
    fn rerank(&mut self, from: usize, to: usize) {
        let mut left: Vec<u32> = ids(to);
        left.retain(|&piece| piece as usize >= from && !self.placed[piece as usize]);
        left.sort_by_cached_key(|&piece| {
            let (inst, at) = (self.inst, piece as usize);
            let mut key = self.order.key((inst.lo[at], inst.hi[at]), inst.size[at], &self.total, &self.blame);
            if let Some(&noise) = self.noise.get(at) {
                let noisy = self.order.noisy_key();
                key[noisy] = scaled(key[noisy], noise);
            }
            std::cmp::Reverse(key)
        });
        for (rank, &piece) in (0u32..).zip(&left) {
            self.trail.push(Undo::Rank(piece, self.rank[piece as usize]));
            self.rank[piece as usize] = rank;
        }
    }

    /// Collects what may be placed next in `part`.
    fn candidates(&mut self, part: (u32, u32), last: (u64, u32), split: usize, root: bool) {
        let inst = self.inst;
        let from = inst.lo.partition_point(|&lo| lo < part.0);
        let to = inst.lo.partition_point(|&lo| lo < part.1);
        if root {
            self.rerank(from, to);
        }
        self.work += (to - from) as u64;
        self.scratch.clear();
        let mut ceiling = u64::MAX;
        let mut fits = true;
        for (piece, index) in (from..to).zip(u32::try_from(from).unwrap_or(u32::MAX)..) {
            if self.placed[piece] {
                continue;
            }
            let (rest, rank) = (self.rest[piece], self.rank[piece]);
            ceiling = ceiling.min(rest.saturating_add(inst.size[piece]));
            if (rest, rank) >= last {
                // One that was passed over here will not lie here.
                if rest < ceiling && self.low[piece] <= rest {
                    self.scratch.push((rest, rank, index));
                }
            } else if fits && self.low[piece] <= last.0 {
                fits = self.defer(index, last.0);
                if !fits {
                    self.because_of(index);
                }
            }
        }
        fits = self.settle(fits);
        if !fits {
            self.note();
            self.state = State::Next;
            return;
        }
        self.scratch.retain(|&(rest, ..)| rest < ceiling);
        let section = if self.habits.pivots { self.pivot(part, ceiling) } else { None };
        let pivot = section.map(|section| {
            let (section, floor) = (u32::try_from(section).unwrap_or(u32::MAX), self.floor[section]);
            let inside = |piece: usize| inst.lo[piece] <= section && section < inst.hi[piece];
            self.scratch.retain(|&(rest, _, piece)| rest == floor && inside(piece as usize));
            last
        });
        self.scratch.sort_unstable();
        let next = self.pool.len();
        let from_pool = u32::try_from(next).unwrap_or(u32::MAX);
        self.pool.extend(self.scratch.iter().map(|&(.., piece)| (piece, 0)));
        if section.is_some_and(|section| self.floor[section] + self.total[section] < self.capacity) {
            self.pool.push((NOBODY, from_pool));
        }
        let (end, trail) = (self.pool.len(), self.trail.len());
        let failed = if self.habits.jumps { vec![0; self.why.len()] } else { Vec::new() };
        self.frames.push(Frame { part, next, end, trail, split, root, pivot, failed });
        self.state = State::Next;
    }

    /// Takes back the top frame's placement and makes its next one.
    fn next(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            self.state = State::Done(false);
            return;
        };
        let mark = frame.trail;
        if frame.next == frame.end {
            self.fail();
            return;
        }
        let piece = self.pool[frame.next].0;
        frame.next += 1;
        let (part, split, end, pivot) = (frame.part, frame.split, frame.end, frame.pivot);
        let index = self.frames.len() - 1;
        self.take_back(mark);
        self.nodes += 1;
        self.work += 100 + u64::from(part.1 - part.0) / 2;
        if piece == NOBODY {
            let from = self.pool[end - 1].1 as usize;
            let last = pivot.unwrap_or_default();
            if self.nobody(from..end - 1, last.0) {
                self.state = State::Enter { part, last, split, root: false };
            }
            return;
        }
        let offset = self.rest[piece as usize];
        let last = pivot.unwrap_or((offset, self.rank[piece as usize]));
        if !self.place(piece, offset, last.0, part) {
            self.note();
            return;
        }
        if self.inst.conflicts.row(piece as usize).iter().all(|&other| self.placed[other as usize]) {
            // Nothing lies on it: what its siblings can do can be done with it in place.
            self.frames[index].next = end;
        }
        self.state = State::Enter { part, last, split, root: false };
    }

    /// The top frame has failed. With the first frame of a part fails the split it belongs to, for what the
    /// parts before it have found does not matter to it.
    fn fail(&mut self) {
        let mut top = self.frames.len() - 1;
        while self.frames[top].root && self.frames[top].split != NONE {
            top = self.frames[top].split;
        }
        top = self.jump(top);
        self.take_back(self.frames[top].trail);
        self.frames.truncate(top);
        self.pool.truncate(self.frames.last().map_or(0, |frame| frame.end));
    }

    /// The section with the fewest pieces that can be lowest in it, of those that have not a byte to spare:
    /// there one of them must lie on the floor. Only sections with a floor below `ceiling`, where nothing
    /// can go beneath.
    fn pivot(&mut self, part: (u32, u32), ceiling: u64) -> Option<usize> {
        let spare = self.capacity / 1024 * self.habits.spare;
        let (mut best, mut fewest) = (None, usize::MAX);
        for section in part.0 as usize..part.1 as usize {
            let active = self.active[section] as usize;
            let floor = self.floor[section];
            let end = floor + self.total[section];
            if active == 0 || floor >= ceiling || end > self.capacity || self.capacity - end > spare {
                continue;
            }
            self.work += active as u64;
            let members = self.members[section][..active].iter();
            let count = members.clone().filter(|&&piece| self.low[piece as usize] == floor).count();
            if end < self.capacity
                && members.filter(|&&piece| self.rest[piece as usize] == floor).count() < count
            {
                continue; // One of them will rest on a piece yet to come.
            }
            // That none of them is lowest is a branch, too, and none that leads far.
            let count = 2 * count + if end < self.capacity { 3 } else { 0 };
            if count < fewest {
                (best, fewest) = (Some(section), count);
                if count <= 2 {
                    break;
                }
            }
        }
        best
    }
}
