//! How long steps take that follow a plan, beside what was predicted, and where the difference lies.

use std::collections::VecDeque;

use memfit_engine::stepping::Stepped;
use memfit_ir::{Digest, Nanos};

/// The share of the prediction by which a step may take longer or shorter before the reason is told.
const CLOSE: f64 = 0.15;

/// Steps that are remembered.
const MOST: usize = 101;

/// The time of a step within a plan, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Each op once, with all that the program and memfit do around it.
    pub once: Nanos,
    /// Repetitions, codecs, and waiting for copies.
    pub again: Nanos,
}

impl Parts {
    /// The whole step.
    #[must_use]
    pub fn sum(self) -> Nanos {
        self.once + self.again
    }

    /// Where the difference lies, if this takes 15 % more or less than was `predicted`.
    #[must_use]
    pub fn why_not(self, predicted: Parts) -> Option<String> {
        let off = self.sum().0 as f64 / predicted.sum().0.max(1) as f64 - 1.0;
        (off.abs() > CLOSE).then(|| {
            format!(
                "{} by the plan, {} predicted ({:+.0} %): repetitions and copies took {} ({} predicted), each op once, and all \
                 around it, {} ({} in the step that was planned)",
                self.sum(),
                predicted.sum(),
                off * 100.0,
                self.again,
                predicted.again,
                self.once,
                predicted.once,
            )
        })
    }
}

/// Steps by the last plan: predicted before the first of them, and measured.
///
/// The prediction is what the recorded step took, less its repetitions and waiting, and what the plan takes for these.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// The sequence that the plan is for.
    sequence: Option<Digest>,
    predicted: Option<Parts>,
    /// The last [`MOST`].
    measured: VecDeque<Parts>,
}

impl Timing {
    /// There is a plan for `sequence` from now on.
    pub(crate) fn predict(&mut self, sequence: Option<Digest>, predicted: Option<Parts>) {
        *self = Timing { sequence, predicted, measured: VecDeque::new() };
    }

    /// A step has ended that took `took`. Those that were not guided to their end, or by another plan, are not counted.
    pub(crate) fn step(&mut self, took: Parts, stepped: &Stepped) {
        if stepped.guided && stepped.sequence == self.sequence {
            if self.measured.len() == MOST {
                self.measured.pop_front();
            }
            self.measured.push_back(took);
        }
    }

    /// What was predicted; `None` for a plan from an earlier run, of which no step has been seen.
    #[must_use]
    pub fn predicted(&self) -> Option<Parts> {
        self.predicted
    }

    /// The median step that followed the plan, if one has.
    #[must_use]
    pub fn measured(&self) -> Option<Parts> {
        let mut steps: Vec<Parts> = self.measured.iter().copied().collect();
        steps.sort_unstable_by_key(|parts| (parts.sum(), parts.again));
        steps.get(steps.len().saturating_sub(1) / 2).copied()
    }
}

/// A step that took `took` in all.
pub(crate) fn parts(took: Nanos, stepped: &Stepped) -> Parts {
    let again = Nanos(stepped.recompute_ns.saturating_add(stepped.stall_ns));
    Parts { once: Nanos(took.0.saturating_sub(again.0)), again }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stepped(guided: bool) -> Stepped {
        Stepped {
            sequence: None,
            expected: guided,
            guided,
            wants_plan: false,
            planned: false,
            recompute_ns: 3,
            stall_ns: 4,
            predicted_ns: None,
        }
    }

    fn why(timing: &Timing) -> Option<String> {
        timing.measured()?.why_not(timing.predicted()?)
    }

    fn digest(name: &str) -> Digest {
        Digest::hasher(name).finish()
    }

    #[test]
    fn a_step_far_from_its_prediction_says_where_the_time_went() {
        let mut timing = Timing::default();
        timing.predict(None, Some(Parts { once: Nanos(100), again: Nanos(10) }));
        assert_eq!(why(&timing), None, "nothing was measured");
        for (once, guided) in [(900, false), (110, true), (112, true), (500, true)] {
            timing.step(Parts { once: Nanos(once), again: Nanos(10) }, &stepped(guided));
        }
        assert_eq!(timing.measured(), Some(Parts { once: Nanos(112), again: Nanos(10) }));
        assert_eq!(why(&timing), None, "122 is within 15 % of 110");
        for _ in 0..4 {
            timing.step(Parts { once: Nanos(101), again: Nanos(50) }, &stepped(true));
        }
        let why = why(&timing).unwrap();
        let parts =
            ["151 ns by the plan, 110 ns predicted (+37 %)", "took 50 ns (10 ns pred", "101 ns (100 ns in"];
        for part in parts {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn less_than_was_predicted_is_told_as_well() {
        let mut timing = Timing::default();
        timing.predict(None, Some(Parts { once: Nanos(100), again: Nanos(100) }));
        timing.step(Parts { once: Nanos(100), again: Nanos(0) }, &stepped(true));
        assert!(why(&timing).unwrap().contains("(-50 %)"));
    }

    #[test]
    fn another_plan_begins_anew() {
        let mut timing = Timing::default();
        timing.predict(None, Some(Parts { once: Nanos(1), again: Nanos(0) }));
        timing.step(parts(Nanos(100), &stepped(true)), &stepped(true));
        assert_eq!(timing.measured(), Some(Parts { once: Nanos(93), again: Nanos(7) }));
        timing.predict(None, None);
        assert_eq!((timing.predicted(), timing.measured(), why(&timing)), (None, None, None));
    }

    #[test]
    fn steps_by_another_plan_do_not_count() {
        let mut timing = Timing::default();
        timing.predict(Some(digest("one")), None);
        timing.step(Parts::default(), &Stepped { sequence: Some(digest("other")), ..stepped(true) });
        assert_eq!(timing.measured(), None);
        timing.step(Parts::default(), &Stepped { sequence: Some(digest("one")), ..stepped(true) });
        assert_eq!(timing.measured(), Some(Parts::default()));
    }

    #[test]
    fn no_more_steps_are_kept_than_are_needed() {
        let mut timing = Timing::default();
        for at in 0..1000 {
            timing.step(Parts { once: Nanos(at), again: Nanos(0) }, &stepped(true));
        }
        assert_eq!(timing.measured.len(), MOST);
        assert_eq!(timing.measured(), Some(Parts { once: Nanos(949), again: Nanos(0) }));
    }
}
