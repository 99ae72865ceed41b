//! The judge's word against real bytes.

use std::sync::Arc;

use memfit_verify::verify;

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
    /// Accepted, but the bytes are wrong, or the peak is not what the judge says: a hole.
    AcceptedWrong,
}

/// Asks both.
#[must_use]
pub fn try_plan(truth: &Truth, case: &Case) -> Verdict {
    let ran = check(truth, &case.graph, &case.limits, &case.plan);
    match (verify(&case.graph, &case.limits, case.plan.clone()), ran) {
        (Ok(verified), Ok(peaks)) if verified.peaks() == peaks => Verdict::AcceptedRight,
        (Ok(_), _) => Verdict::AcceptedWrong,
        (Err(_), Ok(_)) => Verdict::RejectedRight,
        (Err(_), Err(_)) => Verdict::RejectedWrong,
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
