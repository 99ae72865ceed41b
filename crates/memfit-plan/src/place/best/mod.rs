//! The best of many, then search, until nothing lower is possible or the effort is spent.
//!
//! What is live throughout lies beneath everything else. Above it, the ladder: online best fit; the canonical dives; buffers that fit
//! together without a gap as one (`blocks.rs`); branch and bound on each independent part, where all are small enough (`exact/`); then, in turns that double, dives with noisy orders, large-neighbourhood search
//! (`windows.rs`), other blocks and branch and bound with other noise; where the bound was not met, every other placer that is quick enough, so that `best` is
//! never above any of them.
//!
//! Source: ours; the parts name theirs. Guarantee: never above the sum of all sizes; never above any other
//! placer up to 2,000 buffers (any number for those that need no quadratic time), `exact` only at efforts up to 8; with enough effort least
//! for small problems; the bound is always proved. Time: what the effort allows, at least O(n log n). Space
//! O(n), and pairs for parts of up to 3,000 buffers. Ties go to what was found first. Deterministic for a
//! seed and an effort on any machine and any number of threads, unless `stop` cuts it short. Wrong choice
//! where a plan must be made while the program runs: see `best_fit.rs`.

mod blocks;
mod windows;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::rank::{Order, Random, noise};
use super::{
    Exact, HillClimb, Placement, Placer, Problem, RefCount, Stack, Unplaced, descent, exact,
    greedy_by_breadth, greedy_by_size, heap, largest_first, push_down, size_or_duration_first,
};
use crate::{Context, Info};

/// The default portfolio and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Work of the search at effort 1, about a nanosecond each.
    pub work: u64,
    /// Most pieces of a part that branch and bound is tried on as a whole.
    pub exact_pieces: usize,
}

impl Best {
    /// A quarter of a second, besides branch and bound's own half second.
    pub const DEFAULT: Best = Best { work: 250_000_000, exact_pieces: 3000 };
}

impl Placer for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "the lowest of many, then search until it cannot be lower or the effort is spent",
            source: "memfit",
            year: 2026,
        }
    }

    fn is_quick(&self) -> bool {
        false
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(self.pack(arena, context)))
    }
}

/// Most of the effort that goes into one search of the whole before windows have their turn.
const MOST_EFFORT: u32 = 8;

/// Work on blocks at effort 1, before branch and bound on the pieces.
const BLOCKS: u64 = Exact::DEFAULT.work / 4;

/// Noise of the dives in percent.
const NOISE: [u32; 3] = [10, 30, 3];

impl Best {
    fn pack(self, arena: &Arena, context: &Context<'_>) -> Packing {
        let above = arena.above();
        let mut best = match &above {
            Some(above) => above.lift(arena, &self.searched(&above.arena, context)),
            None => self.searched(arena, context),
        };
        if best.height > arena.enough.max(best.bound) {
            if above.is_some() {
                keep(&mut best, descent::start(arena, context.stop));
            }
            floor(arena, &mut best, context);
        }
        best
    }

    fn searched(self, arena: &Arena, context: &Context<'_>) -> Packing {
        let mut best = descent::start(arena, context.stop);
        let budget = self.work.saturating_mul(u64::from(context.effort));
        self.search(arena, &mut best, budget, context);
        best
    }

