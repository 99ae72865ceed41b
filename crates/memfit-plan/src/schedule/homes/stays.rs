//! When storages that are at home elsewhere are on the device.

use memfit_ir::{Action, Form, Tier, ValueId};

use super::Home;
use crate::schedule::Task;
use crate::schedule::ids::NodeId;

/// One stay on the device, told by positions in a run list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct HomeStay {
    /// Which storage, by its place among those of the task.
    home: usize,
    form: Form,
    /// Bytes on the device.
    pub(super) bytes: i64,
    /// What it holds when it is loaded, and at the end; another value if a run has mutated it.
    loaded: ValueId,
    stored: ValueId,
    /// The run before which it is loaded.
    pub(super) load: usize,
    /// The first and the last run that use it.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The last run during which it is still there.
    pub(super) gone: usize,
}

impl HomeStay {
    /// Whether a run has mutated it, so that it must be stored.
    pub(super) fn is_dirty(&self) -> bool {
        self.loaded != self.stored
    }

    /// What it holds when it is loaded.
    pub(super) fn value(&self) -> ValueId {
        self.loaded
    }

    /// The tier that it is at home in, if it is in another.
    pub(super) fn tier(&self) -> Option<Tier> {
        self.form.tier()
    }

    /// Whether `next` is the next stay of the same storage.
    pub(super) fn is_before(&self, next: &HomeStay) -> bool {
        self.home == next.home && self.last < next.first
    }

    /// The stay that goes on until the end of `next`, the next one of the same storage.
    pub(super) fn until(self, next: HomeStay) -> HomeStay {
        HomeStay { stored: next.stored, last: next.last, gone: next.gone, ..self }
    }

    /// When it is loaded, and how; and the run that uses it first.
    pub(in crate::schedule) fn load(&self) -> (usize, Action, usize) {
        (self.load, Action::Load(self.loaded, self.form), self.first)
    }

    /// When it is stored, and how, if it must be.
    pub(in crate::schedule) fn store(&self) -> Option<(usize, Action)> {
        let store = Action::Store(self.stored, self.form);
        self.is_dirty().then_some((self.last + 1, store))
    }

    /// When it goes, if it is stored and goes later than that.
    pub(in crate::schedule) fn release(&self) -> Option<(usize, Action)> {
        let is_later = self.is_dirty() && self.gone > self.last;
        is_later.then_some((self.gone + 1, Action::Release(self.stored, None)))
    }
}

/// Stays for one use each, as short as can be; uses by runs that follow each other are one stay. By storage, then by time.
/// `runs`: what runs in order, and whether for the first time.
pub(in crate::schedule) fn beside(
    task: &Task<'_>,
    runs: impl Iterator<Item = (NodeId, bool)>,
) -> Vec<HomeStay> {
    let homes = &task.homes;
    if homes.is_empty() {
        return Vec::new();
    }
    let mut stays: Vec<Vec<HomeStay>> = vec![Vec::new(); homes.list.len()];
    for (at, (node, first)) in runs.enumerate() {
        for &value in task.reads_of(node, first) {
            let Some(place) = homes.of(value) else { continue };
            let Home { form, bytes, .. } = homes.list[place];
            let mut pairs = task.reuses.row(node.index()).iter().filter(|pair| pair.must);
            let stored = pairs.find(|pair| pair.input == value).map_or(value, |pair| pair.output);
            let (load, last, gone) = (at, at, at);
            let stay =
                HomeStay { home: place, form, bytes, loaded: value, stored, load, first: at, last, gone };
            match stays[place].last_mut() {
                Some(before) if before.last + 1 >= at => *before = before.until(stay),
                _ => stays[place].push(stay),
            }
        }
    }
    stays.into_iter().flatten().collect()
}
