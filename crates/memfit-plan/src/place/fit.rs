//! Pieces one by one in a given order, each at the lowest or the tightest gap that is free for all its life.
//!
//! The kernel of the greedy family. The placed pieces are kept by offset, so that one pass over them finds
//! the gaps; O(n) for each piece, O(n²) in all, without any list of pairs.

use super::arena::{Arena, Packing};

/// Which gap a piece takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough, the lowest of equals; the space above all is taken last.
    Best,
}

/// A placed piece.
#[derive(Clone, Copy)]
struct Placed {
    start: u64,
    end: u64,
    lo: u32,
    hi: u32,
    index: u32,
}

/// Places pinned pieces, then `order` (which may name pinned pieces too) by `gap`.
pub(crate) fn pack(arena: &Arena, order: &[u32], gap: Gap) -> Packing {
    let mut offsets = vec![0u64; arena.len()];
    let mut placed: Vec<Placed> = Vec::with_capacity(arena.len());
    let record = |placed: &mut Vec<Placed>, index: u32, start: u64| {
        let piece = &arena.pieces[index as usize];
        let new = Placed { start, end: start.saturating_add(piece.size), lo: piece.lo, hi: piece.hi, index };
        let at = placed.partition_point(|other| other.start <= start);
        placed.insert(at, new);
    };
    for &index in &arena.pins {
        let start = arena.pieces[index as usize].pin.unwrap_or(0);
        offsets[index as usize] = start;
        record(&mut placed, index, start);
    }
    for &index in order {
        let piece = &arena.pieces[index as usize];
        if piece.pin.is_some() {
            continue;
        }
        let mut top = 0u64;
        let mut best: Option<(u64, u64)> = None; // (room, offset)
        for other in &placed {
            let meets = other.lo < piece.hi && piece.lo < other.hi;
            if !meets && !arena.keeps_apart(index, other.index) {
                continue;
            }
            if other.start > top && other.start - top >= piece.size {
                let room = other.start - top;
                if best.is_none_or(|(least, _)| room < least) {
                    best = Some((room, top));
                }
                if gap == Gap::First || room == piece.size {
                    break;
                }
            }
            top = top.max(other.end);
        }
        let start = best.map_or(top, |(_, offset)| offset);
        offsets[index as usize] = start;
        record(&mut placed, index, start);
    }
    arena.packing(offsets)
}
