//! Values that wait in another form for a part of the step, whatever runs again meanwhile.

use memfit_ir::{Form, ValueId};

use super::runs::Runs;
use crate::schedule::ids::{NodeId, RunId};

/// A value that waits elsewhere: after the first run of node `gone`, up to which it stays, until the first run of node
/// `back`, or until a run before that uses it. Where it is made again in between, it's there from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Away {
    pub(in crate::schedule) value: ValueId,
    /// In another tier, or encoded in device memory.
    pub(in crate::schedule) form: Form,
    pub(in crate::schedule) gone: NodeId,
    /// The number of nodes for the end.
    pub(in crate::schedule) back: NodeId,
}

impl Away {
    /// The runs at its ends: first runs, which never go.
    pub(super) fn ends(&self) -> [RunId; 2] {
        [RunId::first(self.gone), RunId::first(self.back)]
    }
}

/// All that there are. Each has a place in a list, which it keeps.
#[derive(Default)]
pub(super) struct Absences {
    list: Vec<Option<Away>>,
    unused: Vec<usize>,
    count: usize,
    /// By value, if there have been any: places of its absences.
    of: Vec<Vec<usize>>,
    /// First runs that are events of a value without having it as an operand, and the value; ascending.
    touched: Vec<(RunId, ValueId)>,
}

impl Absences {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Their places.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.list.len()).filter(|&place| self.list[place].is_some())
    }

    pub(super) fn get(&self, place: usize) -> Option<Away> {
        self.list.get(place).copied().flatten()
    }

    /// Places of those of `value`.
    pub(super) fn of(&self, value: ValueId) -> &[usize] {
        self.of.get(value.index()).map_or(&[], Vec::as_slice)
    }

    /// Enters `away`, whose ends become events of its value, which are `events`.
    pub(super) fn enter(&mut self, away: Away, events: &mut Vec<RunId>, runs: &Runs) -> usize {
        for run in away.ends() {
            let at = events.partition_point(|&other| runs.position(other) < runs.position(run));
            if events.get(at) != Some(&run) {
                events.insert(at, run);
                let place = self.touched.partition_point(|&other| other < (run, away.value));
                self.touched.insert(place, (run, away.value));
            }
        }
        let place = self.unused.pop().unwrap_or(self.list.len());
        if place == self.list.len() {
            self.list.push(None);
        }
        self.list[place] = Some(away);
        if self.of.len() <= away.value.index() {
            self.of.resize(away.value.index() + 1, Vec::new());
        }
        self.of[away.value.index()].push(place);
        self.count += 1;
        place
    }

    /// The opposite. Entered again right after that, it has the same place.
    pub(super) fn leave(&mut self, place: usize, events: &mut Vec<RunId>, runs: &Runs) {
        let Some(away) = self.list[place].take() else { return };
        self.unused.push(place);
        self.count -= 1;
        self.of[away.value.index()].retain(|&other| other != place);
        for run in away.ends() {
            let others = self.of[away.value.index()].iter().filter_map(|&other| self.list[other]);
            let is_needed = others.into_iter().any(|other| other.ends().contains(&run));
            if let Ok(at) = self.touched.binary_search(&(run, away.value))
                && !is_needed
            {
                self.touched.remove(at);
                let at = events.partition_point(|&other| runs.position(other) < runs.position(run));
                events.remove(at);
            }
        }
    }

    /// The one by which `value` is away from `run`, an event of it, to its next one.
    pub(super) fn beginning(&self, value: ValueId, run: RunId) -> Option<usize> {
        let begins = |&place: &usize| self.get(place).is_some_and(|away| away.ends()[0] == run);
        self.of(value).iter().copied().find(begins)
    }

    /// Values of which `run` is an event without having them as operands.
    pub(super) fn touched(&self, run: RunId) -> impl Iterator<Item = ValueId> + '_ {
        let from = self.touched.partition_point(|&(at, _)| at < run);
        self.touched[from..].iter().take_while(move |&&(at, _)| at == run).map(|&(_, value)| value)
    }
}
