//! Values that wait elsewhere for a part of the step, whatever runs again meanwhile.

use crate::schedule::runs::{RunId, Runs};

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
    /// Enters `away` among the events, by value, of `runs`.
    pub(super) fn of(away: impl Iterator<Item = Away>, events: &mut [Vec<RunId>], runs: &Runs) -> Absences {
        let mut absences = Absences::default();
        for Away { value, gone, back } in away {
            absences.gone.resize(events.len(), Vec::new());
            let events = &mut events[value as usize];
            // First runs, and the end, are named as their nodes are.
            for run in [gone, back] {
                let at = events.partition_point(|&other| runs.position(other) < runs.position(run));
                if events.get(at) != Some(&run) {
                    events.insert(at, run);
                    absences.touched.push((run, value));
                }
            }
            absences.gone[value as usize].push(gone);
        }
        absences.touched.sort_unstable();
        absences
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }

    /// Whether `value` is away from `run`, an event of it, to its next one.
    pub(super) fn begins(&self, value: u32, run: RunId) -> bool {
        self.gone.get(value as usize).is_some_and(|gone| gone.contains(&run))
    }

    /// Values of which `run` is an event without having them as operands.
    pub(super) fn touched(&self, run: RunId) -> impl Iterator<Item = u32> + '_ {
        let from = self.touched.partition_point(|&(at, _)| at < run);
        self.touched[from..].iter().take_while(move |&&(at, _)| at == run).map(|&(_, value)| value)
    }
}
