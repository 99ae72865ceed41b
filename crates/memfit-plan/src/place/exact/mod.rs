//! Branch and bound over canonical packings, with restarts over orders of preference.
//!
//! Source: Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"
//! (ASPLOS 2023, doi 10.1145/3623278.3624752): offsets never decrease along a branch; a piece is not placed
//! at or above the lowest place another could end at; what is left of a section must fit above its floor;
//! parts that no unplaced piece connects are solved one by one; where nothing rests on a piece its siblings
//! are not tried. We differ in that
//! - a piece that is passed over where it rests will rest on a piece yet to come, so its proved offset rises
//!   at once to the lowest such end, and with it the floors of its sections;
//! - bookkeeping is incremental, nothing is sorted or scanned but the candidates of a node;
//! - where a section has little to spare, the search branches on what can lie on its floor, or that nothing does;
//! - half of the searches jump: from where a section failed they go back to the last piece that lies in it. They
//!   find, and prove nothing;
//! - orders are not run to the end but restarted with growing limits and noise, since how long an order
//!   takes is a matter of luck with a heavy tail; one order learns which sections failed before;
//! - what is live throughout lies beneath everything else, and is left out of the search;
//! - the capacity is searched from both sides: each round tries the bound and a height between it and the
//!   lowest packing known, which moves towards the one that was of use.
//!
//! Guarantee: given enough effort the height is least, and proved so; the bound is always proved. Exponential
//! time; O(pairs of pieces that meet) space. Ties: the earliest task of a round wins, and tasks after it are
//! left out of account, so that the result does not depend on the number of threads. Wrong choice beyond a
//! few thousand pieces that meet each other: see `best/`.

mod instance;
mod search;

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

pub(crate) use instance::{Instance, Part};
use search::{Habits, Outcome, Search};

use super::arena::{Arena, Does, Packing, place};
use super::rank::{Order, noise};
use super::{Placement, Placer, Problem, Unplaced, descent};
use crate::{Context, Info};

/// Branch and bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Work at effort 1, about a nanosecond each.
    pub work: u64,
}

impl Exact {
    /// About half a second.
    pub const DEFAULT: Exact = Exact { work: 400_000_000 };
}

impl Placer for Exact {
    fn info(&self) -> Info {
        Info {
            name: "exact",
            summary: "branch and bound over canonical packings, with restarts",
            source: "after Moffitt, MiniMalloc, ASPLOS 2023",
            year: 2023,
        }
    }

    fn is_quick(&self) -> bool {
        false
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| {
            Ok(match arena.above() {
                Some(above) => above.lift(arena, &self.pack(&above.arena, context)),
                None => self.pack(arena, context),
            })
        })
    }
}

impl Exact {
    fn pack(self, arena: &Arena, context: &Context<'_>) -> Packing {
        let mut best = descent::start(arena, context.stop);
        let budget = worth(arena, &best, self.work, context.effort);
        // Each node then looks at every piece that is kept apart as well.
        let budget = if arena.apart.rows() == 0 { budget } else { budget / 64 };
        improve(arena, &mut best, budget, context.seed, context);
        best
    }
}

/// The work that `best` is worth at `effort`: all of `work`, or at effort 1 as much less as it is already
/// within 1 % of what is enough, but not less than an eighth.
pub(crate) fn worth(arena: &Arena, best: &Packing, work: u64, effort: u32) -> u64 {
    let target = arena.enough.max(best.bound).max(1);
    let gap = u128::from(best.height.saturating_sub(target));
    let share = (gap * 800 / u128::from(target)).clamp(1, 8);
    let eighths = if effort == 1 { u64::try_from(share).unwrap_or(8) } else { 8 };
    (work / 8 * eighths).saturating_mul(u64::from(effort))
}

