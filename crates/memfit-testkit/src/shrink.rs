//! Makes a failing plan smaller before people read it.

use std::sync::Arc;

use crate::{Case, Draft};

/// `case` without every step whose absence keeps `fails` true, tried one by one until none is left to drop.
/// The graph and the limits stay. Time O(s²) calls of `fails` for s steps.
#[must_use]
pub fn shrink(case: &Case, fails: impl Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    loop {
        let draft = Draft::of(&best.plan);
        let without = |at: usize| {
            let mut smaller = draft.clone();
            smaller.lines.remove(at);
            let plan = smaller.plan(best.plan.graph);
            Case { graph: Arc::clone(&best.graph), limits: best.limits.clone(), plan }
        };
        match (0..draft.lines.len()).rev().map(without).find(|smaller| fails(smaller)) {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::case;

    #[test]
    fn only_what_matters_is_left() {
        let case = case(11);
        let computes = |case: &crate::Case| {
            case.plan.program.steps.iter().filter(|step| matches!(step, memfit_ir::Step::Compute(_))).count()
        };
        let small = shrink(&case, |case| computes(case) >= 2);
        assert_eq!((small.plan.program.steps.len(), computes(&small)), (2, 2));
    }
}