    /// Noisy dives, branch and bound, and windows in turns that double.
    fn search(self, arena: &Arena, best: &mut Packing, budget: u64, context: &Context<'_>) {
        let stop = context.stop;
        // Branch and bound looks at every piece that is kept apart at every node: not where there are many.
        let few = arena.apart.rows() == 0 || arena.len() <= 64;
        let small = few
            && exact::parts(arena).iter().all(|part| {
                let widths = part.iter().map(|&piece| u64::from(arena.pieces[piece as usize].width()));
                part.len() <= self.exact_pieces && widths.sum::<u64>() <= 2_000_000
            });
        let plain = arena.apart.rows() == 0 && arena.pins.is_empty();
        let mut built = best.clone();
        if plain && small && best.height > arena.enough {
            let budget = exact::worth(arena, best, BLOCKS, context.effort.min(4 * MOST_EFFORT));
            blocks::improve(arena, &mut built, budget, context.seed, stop);
        } else if plain && best.height > arena.enough {
            keep(&mut built, blocks::dives(arena, stop));
        }
        // What `exact` does, from where it starts, so as never to be above it.
        if small && built.height > arena.enough {
            let budget = exact::worth(arena, best, Exact::DEFAULT.work, context.effort.min(MOST_EFFORT));
            exact::improve(arena, best, budget, context.seed, context);
        }
        keep(best, built);
        // Near its bound a small problem is not worth all of the work; windows need theirs on a large one.
        let budget =
            if small { budget.min(exact::worth(arena, best, budget, context.effort)) } else { budget };
        let mut random = Random::new(context.seed);
        let (mut spent, mut share) = (0u64, budget.min(self.work) / 2);
        while best.height > arena.enough.max(best.bound) && spent < budget && !stop() {
            let dives = if small { share / 8 } else { share };
            spent = spent.saturating_add(noisy_dives(arena, best, dives, &mut random, stop));
            if arena.apart.rows() == 0 {
                let share = share.min(budget.saturating_sub(spent));
                spent =
                    spent.saturating_add(windows::improve(arena, best, share, random.below(1 << 60), stop));
            }
            if small && plain {
                let share = share.min(budget.saturating_sub(spent));
                spent =
                    spent.saturating_add(blocks::improve(arena, best, share, random.below(1 << 60), stop));
            }
            if small {
                let share = share.min(budget.saturating_sub(spent));
                spent =
                    spent.saturating_add(exact::improve(arena, best, share, random.below(1 << 60), context));
            }
            share = share.saturating_mul(2);
        }
    }
}

/// Dives with noise for about `budget` of work; returns what they took.
fn noisy_dives(
    arena: &Arena,
    best: &mut Packing,
    budget: u64,
    random: &mut Random,
    stop: &(dyn Fn() -> bool + Sync),
) -> u64 {
    let plain = arena.pins.is_empty() && arena.apart.rows() == 0;
    let cost = arena.len() as u64 * if plain { 900 } else { 10_000 } * Order::STATIC.len() as u64;
    let mut spent = 0;
    while spent + cost <= budget && best.height > arena.enough.max(best.bound) && !stop() {
        let percent = NOISE[random.index(NOISE.len())];
        let seed = random.below(1 << 60);
        let orders: Vec<Vec<u32>> = Order::STATIC
            .iter()
            .zip(seed..)
            .map(|(order, seed)| order.noisy(arena, &noise(arena.len(), percent, seed)))
            .collect();
        if let Some(found) = descent::pack(arena, &orders, best.height, stop) {
            keep(best, found);
        }
        spent += cost;
    }
    spent
}

/// Every other placer that is quick enough.
fn floor(arena: &Arena, best: &mut Packing, context: &Context<'_>) {
    if arena.pins.is_empty() {
        keep(best, RefCount::DEFAULT.pack(arena));
        if arena.apart.rows() == 0 {
            keep(best, heap::pack(arena, false, true));
            keep(best, heap::pack(arena, true, true));
        }
    }
    keep(best, push_down::pack(arena));
    keep(best, Stack::BySize.pack(arena));
    keep(best, Stack::ByConflicts.pack(arena));
    if arena.len() > 2000 || (context.stop)() {
        return;
    }
    keep(best, largest_first::pack(arena));
    keep(best, greedy_by_size::pack(arena));
    keep(best, greedy_by_breadth::pack(arena));
    keep(best, size_or_duration_first::pack(arena));
    let mut order = arena.ids();
    order.sort_by_key(|&piece| arena.pieces[piece as usize].born);
    keep(best, fit::pack(arena, &order, Gap::First));
    if best.height > arena.enough.max(best.bound) {
        keep(best, HillClimb::DEFAULT.pack(arena, context));
    }
}

fn keep(best: &mut Packing, other: Packing) {
    if other.height < best.height {
        *best = Packing { bound: best.bound, ..other };
    }
}
