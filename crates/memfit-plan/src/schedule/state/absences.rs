//! Values that wait elsewhere for a part of the step, whatever runs again meanwhile.

use super::State;
use crate::schedule::runs::RunId;

/// A value that waits elsewhere: after the first run of node `gone`, up to which it stays, until the first run of node
/// `back`, or until a run before that uses it. Where it is made again in between, it's there from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Away {
    pub(in crate::schedule) value: u32,
    pub(in crate::schedule) gone: u32,
    /// The number of nodes for the end.
    pub(in crate::schedule) back: u32,
}

/// What a state knows of them. They never change, and first runs, which they speak of, never go.
#[derive(Default)]
pub(super) struct Absences {
    /// By value, if there are any: first runs after which it is away, until its next event.
    gone: Vec<Vec<RunId>>,
    /// First runs that are events of a value without having it as an operand, and the value; ascending.
    touched: Vec<(RunId, u32)>,
}

impl Absences {
    /// Whether `value` is away from `run`, an event of it, to its next one.
    pub(super) fn begins(&self, value: u32, run: RunId) -> bool {
        self.gone.get(value as usize).is_some_and(|gone| gone.contains(&run))
    }
}

impl State<'_, '_> {
    /// Enters the values of `away` among the events, before there is a profile.
    pub(super) fn leave(&mut self, away: &[Away]) {
        if away.is_empty() {
            return;
        }
        self.absences.gone = vec![Vec::new(); self.events.len()];
        for &Away { value, gone, back } in away.iter().filter(|away| self.tracked[away.value as usize]) {
            // First runs, and the end, are named as their nodes are.
            for run in [gone, back] {
                let at = self.event_at(value, self.runs.position(run));
                if self.events(value).get(at) != Some(&run) {
                    self.events[value as usize].insert(at, run);
                    self.absences.touched.push((run, value));
                }
            }
            self.absences.gone[value as usize].push(gone);
        }
        self.absences.touched.sort_unstable();
    }

    /// Whether `value` comes back from elsewhere for `run`, if that is an event of it.
    pub(super) fn comes_back(&self, run: RunId, value: u32) -> bool {
        let is_ever_away = self.absences.gone.get(value as usize).is_some_and(|gone| !gone.is_empty());
        if !is_ever_away || self.defines(run, value) {
            return false;
        }
        let at = self.event_at(value, self.runs.position(run));
        let events = self.events(value);
        let before = at.checked_sub(1).map(|before| events[before]);
        events.get(at) == Some(&run) && before.is_some_and(|before| self.absences.begins(value, before))
    }

    /// Bytes that come back from elsewhere for `run`.
    pub(super) fn back(&self, run: RunId) -> i64 {
        let Absences { gone, touched } = &self.absences;
        if gone.is_empty() {
            return 0;
        }
        let from = touched.partition_point(|&(at, _)| at < run);
        let touched = touched[from..].iter().take_while(|&&(at, _)| at == run).map(|&(_, value)| value);
        let node = self.runs.node(run);
        let operands = (0..self.operand_count(node)).map(|at| self.operand(node, at));
        let back = touched.chain(operands).filter(|&value| self.comes_back(run, value));
        back.map(|value| self.task.size[value as usize]).sum()
    }
}
