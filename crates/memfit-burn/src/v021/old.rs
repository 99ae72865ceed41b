//! Which tensors are as good as parameters, and when a step's have been replaced: from that it is seen where a step ends, in a program that
//! does not say so.
//!
//! A thread that writes a checkpoint holds parameters while the optimizer makes new ones, and gives them up at any moment of a later step. That
//! moment is no end of a step, and what the optimizer has made of them are parameters: they take the place of theirs.

use std::thread::{self, ThreadId};

use burn_ir::TensorId as BurnId;
use rustc_hash::FxHashMap;

/// How many tensors are [old](super::core::Known::old): at most, and now. An optimizer that replaces the parameters leaves none. Not their
/// bytes: a large batch goes before that, too.
#[derive(Default)]
pub(super) struct Old {
    most: usize,
    now: usize,
    /// Whether the past was ever cut.
    pub(super) cut: bool,
    /// The thread that trains: the last one to run an op on an old tensor.
    trains: Option<ThreadId>,
    /// The last that was made as an optimizer makes it of an old tensor which stayed.
    heirs: FxHashMap<BurnId, BurnId>,
    /// Those that have come into their place since this was asked.
    arrived: Vec<BurnId>,
}

impl Old {
    /// Whether all but an eighth has gone.
    pub(super) fn has_gone(&self) -> bool {
        self.now <= self.most / 8 && self.most > 0
    }

    /// From now on `count` tensors are old, and no others.
    pub(super) fn are(&mut self, count: usize) {
        (self.most, self.now, self.cut) = (count, count, true);
        self.heirs.clear();
        self.arrived.clear();
    }

    /// One more is.
    pub(super) fn add(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    /// One that is old takes the place of one that was.
    pub(super) fn goes_on(&mut self) {
        self.now += 1;
    }

    /// The tensors that have taken the place of old ones which ended elsewhere, since this was asked.
    pub(super) fn take_arrived(&mut self) -> Vec<BurnId> {
        std::mem::take(&mut self.arrived)
    }

    /// No end of a step is to be seen by what goes, until all that is held is old again.
    pub(super) fn expect_none(&mut self) {
        self.most = 0;
    }

    /// This thread runs an op on an old tensor.
    pub(super) fn is_read(&mut self) {
        self.trains = Some(thread::current().id());
    }

    /// `heir` was made of what `of` holds.
    pub(super) fn inherits(&mut self, heir: BurnId, of: BurnId) {
        self.heirs.insert(of, heir);
    }

    /// The program gives the old tensor `id` up: what takes its place if it still is there.
    pub(super) fn end(&mut self, id: BurnId) -> Option<BurnId> {
        let before = self.has_gone();
        self.now -= 1;
        let heir = self.heirs.remove(&id);
        let elsewhere = self.trains.is_some_and(|trains| trains != thread::current().id());
        if elsewhere && heir.is_none() && !before && self.has_gone() {
            self.expect_none();
        }
        let heir = heir.filter(|_| elsewhere);
        self.arrived.extend(heir);
        heir
    }
}
