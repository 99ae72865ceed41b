//! First fit in an order that is changed where the peak is, kept if that helps and sometimes if not.
//!
//! Source: Apache TVM, unified static memory planner, `hill_climb.cc`: start largest first; in each of 500
//! attempts take a random buffer that touches the peak, a random buffer it conflicts with that stands before
//! it in the order, and mostly one before that again, and swap the two; a worse result is kept with a
//! probability that falls with the attempts. We differ in the random sequence and in fewer attempts beyond
//! 2,000 buffers. No bound; O(n²) for each attempt, O(n) space. Deterministic by the seed. Wrong choice where
//! dives differ by more than a swap: see `best/`.

use std::cmp::Reverse;

use super::arena::{Arena, Does, Packing, place};
use super::fit::{self, Gap};
use super::rank::Random;
use super::{Placement, Placer, Problem, Unplaced};
use crate::{Context, Info};

/// TVM's hill climbing and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HillClimb {
    /// First fits at effort 1, for up to 2,000 buffers.
    pub attempts: u32,
}

impl HillClimb {
    /// TVM's number of attempts.
    pub const DEFAULT: HillClimb = HillClimb { attempts: 500 };
}

impl Placer for HillClimb {
    fn info(&self) -> Info {
        Info {
            name: "hill-climb",
            summary: "first fit in an order improved around the peak, as TVM",
            source: "Apache TVM, USMP hill climb",
            year: 2021,
        }
    }

    fn is_quick(&self) -> bool {
        false
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| Ok(self.pack(arena, context)))
    }
}

impl HillClimb {
    pub(crate) fn pack(self, arena: &Arena, context: &Context<'_>) -> Packing {
        let mut order = arena.ids();
        order.sort_by_key(|&index| Reverse(arena.pieces[index as usize].size));
        let mut random = Random::new(context.seed);
        let mut now = fit::pack(arena, &order, Gap::First);
        let mut best = now.clone();
        let square = (arena.len() as u64).pow(2) / 4_000_000;
        let attempts = (u64::from(self.attempts) / square.max(1)).max(1) * u64::from(context.effort);
        let mut turn = vec![0usize; arena.len()];
        for attempt in 1..=attempts {
            if best.height <= arena.enough || (context.stop)() {
                break;
            }
            for (at, &index) in order.iter().enumerate() {
                turn[index as usize] = at;
            }
            let before = |of: u32| -> Vec<u32> {
                let meets = |other: u32| {
                    arena.pieces[other as usize].meets(&arena.pieces[of as usize])
                        || arena.keeps_apart(of, other)
                };
                order[..turn[of as usize]].iter().copied().filter(|&other| meets(other)).collect()
            };
            let end =
                |index: u32| now.offsets[index as usize].saturating_add(arena.pieces[index as usize].size);
            let peak: Vec<u32> = order.iter().copied().filter(|&index| end(index) == now.height).collect();
            let Some(&touching) = peak.get(random.index(peak.len())) else { break };
            let first = before(touching);
            let Some(&one) = first.get(random.index(first.len())) else { continue };
            let second = before(one);
            let other = match second.get(random.index(second.len())) {
                Some(&other) if random.below(100) < 75 => other,
                _ => touching,
            };
            order.swap(turn[one as usize], turn[other as usize]);
            let next = fit::pack(arena, &order, Gap::First);
            let worse = u128::from(next.height.saturating_sub(now.height));
            let chance = 50 * 1000 * worse / u128::from(next.height.max(1)) / u128::from(attempt);
            if next.height <= now.height || u128::from(random.below(100_000)) < chance {
                now = next;
                if now.height < best.height {
                    best = now.clone();
                }
            } else {
                order.swap(turn[one as usize], turn[other as usize]);
            }
        }
        best
    }
}
