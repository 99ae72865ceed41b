//! What a placement changes, and takes back: rests, floors and what is left of each section.

use super::{Search, Undo};

impl Search<'_> {
    /// Places `piece` at `offset`, where nothing will be placed below `level` any more. False if the capacity
    /// cannot be kept any more; the trail takes it back.
    pub(super) fn place(&mut self, piece: u32, offset: u64, level: u64, part: (u32, u32)) -> bool {
        let inst = self.inst;
        let size = inst.size[piece as usize];
        let (lo, hi) = (inst.lo[piece as usize] as usize, inst.hi[piece as usize] as usize);
        let top = offset.saturating_add(size);
        let room = self.capacity.saturating_sub(top);
        if let Some(at) =
            self.total[lo..hi].iter().position(|&total| top > self.capacity || total - size > room)
        {
            self.blame[lo + at] += 1;
            self.because(lo + at);
            return false;
        }
        self.work += (4 * (hi - lo) + inst.conflicts.row(piece as usize).len()) as u64;
        self.trail.push(Undo::Place(piece));
        self.placed[piece as usize] = true;
        for section in lo..hi {
            self.total[section] -= size;
            self.leave(piece, section);
            self.touch(section);
        }
        for border in lo..hi - 1 {
            self.cuts[border] -= 1;
        }
        let mut fits = true;
        for &other in inst.conflicts.row(piece as usize) {
            let rest = self.rest[other as usize];
            if rest >= top || self.placed[other as usize] {
                continue;
            }
            if inst.pin[other as usize].is_some() {
                fits = false;
                self.because_of(other);
                break;
            }
            self.trail.push(Undo::Rest(other, rest));
            self.rest[other as usize] = top;
            self.raise_low(other, top);
        }
        fits = self.settle(fits);
        let room = self.capacity.saturating_sub(level);
        if !fits {
            return false;
        }
        let over = self.total[part.0 as usize..part.1 as usize].iter().position(|&total| total > room);
        if let Some(at) = over {
            self.blame[part.0 as usize + at] += 1;
            self.because(part.0 as usize + at);
        }
        over.is_none()
    }

    /// Raises the proved offset of `piece` to `low` at least.
    fn raise_low(&mut self, piece: u32, low: u64) {
        let before = self.low[piece as usize];
        if low <= before {
            return;
        }
        self.trail.push(Undo::Low(piece, before));
        self.low[piece as usize] = low;
        let (lo, hi) = (self.inst.lo[piece as usize] as usize, self.inst.hi[piece as usize] as usize);
        self.work += (hi - lo) as u64 / 4;
        for section in lo..hi {
            if self.floor[section] == before {
                self.touch(section);
            }
        }
    }

    /// Brings the floors of the touched sections up to date. False if one is too high.
    pub(super) fn settle(&mut self, mut fits: bool) -> bool {
        while let Some(section) = self.touched.pop() {
            self.is_touched[section as usize] = false;
            fits = fits && self.raise_floor(section as usize);
        }
        fits
    }

    /// `piece` was passed over at the place where it rests, so it will rest on a piece that is yet to come,
    /// at `offset` or above. False if there is none.
    pub(super) fn defer(&mut self, piece: u32, offset: u64) -> bool {
        if self.inst.pin[piece as usize].is_some() {
            return false;
        }
        self.work += self.inst.conflicts.row(piece as usize).len() as u64;
        let mut low = u64::MAX;
        for &other in self.inst.conflicts.row(piece as usize) {
            if !self.placed[other as usize] {
                low = low
                    .min(self.low[other as usize].max(offset).saturating_add(self.inst.size[other as usize]));
            }
        }
        if low.saturating_add(self.inst.size[piece as usize]) > self.capacity {
            return false;
        }
        self.raise_low(piece, low);
        true
    }

    fn touch(&mut self, section: usize) {
        if !self.is_touched[section] {
            self.is_touched[section] = true;
            self.touched.push(u32::try_from(section).unwrap_or(u32::MAX));
        }
    }

    /// Sets the floor of a section to where the lowest of its unplaced pieces rests. False if they do not
    /// fit above it.
    fn raise_floor(&mut self, section: usize) -> bool {
        let active = &self.members[section][..self.active[section] as usize];
        self.work += active.len() as u64;
        let (mut floor, mut least, mut most) = (u64::MAX, 0, 0);
        for &piece in active {
            let low = self.low[piece as usize];
            if low < floor {
                (floor, least) = (low, self.inst.size[piece as usize]);
            }
            most = most.max(low);
        }
        if active.is_empty() {
            return true;
        }
        if floor != self.floor[section] {
            self.trail.push(Undo::Floor(u32::try_from(section).unwrap_or(u32::MAX), self.floor[section]));
            self.floor[section] = floor;
        }
        let end = floor.saturating_add(self.total[section]);
        let mut fits = end <= self.capacity;
        // Pieces that start well above the floor may leave a gap that nothing fills.
        if fits && self.habits.stairs && most - floor > least.saturating_add(self.capacity - end) {
            self.work += 4 * active.len() as u64;
            self.stack.clear();
            self.stack.extend(
                active.iter().map(|&piece| (self.low[piece as usize], self.inst.size[piece as usize])),
            );
            self.stack.sort_unstable();
            let top = self.stack.iter().fold(0u64, |top, &(low, size)| top.max(low).saturating_add(size));
            fits = top <= self.capacity;
        }
        if !fits {
            self.blame[section] += 1;
            self.because(section);
        }
        fits
    }

    /// Moves `piece` behind the unplaced pieces of `section`.
    fn leave(&mut self, piece: u32, section: usize) {
        let inst = self.inst;
        let slot =
            |piece: u32| inst.base[piece as usize] as usize + section - inst.lo[piece as usize] as usize;
        self.active[section] -= 1;
        let (at, last) = (self.position[slot(piece)], self.active[section]);
        let members = &mut self.members[section];
        members.swap(at as usize, last as usize);
        let moved = members[at as usize];
        self.position[slot(moved)] = at;
        self.position[slot(piece)] = last;
    }

    /// Takes back everything since the trail was `mark` long.
    pub(super) fn take_back(&mut self, mark: usize) {
        let inst = self.inst;
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Undo::Rest(piece, rest)) => self.rest[piece as usize] = rest,
                Some(Undo::Low(piece, low)) => self.low[piece as usize] = low,
                Some(Undo::Rank(piece, rank)) => self.rank[piece as usize] = rank,
                Some(Undo::Floor(section, floor)) => self.floor[section as usize] = floor,
                Some(Undo::Place(piece)) => {
                    self.placed[piece as usize] = false;
                    let (lo, hi) = (inst.lo[piece as usize] as usize, inst.hi[piece as usize] as usize);
                    for section in lo..hi {
                        self.total[section] += inst.size[piece as usize];
                        self.active[section] += 1;
                    }
                    for border in lo..hi - 1 {
                        self.cuts[border] += 1;
                    }
                }
                None => return,
            }
        }
    }
}
