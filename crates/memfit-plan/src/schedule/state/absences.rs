//! Values that wait elsewhere for a part of the step, whatever runs again meanwhile.

use memfit_ir::ValueId;

use crate::schedule::ids::{NodeId, RunId};
use crate::schedule::runs::Runs;

/// A value that waits elsewhere: after the first run of node `gone`, up to which it stays, until the first run of node
/// `back`, or until a run before that uses it. Where it is made again in between, it's there from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Away {
    pub(in crate::schedule) value: ValueId,
    pub(in crate::schedule) gone: NodeId,
    /// One beyond all nodes for the end.
    pub(in crate::schedule) back: NodeId,
}

/// What a state knows of them. They never change, and first runs, which they speak of, never go.
#[derive(Default)]
pub(super) struct Absences {
    /// By value, if there are any: first runs after which it is away, until its next event.
    gone: Vec<Vec<RunId>>,
    /// First runs that are events of a value without having it as an operand, and the value; ascending.
    touched: Vec<(RunId, ValueId)>,
}

impl Absences {
    /// Enters `away` among the events, by value, of `runs`.
    pub(super) fn of(away: impl Iterator<Item = Away>, events: &mut [Vec<RunId>], runs: &Runs) -> Absences {
        let mut absences = Absences::default();
        for Away { value, gone, back } in away {
            absences.gone.resize(events.len(), Vec::new());
            let events = &mut events[value.index()];
            for run in [gone, back].map(RunId::first) {
                let at = events.partition_point(|&other| runs.position(other) < runs.position(run));
                if events.get(at) != Some(&run) {
                    events.insert(at, run);
                    absences.touched.push((run, value));
                }
            }
            absences.gone[value.index()].push(RunId::first(gone));
        }
        absences.touched.sort_unstable();
        absences
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }

    /// Whether `value` is away from `run`, an event of it, to its next one.
    pub(super) fn begins(&self, value: ValueId, run: RunId) -> bool {
        self.gone.get(value.index()).is_some_and(|gone| gone.contains(&run))
    }

    /// Values of which `run` is an event without having them as operands.
    pub(super) fn touched(&self, run: RunId) -> impl Iterator<Item = ValueId> + '_ {
        let from = self.touched.partition_point(|&(at, _)| at < run);
        self.touched[from..].iter().take_while(move |&&(at, _)| at == run).map(|&(_, value)| value)
    }
}
