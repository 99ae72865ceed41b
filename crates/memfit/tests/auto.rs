//! `auto` on random graphs: as fast as every named scheduler that is quick, in every budget, with a link and without.
//!
//! A part of the graphs; `MEMFIT_CASES=1000` takes as many.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::strategies::families::Named;
use memfit::{Budget, Nanos, Planned};
use memfit_testkit::{cases, mixed as graph, one_of};

mod common;

use common::{machines, planned};

/// A part of what lies between floor and peak, in percent.
fn above_floor(percent: u32) -> Budget {
    Budget::AboveFloor(f64::from(percent) / 100.0)
}

#[test]
fn auto_is_as_fast_as_every_quick_scheduler_and_more_memory_is_not_slower() {
    let count = cases(2);
    // A part of the strategies, and every other budget, if not asked for more; `MEMFIT_ALL=1` takes all budgets.
    let few = std::env::var("MEMFIT_CASES").is_err();
    let part = if few { one_of(2) } else { 1 };
    let (mut cells, mut named, mut faster) = (0u64, 0u64, 0u64);
    for seed in (0..1000).step_by(usize::try_from((1000 / count).max(1)).unwrap()) {
        // Of both kinds.
        let seed = seed + seed / 250 % 2;
        let graph = graph(seed);
        for device in machines(seed) {
            let mut before: Option<Nanos> = None;
            for budget in [5u32, 25, 50, 80].into_iter().skip(part - 1).step_by(part) {
                let what = format!("seed {seed}, floor + {budget} %, link {}", device.link.is_some());
                let auto = planned(&graph, &device, above_floor(budget), None);
                let time = auto.as_ref().map(|planned| planned.summary.time);
                assert!(
                    before.is_none_or(|before| time.is_some_and(|time| time <= before)),
                    "{what}: {time:?}, {before:?}"
                );
                before = time;
                if budget == 25 {
                    let again = planned(&graph, &device, above_floor(budget), None);
                    let file =
                        |planned: Option<Planned>| planned.map(|planned| planned.verified.plan().clone());
                    assert_eq!(file(auto), file(again), "{what}");
                }
                let waits = |one: &Named| device.link.is_some() || one.family.name != "offload";
                let turn = |at: usize| !few || (at as u64 + cells).is_multiple_of(4);
                for (_, one) in Named::quick().filter(waits).enumerate().filter(|(at, _)| turn(*at)) {
                    let name = one.name();
                    let Some(other) = planned(&graph, &device, above_floor(budget), Some(&name)) else {
                        continue;
                    };
                    let other = other.summary.time;
                    assert!(time.is_some_and(|time| time <= other), "{what}: {time:?}, `{name}` {other}");
                    faster += u64::from(time.is_some_and(|time| time < other));
                    named += 1;
                }
                cells += 1;
            }
        }
    }
    println!("{cells} cells, {named} plans by name, auto faster than {faster} of them");
    let part = part as u64;
    assert!(named > 10 * count / part && faster > 2 * count / part);
}