/// Lowers `best` part by part; parts are what no piece connects. Raises its bound where that is proved.
/// Returns the work it took.
pub(crate) fn improve(
    arena: &Arena,
    best: &mut Packing,
    budget: u64,
    seed: u64,
    context: &Context<'_>,
) -> u64 {
    let mut parts = parts(arena);
    let height = |part: &Vec<u32>, offsets: &[u64]| {
        part.iter()
            .map(|&piece| offsets[piece as usize].saturating_add(arena.pieces[piece as usize].size))
            .max()
    };
    parts.sort_by_key(|part| std::cmp::Reverse(height(part, &best.offsets)));
    let mut spent = 0;
    for part in parts {
        let high = height(&part, &best.offsets).unwrap_or(0);
        if high <= arena.enough || high <= best.bound {
            continue;
        }
        let inst = Instance::new(
            arena,
            part.iter().map(|&piece| (Some(piece), arena.pieces[piece as usize], 0)).collect(),
        );
        let goal = Goal {
            low: best.bound,
            enough: arena.enough.max(best.bound),
            high,
            budget: budget.saturating_sub(spent),
            seed,
        };
        let result = solve(&inst, goal, context.stop);
        spent += result.work;
        best.bound = best.bound.max(result.bound);
        if let Some(offsets) = result.offsets {
            for (name, offset) in inst.names.iter().zip(offsets).filter_map(|(&name, at)| Some((name?, at))) {
                best.offsets[name as usize] = offset;
            }
        }
    }
    let lowered = arena.packing(std::mem::take(&mut best.offsets));
    *best = Packing { bound: best.bound, ..lowered };
    spent
}

/// The pieces that are connected by meeting each other, in order of time.
pub(crate) fn parts(arena: &Arena) -> Vec<Vec<u32>> {
    if arena.apart.rows() > 0 {
        return vec![arena.ids()];
    }
    let mut order = arena.ids();
    order.sort_by_key(|&piece| arena.pieces[piece as usize].lo);
    let mut parts: Vec<Vec<u32>> = Vec::new();
    let mut until = 0;
    for index in order {
        let piece = &arena.pieces[index as usize];
        match parts.last_mut() {
            Some(part) if piece.lo < until => part.push(index),
            _ => parts.push(vec![index]),
        }
        until = until.max(piece.hi);
    }
    parts
}

/// What a search is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Proved: nothing is lower.
    pub(crate) low: u64,
    /// Where to stop, not below `low`.
    pub(crate) enough: u64,
    /// Height known to be possible.
    pub(crate) high: u64,
    /// Work allowed.
    pub(crate) budget: u64,
    /// Start of the noise.
    pub(crate) seed: u64,
}

/// What a search has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Offsets of less height than was known, indexed as [`Instance::names`].
    pub(crate) offsets: Option<Vec<u64>>,
    /// Proved: nothing is lower.
    pub(crate) bound: u64,
    /// Work done.
    pub(crate) work: u64,
}

/// One search of a round.
struct Task {
    order: Order,
    capacity: u64,
    noise: u32,
    habits: Habits,
}

const ORDERS: [Order; 8] =
    [Order::Atw, Order::Birth, Order::Twa, Order::Taw, Order::Wat, Order::Blame, Order::Size, Order::Death];

/// Work that a search may do in any case: some ten ms.
const LEAST: u64 = 20_000_000;

/// Nodes between two looks at what a search has taken.
const NODES: u64 = 256;

/// Slack of a section, in 1024ths of the capacity, up to which it is branched on.
const SPARE: u64 = 32;

/// Noise of the rounds in percent; the first round has none.
const NOISE: [u32; 4] = [10, 30, 5, 50];

