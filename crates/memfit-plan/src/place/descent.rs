//! The canonical dive: one by a given order of preference, and many in parallel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;

use super::arena::{Arena, Packing};
use super::plateau::{self, Tree};
use super::rank::Order;
use super::skyline::Skyline;
use super::{fit, heap};

/// The lowest packing under `ceiling` of the dives by `orders`, or the first that is no higher than enough.
pub(crate) fn pack(
    arena: &Arena,
    orders: &[Vec<u32>],
    ceiling: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Packing> {
    let lowest = AtomicU64::new(ceiling);
    let enough = AtomicUsize::new(usize::MAX);
    let plain = arena.pins.is_empty() && arena.apart.rows() == 0;
    let tree = plain.then(|| Tree::new(arena));
    let mut found: Vec<Option<Packing>> = orders
        .par_iter()
        .enumerate()
        .map(|(at, order)| {
            // Higher than the lowest so far is of no use; equally high may be, if it comes first in the list.
            let ceiling = || lowest.load(Ordering::Relaxed);
            let stop = || stop() || enough.load(Ordering::Relaxed) < at;
            let packing = match &tree {
                Some(tree) => plateau::dive(arena, &mut tree.clone(), order, &ceiling, &stop),
                None => dive(arena, order, &ceiling, &stop),
            }?;
            if packing.height <= arena.enough {
                enough.fetch_min(at, Ordering::Relaxed);
            }
            lowest.fetch_min(packing.height.max(arena.enough).saturating_add(1), Ordering::Relaxed);
            Some(packing)
        })
        .collect();
    found.truncate(enough.into_inner().saturating_add(1));
    let packings = found.into_iter().flatten().filter(|packing| packing.height < ceiling);
    if let Some(first) = packings.clone().find(|packing| packing.height <= arena.enough) {
        return Some(first);
    }
    packings.min_by_key(|packing| packing.height)
}

/// Where searches start: the lowest of no sharing, online best fit, and the dives.
pub(crate) fn start(arena: &Arena, stop: &(dyn Fn() -> bool + Sync)) -> Packing {
    let mut best = fit::separate(arena);
    if best.height > arena.enough {
        let online = heap::online(arena);
        best = if online.height < best.height { online } else { best };
    }
    if best.height > arena.enough
        && let Some(found) = pack(arena, &orders(arena), best.height, stop)
    {
        best = found;
    }
    best
}

/// All of [`Order::STATIC`].
pub(crate) fn orders(arena: &Arena) -> Vec<Vec<u32>> {
    Order::STATIC.iter().map(|order| order.sorted(arena)).collect()
}

/// One dive with ties broken by the position in `order`. None if it reaches the height `ceiling`, which may
/// fall meanwhile, or has to stop.
pub(crate) fn dive(
    arena: &Arena,
    order: &[u32],
    ceiling: &dyn Fn() -> u64,
    stop: &dyn Fn() -> bool,
) -> Option<Packing> {
    let mut evaluations = 0u64;
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
                evaluations += 1;
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
