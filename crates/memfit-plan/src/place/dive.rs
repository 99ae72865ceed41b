//! Always place a piece that can lie lowest, at its lowest offset: one canonical packing, without a search.
//!
//! Source: the first descent of MiniMalloc (Moffitt, ASPLOS 2023, doi 10.1145/3623278.3624752), made
//! independent of pairs: a heap of possibly outdated lowest offsets over a segment tree of the skyline. A
//! piece popped with an offset that has risen since goes back with the new one. The tie-break decides which
//! of the pieces that can lie equally low goes first; all of `Order::STATIC` are tried, in parallel, and the
//! lowest result kept. No bound on the height: within 0.2 % of the load on large programs, 10 to 25 % over
//! it on tight instances. Time O(e log n) for e evaluations: 30 to 200 for each piece on real programs.
//! Space O(n). Ties: the order's keys, then the lower index; of equal heights the first order wins. Wrong
//! choice for a few hundred pieces without slack: see `exact/`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::arena::{Arena, Does, Packing, place};
use super::rank::Order;
use super::skyline::Skyline;
use super::{Placement, Placer, Problem, Unplaced, naive};
use crate::{Context, Info};

/// The best of the canonical dives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dive;

impl Placer for Dive {
    fn info(&self) -> Info {
        Info {
            name: "dive",
            summary: "always what can lie lowest, under several tie-breaks",
            source: "the first descent of Moffitt, MiniMalloc, ASPLOS 2023",
            year: 2023,
        }
    }

    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced> {
        place(problem, context, Does::ALL, &|arena| {
            let found = pack(arena, &Order::STATIC, u64::MAX, u64::MAX, context.stop);
            Ok(found.unwrap_or_else(|| naive::pack(arena)))
        })
    }
}

/// The lowest packing under `ceiling` of the dives by `orders`, each given at most `evaluations`.
pub(crate) fn pack(
    arena: &Arena,
    orders: &[Order],
    ceiling: u64,
    evaluations: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Packing> {
    let lowest = AtomicU64::new(ceiling);
    let found: Vec<Option<Packing>> = orders
        .par_iter()
        .map(|order| {
            // A dive that reaches the bound makes the others pointless, but only those after it in the list
            // may be cut short, or the result would depend on timing: so none is but by the common ceiling,
            // which a dive of equal height must be able to reach.
            let cut = || lowest.load(Ordering::Relaxed);
            let packing = dive(arena, &order.sorted(arena), &cut, evaluations, stop)?;
            lowest.fetch_min(packing.height.saturating_add(1), Ordering::Relaxed);
            Some(packing)
        })
        .collect();
    found.into_iter().flatten().filter(|packing| packing.height < ceiling).min_by_key(|packing| packing.height)
}

/// One dive with ties broken by the position in `order`. None if it reaches the height `ceiling`, which may
/// fall meanwhile, or needs more than `evaluations`, or has to stop.
pub(crate) fn dive(
    arena: &Arena,
    order: &[u32],
    ceiling: &dyn Fn() -> u64,
    mut evaluations: u64,
    stop: &dyn Fn() -> bool,
) -> Option<Packing> {
    let mut skyline = Skyline::new(arena.load.len());
    let mut offsets = vec![0u64; arena.len()];
    let mut lifted = if arena.apart.rows() == 0 { Vec::new() } else { vec![0u64; arena.len()] };
    let mut heap: BinaryHeap<Reverse<(u64, u32, u32)>> = BinaryHeap::with_capacity(order.len());
    for (rank, &piece) in (0u32..).zip(order) {
        heap.push(Reverse((arena.pieces[piece as usize].pin.unwrap_or(0), rank, piece)));
    }
    while let Some(mut entry) = heap.peek_mut() {
        let Reverse((offset, rank, index)) = *entry;
        let piece = &arena.pieces[index as usize];
        if piece.pin.is_none() {
            let mut lowest = skyline.top(piece.lo, piece.hi).max(offset);
            if let Some(&lift) = lifted.get(index as usize) {
                lowest = lowest.max(lift);
            }
            let lowest = arena.above_pins(index, lowest);
            if lowest > offset {
                *entry = Reverse((lowest, rank, index));
                evaluations = evaluations.checked_sub(1)?;
                if evaluations & 1023 == 0 && stop() {
                    return None;
                }
                continue;
            }
        }
        std::collections::binary_heap::PeekMut::pop(entry);
        let top = offset.saturating_add(piece.size);
        if top >= ceiling() {
            return None;
        }
        offsets[index as usize] = offset;
        if piece.pin.is_none() {
            skyline.raise(piece.lo, piece.hi, top);
            if !lifted.is_empty() {
                for &other in arena.apart.row(index as usize) {
                    lifted[other as usize] = lifted[other as usize].max(top);
                }
            }
        }
    }
    Some(arena.packing(offsets))
}
