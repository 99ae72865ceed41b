//! Symbolic memory: which bytes hold what, and who touched them last.

use std::collections::BTreeMap;

use memfit_ir::{Content, Need};

/// A moment on one thread of execution: a lane, or one of the two queues of a tier's link.
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
        self.reads.retain(|stamp| stamp.thread != now.thread);
        self.reads.push(now);
    }
}

/// The stay of one buffer or host copy: buffers first, then copies, in one numbering.
pub(crate) type Stay = usize;

/// What is in memory, as far as the judge has seen it happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) content: Content,
    /// What is left of it after all codecs that had a part in it.
    pub(crate) keeps: Need,
    /// Whose stay this is.
    pub(crate) owner: Stay,
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
    /// Stays without bytes here, which hold their value all the same.
    empty: BTreeMap<Stay, Cell>,
}

impl Memory {
    /// The cell that is exactly `[start, end)`; `owner` finds empty ones.
    pub(crate) fn cell(&mut self, owner: Stay, start: u64, end: u64) -> Option<&mut Cell> {
        if start == end {
            return self.empty.get_mut(&owner);
        }
        self.cells.get_mut(&start).filter(|cell| cell.end == end)
    }

    /// Fills `[start, end)`. Returns the cells that had any of these bytes.
    pub(crate) fn fill(&mut self, start: u64, end: u64, held: Held, now: Stamp) -> Vec<Cell> {
        let accesses = Accesses { write: now, reads: Vec::new() };
        let cell = Cell { end, held: Some(held), accesses };
        if start == end {
            return self.empty.insert(held.owner, cell).into_iter().collect();
        }
        let mut before = Vec::new();
        while let Some((&at, _)) = self.cells.range(..end).next_back().filter(|(_, old)| old.end > start) {
            let Some(old) = self.cells.remove(&at) else { break };
            // What sticks out on either side keeps its history but holds nothing whole any more.
            if old.end > end {
                self.cells.insert(end, Cell { held: None, ..old.clone() });
            }
            if at < start {
                self.cells.insert(at, Cell { end: start, held: None, ..old.clone() });
            }
            before.push(old);
        }
        self.cells.insert(start, cell);
        before
    }
}
