//! The judge's word against real bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use memfit_verify::{Rule, verify};

use crate::bytes::{Truth, check};
use crate::{Case, Draft, MUTATORS, Patient, Rng};

/// What judge and bytes say of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Rejected, and the bytes are wrong.
    RejectedWrong,
    /// Rejected, although the bytes came out right: the judge is strict.
    RejectedRight,
    /// Accepted, and the bytes are right.
    AcceptedRight,
    /// Accepted, but the bytes are wrong, or the peak is not what the judge says, or the judge panicked.
    AcceptedWrong,
}

/// Asks both. Also says by which rule the plan was rejected, where it was by one alone.
#[must_use]
pub fn try_plan(truth: &Truth, case: &Case) -> (Verdict, Option<Rule>) {
    let ran = check(truth, &case.graph, &case.limits, &case.plan);
    let judge = || verify(&case.graph, &case.limits, case.plan.clone());
    let Ok(judged) = catch_unwind(AssertUnwindSafe(judge)) else { return (Verdict::AcceptedWrong, None) };
    match (judged, ran) {
        (Ok(verified), Ok(peaks)) if verified.peaks() == peaks => (Verdict::AcceptedRight, None),
        (Ok(_), _) => (Verdict::AcceptedWrong, None),
        (Err(rejected), ran) => {
            let verdict = if ran.is_ok() { Verdict::RejectedRight } else { Verdict::RejectedWrong };
            let mut rules = rejected.violations.iter().map(|violation| violation.rule);
            let first = rules.next();
            (verdict, first.filter(|first| rules.all(|rule| rule == *first)))
        }
    }
}

/// `case` with one mutation, and which it was; sometimes a second one on top. `None` where the mutator finds
/// nothing to change, or changed nothing.
#[must_use]
pub fn mutant(case: &Case, rng: &mut Rng) -> Option<(usize, Case)> {
    let (mut draft, mut limits) = (Draft::of(&case.plan), case.limits.clone());
    let which = rng.below(MUTATORS.len());
    let mut patient = Patient { graph: &case.graph, draft: &mut draft, limits: &mut limits, rng };
    (MUTATORS[which].1)(&mut patient)?;
    if patient.rng.chance(10) {
        let second = patient.rng.below(MUTATORS.len());
        (MUTATORS[second].1)(&mut patient);
    }
    let plan = draft.plan(case.plan.graph);
    let changed = plan != case.plan || limits != case.limits;
    changed.then(|| (which, Case { graph: Arc::clone(&case.graph), limits, plan }))
}
