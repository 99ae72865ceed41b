//! A framework's run-time allocator, replayed over the births and deaths of the pieces of an arena.

use super::arena::{Arena, Packing, ids};

/// An allocator that knows only the requests so far.
pub(crate) trait Runtime {
    /// Where `size` bytes lie now.
    fn take(&mut self, size: u64) -> u64;

    /// Takes back what [`Runtime::take`] gave at `offset`.
    fn give(&mut self, offset: u64);

    /// Bytes it holds, in use or not.
    fn reserved(&self) -> u64;
}

/// What requests are rounded to where an allocator rounds to `round` and offsets must be multiples of `align`:
/// an alignment that neither divides nor is divided by `round` is kept by rounding to both.
pub(crate) fn unit(round: u64, align: u64) -> u64 {
    if round.is_multiple_of(align) {
        round
    } else if align.is_multiple_of(round) {
        align
    } else {
        align.saturating_mul(round)
    }
}

/// Requests in the order of birth, each rounded up to `unit`, after everything that is gone by then was given back.
pub(crate) fn replay(arena: &Arena, unit: u64, mut allocator: impl Runtime) -> Packing {
    let mut births = ids(arena.len());
    births.sort_by_key(|&index| arena.pieces[index as usize].born);
    let mut deaths = ids(arena.len());
    deaths.sort_by_key(|&index| arena.pieces[index as usize].gone);
    let mut deaths = deaths.into_iter().peekable();
    let mut offsets = vec![0u64; arena.len()];
    for index in births {
        let piece = &arena.pieces[index as usize];
        while let Some(dead) = deaths.next_if(|&dead| arena.pieces[dead as usize].gone <= piece.born) {
            allocator.give(offsets[dead as usize]);
        }
        let size = piece.size.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        offsets[index as usize] = allocator.take(size);
    }
    let mut packing = arena.packing(offsets);
    packing.reserved = packing.reserved.max(allocator.reserved());
    packing
}