/// Looks for a packing of `inst` as low as the goal wants.
pub(crate) fn solve(inst: &Instance, goal: Goal, stop: &(dyn Fn() -> bool + Sync)) -> Found {
    let mut found = Found { bound: goal.low, ..Found::default() };
    let mut high = goal.high;
    let mut limit = (4 * inst.len() as u64).max(2000);
    let mut blame = vec![0u64; inst.sections()];
    let mut halvings = 1; // the trial height is this many halvings of the gap below `high`
    for round in 0u64.. {
        let target = goal.enough.max(found.bound);
        if high <= target || found.work >= goal.budget || stop() {
            break;
        }
        let trial = high - ((high - target) >> halvings).max(1);
        let noise = if round == 0 { 0 } else { NOISE[(round % 4) as usize] };
        let habits = |at: usize| {
            let at = at as u64;
            Habits {
                stairs: round % 2 == 1,
                pivots: (at + round).is_multiple_of(2),
                jumps: (at / 2 + round).is_multiple_of(2),
                spare: if (at + round / 2).is_multiple_of(2) { SPARE } else { 0 },
            }
        };
        let mut tasks: Vec<Task> = ORDERS
            .iter()
            .enumerate()
            .map(|(at, &order)| Task { order, capacity: target, noise, habits: habits(at) })
            .collect();
        if trial > target {
            let some = ORDERS.iter().enumerate().filter(|(at, _)| (*at as u64 + round).is_multiple_of(2));
            tasks.extend(some.map(|(at, &order)| Task { order, capacity: trial, noise, habits: habits(at) }));
        }
        // A round of wide pieces may be worth many times the budget: each search has its share of what is left.
        let left = goal.budget.saturating_sub(found.work).max(goal.budget / 4);
        let most = Most { nodes: limit, work: (left / tasks.len() as u64).max(LEAST) };
        let first = AtomicUsize::new(usize::MAX);
        let runs: Vec<Run> = tasks
            .par_iter()
            .enumerate()
            .map(|(at, task)| {
                let seed = goal.seed.wrapping_add(round << 8).wrapping_add(at as u64);
                let cut = || first.load(Ordering::Relaxed) < at || stop();
                let run = task.run(inst, most, &blame, seed, &cut);
                if matches!(run.outcome, Outcome::Found(_)) {
                    first.fetch_min(at, Ordering::Relaxed);
                }
                run
            })
            .collect();
        let mut helped = false;
        for (task, run) in tasks.iter().zip(runs) {
            found.work += run.work;
            for (sum, failures) in blame.iter_mut().zip(run.blame) {
                *sum += failures;
            }
            match run.outcome {
                Outcome::Found(offsets) => {
                    let ends = offsets.iter().zip(&inst.size).map(|(&offset, &size)| offset + size);
                    high = ends.max().unwrap_or(0);
                    found.offsets = Some(offsets);
                    helped = true;
                    break; // those after it may have been cut short
                }
                Outcome::Infeasible if task.capacity < high => {
                    found.bound = found.bound.max(task.capacity + 1);
                    helped |= task.capacity == trial;
                }
                _ => {}
            }
        }
        halvings = if helped { 1 } else { (halvings + 1).min(63) };
        blame.iter_mut().for_each(|failures| *failures -= *failures / 2);
        limit += limit / 5;
    }
    found
}

/// Tries once to pack `inst` within `capacity` in at most `limit` nodes. Returns the offsets, indexed as
/// [`Instance::names`], and the work it took.
pub(crate) fn attempt(
    inst: &Instance,
    order: Order,
    capacity: u64,
    limit: u64,
    seed: u64,
    cut: &dyn Fn() -> bool,
) -> (Option<Vec<u64>>, u64) {
    let habits = Habits { stairs: seed & 4 == 0, pivots: seed & 8 == 0, jumps: false, spare: 0 };
    let task = Task { order, capacity, noise: NOISE[(seed % 4) as usize], habits };
    let most = Most { nodes: limit, work: u64::MAX };
    let run = task.run(inst, most, &vec![0; inst.sections()], seed, cut);
    match run.outcome {
        Outcome::Found(offsets) => (Some(offsets), run.work),
        _ => (None, run.work),
    }
}

/// How a task went.
struct Run {
    outcome: Outcome,
    blame: Vec<u64>,
    work: u64,
}

/// What a search may take.
#[derive(Clone, Copy, Debug)]
struct Most {
    nodes: u64,
    work: u64,
}

impl Task {
    fn run(&self, inst: &Instance, most: Most, blame: &[u64], seed: u64, cut: &dyn Fn() -> bool) -> Run {
        let noise = if self.noise == 0 { Vec::new() } else { noise(inst.len(), self.noise, seed) };
        let mut search = Search::new(inst, self.order, self.capacity, noise, blame.to_vec(), self.habits);
        let mut outcome = Outcome::Open;
        while outcome == Outcome::Open && search.nodes < most.nodes && search.work < most.work && !cut() {
            outcome = search.run(NODES.min(most.nodes - search.nodes));
        }
        for (failures, before) in search.blame.iter_mut().zip(blame) {
            *failures -= before;
        }
        Run { outcome, work: search.work, blame: search.blame }
    }
}
