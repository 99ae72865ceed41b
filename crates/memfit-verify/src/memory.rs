//! Symbolic memory: which bytes hold what, and who touched them last.

use std::collections::BTreeMap;

use memfit_ir::{BufferId, Content};

/// A moment on one thread of execution: a lane, or one of the two queues of the host link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) thread: usize,
    pub(crate) tick: u32,
}

/// The last write (or free), and the last read of each thread since then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    pub(crate) write: Stamp,
    pub(crate) reads: Vec<Stamp>,
}

impl Accesses {
    pub(crate) fn read(&mut self, now: Stamp) {
        match self.reads.iter_mut().find(|stamp| stamp.thread == now.thread) {
            Some(stamp) => *stamp = now,
            None => self.reads.push(now),
        }
    }

    pub(crate) fn write(&mut self, now: Stamp) {
        self.write = now;
        self.reads.clear();
    }
}

/// What is in memory, as far as the judge has seen it happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) content: Content,
    /// Whether a lossy codec had a part in it.
    pub(crate) lossy: bool,
    /// The buffer whose stay this is.
    pub(crate) owner: BufferId,
}

/// A range of bytes with one history.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    end: u64,
    /// `None`: free, or destroyed.
    pub(crate) held: Option<Held>,
    pub(crate) accesses: Accesses,
}

/// One bank: ranges that never overlap, keyed by start. Bytes in no range were never touched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    cells: BTreeMap<u64, Cell>,
    /// Buffers of no bytes, which hold their value all the same.
    empty: BTreeMap<BufferId, Cell>,
}

impl Memory {
    /// The cell that is exactly `[start, end)`; `owner` finds empty ones.
    pub(crate) fn cell(&mut self, owner: BufferId, start: u64, end: u64) -> Option<&mut Cell> {
        if start == end {
            return self.empty.get_mut(&owner);
        }
        self.cells.get_mut(&start).filter(|cell| cell.end == end)
    }

    /// Fills `[start, end)`. Returns what was held in any of these bytes and is lost, and all accesses to
    /// them so far.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        held: Held,
        now: Stamp,
    ) -> (Vec<Held>, Vec<Accesses>) {
        let cell = Cell { end, held: Some(held), accesses: Accesses { write: now, reads: Vec::new() } };
        let (mut lost, mut before) = (Vec::new(), Vec::new());
        if start == end {
            self.empty.insert(held.owner, cell);
            return (lost, before);
        }
        while let Some((&at, found)) = self.cells.range(..end).next_back() {
            if found.end <= start {
                break;
            }
            let Some(old) = self.cells.remove(&at) else { break };
            lost.extend(old.held);
            before.push(old.accesses.clone());
            // What sticks out on either side keeps its history but holds nothing whole any more.
            if old.end > end {
                self.cells.insert(end, Cell { end: old.end, held: None, accesses: old.accesses.clone() });
            }
            if at < start {
                self.cells.insert(at, Cell { end: start, held: None, accesses: old.accesses });
            }
        }
        self.cells.insert(start, cell);
        (lost, before)
    }

    /// Everything that is held.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, &Held)> {
        let cells = self.cells.iter().chain(self.empty.values().map(|cell| (&0, cell)));
        cells.filter_map(|(&start, cell)| cell.held.as_ref().map(|held| (start, held)))
    }
}
