//! Pieces one by one in a given order, each at the lowest or the tightest gap that is free for all its life.
//!
//! The kernel of the greedy family. The placed pieces are kept by offset, so that one pass over them finds
//! the gaps; O(n) for each piece, O(n²) in all, without any list of pairs. Beside it the two ways that look
//! for no gap: everything apart, and everything on top of what it meets.

use super::arena::{Arena, Packing, Piece};
use super::skyline::Skyline;

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

/// One after another; pinned pieces keep their own stretch.
pub(crate) fn separate(arena: &Arena) -> Packing {
    let mut top = 0u64;
    let mut taken: Vec<(u64, u64)> = Vec::new(); // stretches of the pins, by offset, disjoint
    for &pin in &arena.pins {
        let piece = &arena.pieces[pin as usize];
        let start = piece.pin.unwrap_or(0);
        taken.push((start, start.saturating_add(piece.size)));
    }
    let place = |piece: &Piece| {
        if let Some(offset) = piece.pin {
            return offset;
        }
        for &(start, end) in &taken {
            if start < top.saturating_add(piece.size) && end > top {
                top = end;
            }
        }
        let offset = top;
        top = top.saturating_add(piece.size);
        offset
    };
    let offsets = arena.pieces.iter().map(place).collect();
    arena.packing(offsets)
}

/// Each piece of `order` above all that came before it and that it meets.
pub(crate) fn stack(arena: &Arena, order: &[u32]) -> Packing {
    let mut skyline = Skyline::new(arena.load.len());
    let mut lifted = if arena.apart.rows() == 0 { Vec::new() } else { vec![0u64; arena.len()] };
    let mut offsets = vec![0u64; arena.len()];
    for &index in order {
        let piece = &arena.pieces[index as usize];
        if let Some(pin) = piece.pin {
            offsets[index as usize] = pin;
            continue;
        }
        let top = skyline.top(piece.lo, piece.hi);
        let lift = lifted.get(index as usize).copied().unwrap_or(0);
        let offset = arena.above_pins(index, top.max(lift));
        let end = offset.saturating_add(piece.size);
        offsets[index as usize] = offset;
        skyline.raise(piece.lo, piece.hi, end);
        if !lifted.is_empty() {
            for &other in arena.apart.row(index as usize) {
                lifted[other as usize] = lifted[other as usize].max(end);
            }
        }
    }
    arena.packing(offsets)
}
