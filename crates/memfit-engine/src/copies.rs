//! The table of copies: what of which storage is where, and what is under way.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Codec, Form, Need, StepId, Tier};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::host::Block;
use crate::log::Copied;
use crate::maybe::Maybe;

/// A copy of a storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) storage: u32,
    pub(crate) form: Form,
    /// What the host calls it.
    pub(crate) name: u64,
    pub(crate) size: Bytes,
    /// Whether it is where the storage is at home, encoded: then it is as good as the bytes.
    pub(crate) home: bool,
    /// Its bytes in device memory, if that is where it is.
    pub(crate) block: Option<Block>,
    /// Its name in the log, and the last transfer's step there.
    pub(crate) logged: Option<Copied>,
    pub(crate) step: Option<StepId>,
    pub(crate) busy: Busy,
    /// The transfer under way: its queue, and its number among all.
    pub(crate) queue: Option<(Tier, bool)>,
    pub(crate) issued: u64,
}

impl Row {
    /// What it keeps of the storage.
    pub(crate) fn keeps(&self) -> Need {
        self.form.codec().map_or(Need::Value, Codec::keeps)
    }
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    Idle,
    /// The copy is being made.
    Out,
    /// The storage is being filled from it.
    Into,
}

/// Numbers of copies, before the first comes again.
const NUMBERS: u32 = 1 << 31;

/// All copies, by number. A plan may name one that is gone, so numbers are not used again.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) rows: BTreeMap<u32, Row>,
    next: u32,
    /// Transfers so far.
    pub(crate) issued: u64,
    of: FxHashMap<u32, SmallVec<[u32; 1]>>,
    /// What is about to be loaded: it's not discarded to make room.
    pub(crate) wanted: Maybe<u32>,
    /// By tier.
    pub(crate) used: [Bytes; Tier::ALL.len()],
    /// By tier, what the plan that was begun last takes at most.
    pub(crate) planned: [Bytes; Tier::ALL.len()],
}

impl Stores {
    pub(crate) fn add(&mut self, row: Row) -> u32 {
        let at = self.next;
        self.next = (at + 1) % NUMBERS;
        self.rows.insert(at, row);
        self.of.entry(row.storage).or_default().push(at);
        at
    }

    pub(crate) fn row(&self, at: u32) -> Option<Row> {
        self.rows.get(&at).copied()
    }

    pub(crate) fn take(&mut self, at: u32) -> Option<Row> {
        let row = self.rows.remove(&at)?;
        if let Some(rows) = self.of.get_mut(&row.storage) {
            rows.retain(|other| *other != at);
            if rows.is_empty() {
                self.of.remove(&row.storage);
            }
        }
        Some(row)
    }

    /// Something is under way with the copy `at`, to a tier or from it.
    pub(crate) fn begin(&mut self, at: u32, busy: Busy, queue: Option<(Tier, bool)>, step: Option<StepId>) {
        self.issued += 1;
        if let Some(row) = self.rows.get_mut(&at) {
            (row.busy, row.queue, row.step, row.issued) = (busy, queue, step, self.issued);
        }
    }

    /// What was under way with the copy `at` is done.
    pub(crate) fn end(&mut self, at: u32) {
        if let Some(row) = self.rows.get_mut(&at) {
            (row.busy, row.queue, row.step) = (Busy::Idle, None, None);
        }
    }

    /// What is under way in `queue` and was issued before `issued`, in the order in which it was.
    pub(crate) fn before(&self, queue: Option<(Tier, bool)>, issued: u64) -> Vec<u32> {
        let before = |row: &Row| row.busy != Busy::Idle && row.queue == queue && row.issued < issued;
        let rows = self.rows.iter().filter(|(_, row)| queue.is_some() && before(row));
        let mut found: Vec<(u64, u32)> = rows.map(|(&at, row)| (row.issued, at)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, at)| at).collect()
    }

    /// The copies of `storage`.
    pub(crate) fn of(&self, storage: u32) -> SmallVec<[u32; 1]> {
        self.of.get(&storage).cloned().unwrap_or_default()
    }

    /// The log is over: names in it mean nothing any more.
    pub(crate) fn forget_log(&mut self) {
        for row in self.rows.values_mut() {
            (row.logged, row.step) = (None, None);
        }
    }

    /// Whether there is no copy at all: what most engines may ask first, before each run.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether there is a copy of `storage`.
    pub(crate) fn has(&self, storage: u32) -> bool {
        !self.is_empty() && self.of.contains_key(&storage)
    }
}
