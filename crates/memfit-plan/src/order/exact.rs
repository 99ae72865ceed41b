//! The smallest peak of a part, by flooding the sets of done ops at a rising water level.
//!
//! A state is the set of ops that have run: what is live depends on nothing else. All states that can be
//! reached without rising above a level are visited, depth first; if the last is not among them, the level
//! rises to the least hill that was in the way. So the level is a proved lower bound all the time, and the
//! peak when the last state is reached. Source: Serenity (Ahn et al., "Ordering Chaos", MLSys 2020, §3),
//! dynamic programming over zero-indegree sets with a soft budget that is searched for; we raise the level
//! instead of restarting, and leave out most states by *safe* moves: where a run of ops, each opened by the
//! one before, returns to no more live bytes than where it began without rising above the level, it is run at
//! once and nothing else is tried. That loses nothing. Live bytes are a submodular function of the set of done
//! ops: between the ends of the run only its prefixes are states, none lower than its end, so every
//! continuation stays as good with the run moved to its front. This is what makes Liu's hill and valley
//! segments (SIAM J. Algebraic Discrete Methods 8, 1987) optimal on trees, applied wherever it holds.
//!
//! Exact, also with in-place takeovers (which only grow with the set of done ops), if it ends within
//! the work it is allowed; else the level is returned. Time O(states × ready ops × operands), space O(states × ops).
//! Ties: the first path found, the op that leaves least first. The wrong choice for wide parts without valleys:
//! the states are exponential in the width.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::part::{Part, Set, WIDEST};

/// What a search has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A path of indices with the smallest peak, or one that does not rise above where the level started.
    Best { path: Vec<usize>, work: usize },
    /// The smallest peak is at least this.
    AtLeast { level: i64, work: usize },
}

impl Found {
    /// What it took, as in [`Limits::work`].
    pub(super) fn work(&self) -> usize {
        let (Found::Best { work, .. } | Found::AtLeast { work, .. }) = self;
        *work
    }

    /// Whether the search was given up before it had shown anything about peaks below `below`.
    pub(super) fn capped(&self, below: i64) -> bool {
        matches!(self, Found::AtLeast { level, .. } if *level < below)
    }
}

/// How far a search goes.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// Where the level starts: no lower peak is of interest, or none is possible.
    pub(super) from: i64,
    /// Peaks from here on are of no interest.
    pub(super) below: i64,
    /// The most times that the cost of an op after a set of ops is asked: about 20 ns each.
    pub(super) work: usize,
    /// Asked now and then.
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// A state, in the order of discovery.
#[derive(Clone, Copy)]
struct State<const W: usize> {
    done: Set<W>,
    ready: Set<W>,
    live: i64,
    /// The state before, and where the path from it ends in the list of all paths.
    before: usize,
    path: usize,
    /// Hills up to here have been tried.
    tried: i64,
}

/// Searches `part` for its smallest peak.
pub(super) fn search(part: &Part, limits: Limits<'_>) -> Found {
    match part.ops.len() {
        0..=128 => flood::<2>(part, limits),
        129..=256 => flood::<4>(part, limits),
        257..=512 => flood::<8>(part, limits),
        513..=1024 => flood::<16>(part, limits),
        _ => flood::<{ WIDEST / 64 }>(part, limits),
    }
}

fn flood<const W: usize>(part: &Part, limits: Limits<'_>) -> Found {
    let mut flood: Flood<'_, W> = Flood {
        part,
        states: Vec::new(),
        paths: Vec::new(),
        seen: HashMap::default(),
        level: limits.from,
        work: 0,
    };
    let mut open: Vec<(usize, usize)> = Vec::new(); // States and their next op.
    let mut dams: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new(); // Least untried hill of a state.
    let start =
        State { done: Set::EMPTY, ready: part.first(), live: part.live, before: 0, path: 0, tried: i64::MIN };
    let Some(start) = flood.visit(start) else {
        return Found::AtLeast { level: limits.from, work: 0 };
    };
    let mut fresh = Some(start);
    for turn in 1usize.. {
        if let Some(state) = fresh.take() {
            if flood.states[state].ready == Set::EMPTY {
                return Found::Best { path: flood.path(state), work: flood.work };
            }
            if let Some(hill) = flood.spread(state, &mut open) {
                dams.push(Reverse((hill, state)));
            }
        }
        if flood.work > limits.work
            || flood.states.len() * size_of::<State<W>>() > MOST_BYTES
            || (turn.is_multiple_of(256) && (limits.stop)())
        {
            return flood.at_least(flood.level);
        }
        if let Some((state, at)) = open.pop() {
            let before = flood.states[state];
            flood.paths.truncate(flood.end());
            let next = flood.step(before, at);
            fresh = flood.visit(State { before: state, ..next });
            continue;
        }
        let Some(Reverse((hill, state))) = dams.pop() else { return flood.at_least(flood.level) };
        if hill >= limits.below {
            return flood.at_least(limits.below);
        }
        flood.level = flood.level.max(hill);
        fresh = Some(state);
    }
    flood.at_least(flood.level)
}

