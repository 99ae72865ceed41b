//! Online best fit in one arena: the free gaps of the present, by offset and by size.
//!
//! The kernel of online placement. A piece is placed when it is born, in the smallest gap below the present
//! top that is large enough, else at the top; gaps merge when a piece dies. O(log n) for each piece.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::arena::{Arena, Packing, ids};
use super::fit::{self, Gap};

/// The gaps below the top of what is live.
#[derive(Clone, Debug, Default)]
struct Gaps {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    top: u64,
}

impl Gaps {
    fn add(&mut self, offset: u64, size: u64) {
        self.by_offset.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }

    fn take(&mut self, size: u64) -> u64 {
        let Some(&(room, offset)) = self.by_size.range((size, 0)..).next() else {
            let offset = self.top;
            self.top = self.top.saturating_add(size);
            return offset;
        };
        self.remove(offset, room);
        if room > size {
            self.add(offset + size, room - size);
        }
        offset
    }

    fn give(&mut self, mut offset: u64, mut size: u64) {
        if let Some((&below, &room)) = self.by_offset.range(..offset).next_back()
            && below + room == offset
        {
            self.remove(below, room);
            (offset, size) = (below, room + size);
        }
        let end = offset.saturating_add(size);
        if let Some(&room) = self.by_offset.get(&end) {
            self.remove(end, room);
            size += room;
        }
        if offset.saturating_add(size) >= self.top { self.top = offset } else { self.add(offset, size) }
    }
}

/// Places every piece when it is born, `reversed` when it dies, time running backwards; of those born
/// together the larger first if `sorted`. Knows neither pins nor pieces to keep apart.
pub(crate) fn pack(arena: &Arena, reversed: bool, sorted: bool) -> Packing {
    let span = |index: u32| {
        let piece = &arena.pieces[index as usize];
        if reversed { (u32::MAX - piece.gone, u32::MAX - piece.born) } else { (piece.born, piece.gone) }
    };
    let mut births = ids(arena.len());
    births.sort_by_key(|&index| {
        let size = if sorted { arena.pieces[index as usize].size } else { 0 };
        (span(index).0, Reverse(size))
    });
    let mut deaths = ids(arena.len());
    deaths.sort_by_key(|&index| span(index).1);
    let mut deaths = deaths.into_iter().peekable();
    let mut gaps = Gaps::default();
    let mut offsets = vec![0u64; arena.len()];
    for index in births {
        while let Some(dead) = deaths.next_if(|&dead| span(dead).1 <= span(index).0) {
            gaps.give(offsets[dead as usize], arena.pieces[dead as usize].size);
        }
        offsets[index as usize] = gaps.take(arena.pieces[index as usize].size);
    }
    arena.packing(offsets)
}

/// Every piece, when it is born, in the smallest gap; also with pins and pieces to keep apart.
pub(crate) fn online(arena: &Arena) -> Packing {
    if arena.pins.is_empty() && arena.apart.rows() == 0 {
        return pack(arena, false, false);
    }
    let mut order = arena.ids();
    order.sort_by_key(|&index| arena.pieces[index as usize].born);
    fit::pack(arena, &order, Gap::Best)
}
