//! The best of the quick placers, then search, until nothing lower is possible or the effort is spent.
//!
//! x
mod windows;

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::rank::{Order, noise};
use super::{Placement, Placer, Problem, RefCount, Unplaced, dive, exact, heap, naive};
use crate::{Context, Info};

/// The default portfolio and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Work of the search at effort 1, about a nanosecond each.
    pub work: u64,
}

impl Best {
    /// About half a second.
    pub const DEFAULT: Best = Best { work: 400_000_000 };
}

impl Placer for Best {
    fn info(&self) -> Info {
        Info { name: "best", summary: "the best of many, then search", source: "memfit", year: 2026 }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(self.pack(arena, context)))
    }
}

impl Best {
    fn pack(&self, arena: &Arena, context: &Context<'_>) -> Packing {
        let mut best = naive::pack(arena);
        let plain = arena.pins.is_empty() && arena.apart.rows() == 0;
        if plain {
            keep(&mut best, heap::pack(arena, false, false));
        }
        if let Some(found) = dive::pack(arena, &dive::orders(arena), best.height, context.stop) {
            keep(&mut best, found);
        }
        let budget = self.work.saturating_mul(u64::from(context.effort));
        let mut spent = 0;
        let mut share = budget / 4;
        let cost = 700 * arena.len() as u64;
        let mut seed = context.seed;
        while spent < share && best.height > arena.enough.max(best.bound) && !(context.stop)() {
            let orders: Vec<Vec<u32>> = Order::STATIC
                .iter()
                .map(|order| {
                    seed += 1;
                    order.noisy(arena, &noise(arena.len(), [3, 10, 30][(seed % 3) as usize], seed))
                })
                .collect();
            if let Some(found) = dive::pack(arena, &orders, best.height, context.stop) {
                keep(&mut best, found);
                if std::env::var("LOG").is_ok() { eprintln!("noisy dive {} {}", best.height as f64 / best.bound as f64, spent) }
            }
            spent += cost * 7;
        }
        let pairs: u64 = arena.pieces.iter().map(|piece| u64::from(piece.width())).sum();
        let mut round = 0;
        while best.height > arena.enough.max(best.bound) && spent < budget && !(context.stop)() {
            let target = arena.enough.max(best.bound);
            if arena.len() <= 3000 && pairs <= 4_000_000 {
                spent += exact::improve(arena, &mut best, share.min(budget - spent), context);
            }
            if arena.apart.rows() == 0 && best.height > target {
                let share = share.min(budget.saturating_sub(spent));
                spent += windows::improve(arena, &mut best, target, share, context.seed + round, context.stop);
            }
            round += 1;
            share *= 2;
        }
        if best.height > best.bound && arena.len() <= 4000 {
            if arena.pins.is_empty() {
                keep(&mut best, RefCount::DEFAULT.pack(arena));
            }
            if plain {
                for (reversed, sorted) in [(false, true), (true, true)] {
                    keep(&mut best, heap::pack(arena, reversed, sorted));
                }
            }
            let mut order = arena.ids();
            order.sort_by_key(|&index| {
                Reverse((arena.pieces[index as usize].size, arena.pieces[index as usize].width()))
            });
            keep(&mut best, fit::pack(arena, &order, Gap::First));
            keep(&mut best, fit::pack(arena, &order, Gap::Best));
        }
        best
    }
}

fn keep(best: &mut Packing, other: Packing) {
    if other.height < best.height {
        *best = Packing { bound: best.bound, ..other };
    }
}
