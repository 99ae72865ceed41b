//! The least budget for which the portfolio has a plan.
//!
//! Budgets between two that fit need not fit, so the first of many is looked for before its edge is.

use memfit_ir::Bytes;

use super::{Effort, plan};
use crate::engine::Settings;
use crate::trace::Trace;

/// Budgets between floor and peak that are tried before the search goes into detail.
const RUNGS: u64 = 24;

/// How close to the edge the search goes: one part in so many.
const NEAR: u64 = 64;

/// The least budget from `floor` to `most` that a plan for `trace` was found for, to one part in 64; `None` if none was. Only
/// the portfolio is asked, which may recompute as much as `effort` allows. Where `settings.allowance` ends the search, what
/// it has come to.
#[must_use]
pub fn least_budget(
    trace: &Trace,
    settings: &Settings,
    (floor, most): (Bytes, Bytes),
    effort: &Effort,
) -> Option<Bytes> {
    let effort = Effort { tries: 0, ..*effort };
    let fits = |budget: u64| {
        let settings = Settings { budget: Bytes(budget), ..settings.clone() };
        plan(trace, &settings, &effort).is_ok()
    };
    let (floor, most) = (floor.0, most.max(floor).0);
    let step = (most - floor) / RUNGS;
    let rungs = (0..RUNGS).map(|rung| floor + step * rung).chain([most]);
    let mut high = { rungs }.find(|&budget| fits(budget))?;
    let mut low = high.saturating_sub(step).max(floor);
    while high - low > (high / NEAR).max(1) {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(Bytes(high))
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Effect, Nanos, Role};

    use super::*;
    use crate::call::Output;
    use crate::trace::Event;

    #[test]
    fn a_chain_that_is_read_back_needs_far_less_than_its_peak() {
        let (kb, layers) = (Bytes(1024), 32);
        let mut trace = Trace { kinds: vec!["relu".to_owned()], ..Trace::default() };
        let call = |reads: Vec<u32>| {
            let (outputs, time, workspace) = (vec![Output::Fresh(kb)], Nanos(100), Bytes::ZERO);
            Event::Call { kind: 0, reads, outputs, time, workspace, effect: Effect::Pure }
        };
        trace.events.push(Event::Put { size: kb, role: Role::Input });
        trace.events.extend((0..layers).map(|at| call(vec![at])));
        for at in 0..layers {
            trace.events.push(call(vec![layers + at, layers - at - 1]));
            trace.events.extend([layers + at, layers - at - 1].map(Event::Release));
        }
        trace.held.push(2 * layers);
        let settings =
            Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(Bytes::MAX) };
        let peak = trace.base().peak;
        let effort = Effort { most_recompute: 100, ..Effort::default() };
        let least = |floor, most| least_budget(&trace, &settings, (floor, most), &effort);
        let found = least(kb, peak).expect("the peak does");
        assert!(found < Bytes(peak.0 / 2) && found >= Bytes(3 * 1024), "{found} of {peak}");
        assert_eq!(least(kb, Bytes(2048)), None);
    }
}
