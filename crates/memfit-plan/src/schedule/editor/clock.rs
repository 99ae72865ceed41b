//! The time of a schedule that is being changed, spliced after a change instead of counted anew.
//!
//! A schedule is told in blocks, of which each change touches a few. Kept is the moment at which each block begins. After a
//! change the blocks that it touched run again, and those after them until the machine is as it was at that place, however
//! much later: from there on all is as before, moved by as much. Where no transfer is under way that is at once; where a link
//! is busy to the end, all that comes after runs again. Time O(blocks that run again, and a look at each of the others).

use super::machine::{Links, Moment};

/// What the clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::schedule) struct Told {
    /// Ns until everything is done.
    pub(in crate::schedule) time: u64,
    /// Bytes above what tiers hold, over all stores: 0 if they have room.
    pub(in crate::schedule) over: u64,
}

/// See the head of the file.
pub(super) struct Clock {
    pub(super) links: Links,
    /// By block, when it begins, as it was when it was last read and kept.
    begins: Vec<Moment>,
    end: Told,
    /// The first and the last block that have been touched since what is kept was read, and those of them that are here to stay.
    touched: Option<(usize, usize)>,
    kept: Option<(usize, usize)>,
    /// What was found since the last touch.
    found: Option<Found>,
    /// Blocks that have run so far.
    ran: u64,
}

/// What a splice came to.
struct Found {
    end: Told,
    /// Blocks that begin otherwise than before.
    begins: Vec<(usize, Moment)>,
    /// From this block on all is moved by what `end` is.
    same: usize,
}

impl Clock {
    /// A clock for so many blocks, of which `run` runs one.
    pub(super) fn new(links: Links, blocks: usize, run: impl Fn(usize, &mut Moment, &Links)) -> Clock {
        let (begins, end) = (vec![Moment::default(); blocks], Told::default());
        let mut clock = Clock { links, begins, end, touched: None, kept: None, found: None, ran: 0 };
        // All of it runs: what is kept says nothing yet.
        clock.touch(0);
        clock.touch(blocks.saturating_sub(1));
        clock.read(run);
        clock.keep();
        clock
    }

    /// Block `block` is not what it was.
    pub(super) fn touch(&mut self, block: usize) {
        let (first, last) = self.touched.unwrap_or((block, block));
        self.touched = Some((first.min(block), last.max(block)));
        self.found = None;
    }

    /// What was changed is here to stay.
    pub(super) fn keep(&mut self) {
        if let Some(found) = self.found.take() {
            let Told { time, over } = self.end;
            for Moment { now, over: above, .. } in &mut self.begins[found.same..] {
                *now = *now + found.end.time - time;
                *above = *above + found.end.over - over;
            }
            for (block, begin) in found.begins {
                self.begins[block] = begin;
            }
            (self.end, self.touched) = (found.end, None);
        }
        self.kept = self.touched;
    }

    /// All is as it was when it was last kept.
    pub(super) fn take_back(&mut self) {
        (self.touched, self.found) = (self.kept, None);
    }

    /// How many blocks have run so far.
    pub(super) fn blocks_run(&self) -> u64 {
        self.ran
    }

    /// What it says now. `run` runs a block.
    pub(super) fn read(&mut self, run: impl Fn(usize, &mut Moment, &Links)) -> Told {
        let Some((first, last)) = self.touched else { return self.end };
        if let Some(found) = &self.found {
            return found.end;
        }
        let mut begins = Vec::new();
        let mut moment = self.begins.get(first).cloned().unwrap_or_default();
        for block in first..self.begins.len() {
            if block > first {
                moment.settle(&self.links);
                let before = &self.begins[block];
                if block > last && moment.machine == before.machine {
                    let time = self.end.time - before.now + moment.now;
                    let end = Told { time, over: self.end.over - before.over + moment.over };
                    self.found = Some(Found { end, begins, same: block });
                    return end;
                }
                begins.push((block, moment.clone()));
            }
            run(block, &mut moment, &self.links);
            self.ran += 1;
        }
        moment.end(&self.links);
        let end = Told { time: moment.now, over: moment.over };
        self.found = Some(Found { end, begins, same: self.begins.len() });
        end
    }
}
