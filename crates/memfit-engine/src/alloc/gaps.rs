//! The free ranges of an arena, by offset and by size.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Gaps {
    pub(super) fn of(capacity: u64) -> Gaps {
        let mut gaps = Gaps::default();
        gaps.insert(0, capacity);
        gaps
    }

    fn insert(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.by_offset.insert(offset, size);
            self.by_size.insert((size, offset));
        }
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }

    /// The smallest gap of at least `size` bytes, the lowest of equals: `(offset, size)`.
    pub(super) fn best(&self, size: u64) -> Option<(u64, u64)> {
        self.by_size.range((size, 0)..).next().map(|&(room, offset)| (offset, room))
    }

    pub(super) fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(size, _)| size)
    }

    /// Cuts `[offset, offset + size)` out of the gap that holds it; false if none does.
    pub(super) fn take(&mut self, offset: u64, size: u64) -> bool {
        let Some((&start, &room)) = self.by_offset.range(..=offset).next_back() else { return false };
        let (Some(end), gap_end) = (offset.checked_add(size), start + room) else { return false };
        if end > gap_end {
            return false;
        }
        self.remove(start, room);
        self.insert(start, offset - start);
        self.insert(end, gap_end - end);
        true
    }

    /// Gives `[offset, offset + size)` back, joined with the gaps beside it.
    pub(super) fn give(&mut self, mut offset: u64, mut size: u64) {
        if let Some((&below, &room)) = self.by_offset.range(..offset).next_back()
            && below + room == offset
        {
            self.remove(below, room);
            (offset, size) = (below, room + size);
        }
        let end = offset + size;
        if let Some(&room) = self.by_offset.get(&end) {
            self.remove(end, room);
            size += room;
        }
        self.insert(offset, size);
    }

    /// Free bytes directly before `start` and from `end`.
    pub(super) fn around(&self, start: u64, end: u64) -> (u64, u64) {
        let before = self.by_offset.range(..start).next_back();
        let before = before.filter(|&(&offset, &size)| offset + size == start).map_or(0, |(_, &size)| size);
        (before, self.by_offset.get(&end).copied().unwrap_or(0))
    }
}