struct Flood<'p, const W: usize> {
    part: &'p Part,
    states: Vec<State<W>>,
    paths: Vec<u16>,
    seen: HashMap<Set<W>, (), BuildHasherDefault<Mix>>,
    level: i64,
    work: usize,
}

impl<const W: usize> Flood<'_, W> {
    fn at_least(&self, level: i64) -> Found {
        Found::AtLeast { level, work: self.work }
    }

    fn cost(&mut self, done: &Set<W>, at: usize) -> (i64, i64) {
        self.work += 1;
        self.part.cost(done, at)
    }

    /// Where the paths of all states end.
    fn end(&self) -> usize {
        self.states.last().map_or(0, |state| state.path)
    }

    /// The state after op `at`, whose hill is below the level. Notes the op on the path.
    fn step(&mut self, state: State<W>, at: usize) -> State<W> {
        self.work += W / 8; // Sets are copied.
        let done = state.done.with(at);
        let ready = self.part.opened(&done, at).fold(state.ready.without(at), Set::with);
        let live = state.live + self.cost(&state.done, at).1;
        #[allow(clippy::cast_possible_truncation, reason = "a part has at most 2048 ops")]
        self.paths.push(at as u16);
        State { done, ready, live, ..state }
    }

    /// Makes all safe moves, then names the state, unless it is known.
    fn visit(&mut self, mut state: State<W>) -> Option<usize> {
        while let Some((first, length)) =
            state.ready.members().find_map(|at| Some((at, self.safe(state, at)?)))
        {
            let mut at = first;
            for moves in (0..length).rev() {
                state = self.step(state, at);
                if moves > 0 {
                    at = self.follow(state, at)?;
                }
            }
        }
        if self.seen.insert(state.done, ()).is_some() {
            return None;
        }
        self.states.push(State { path: self.paths.len(), tried: i64::MIN, ..state });
        Some(self.states.len() - 1)
    }

    /// The number of ops in the run that begins with `first` and comes back to no more than is live now.
    fn safe(&mut self, state: State<W>, first: usize) -> Option<usize> {
        let (mut now, mut at) = (state, first);
        let path = self.paths.len();
        let mut length = None;
        for moves in 1..=LONGEST_RUN {
            if now.live + self.cost(&now.done, at).0 > self.level {
                break;
            }
            now = self.step(now, at);
            if now.live <= state.live {
                length = Some(moves);
                break;
            }
            match self.follow(now, at) {
                Some(next) => at = next,
                None => break,
            }
        }
        self.paths.truncate(path);
        length
    }

    /// The op that continues a run after `at`: of those it has opened, the one that leaves least.
    fn follow(&mut self, state: State<W>, at: usize) -> Option<usize> {
        let opened: Vec<usize> = self.part.opened(&state.done, at).collect();
        opened.into_iter().min_by_key(|&next| (self.cost(&state.done, next).1, next))
    }

    /// Opens all ways out of a state that lie below the level and were not tried; the least hill above it.
    fn spread(&mut self, state: usize, open: &mut Vec<(usize, usize)>) -> Option<i64> {
        let State { done, ready, live, tried, .. } = self.states[state];
        let mut ways: Vec<(i64, usize)> = Vec::new();
        let mut dam: Option<i64> = None;
        for at in ready.members() {
            let (needs, leaves) = self.cost(&done, at);
            let hill = live + needs;
            if hill > self.level {
                dam = Some(dam.map_or(hill, |least| least.min(hill)));
            } else if hill > tried {
                ways.push((leaves, at));
            }
        }
        self.states[state].tried = self.level;
        ways.sort_unstable_by_key(|&way| Reverse(way)); // The last one is taken first.
        open.extend(ways.iter().map(|&(_, at)| (state, at)));
        dam
    }

    /// The path from the start to `state`.
    fn path(&self, mut state: usize) -> Vec<usize> {
        let mut path = Vec::new();
        loop {
            let from = if state == 0 { 0 } else { self.states[state - 1].path };
            path.extend(self.paths[from..self.states[state].path].iter().rev().map(|&at| usize::from(at)));
            if state == 0 {
                break;
            }
            state = self.states[state].before;
        }
        path.reverse();
        path
    }
}

/// What states may take of memory.
const MOST_BYTES: usize = 500_000_000;

/// The longest run that is looked at for a safe move.
const LONGEST_RUN: usize = 24;

/// Hashes sets of ops: they are no adversary's choice.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.0 ^= self.0 >> 29;
        }
    }
}
