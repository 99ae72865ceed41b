//! The evictor `best` and guided runs, against the figures of DTR's simulator on the recorded logs.
//!
//! Needs `../shared/data/dtr-logs`, and says so where it's absent.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use memfit_engine::Settings;
use memfit_engine::offline::{Effort, Portfolio};
use memfit_engine::replay::{Outcome, ReplayReport, Trace, replay, replay_planned};
use memfit_ir::Bytes;
use memfit_testkit::one_of;

const RATIOS: [f64; 10] = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1];

fn ours(budget: Bytes) -> Settings {
    Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) }
}

fn done(report: &ReplayReport) -> Option<f64> {
    (report.outcome == Outcome::Done).then(|| report.overhead())
}

fn eq(trace: &Trace, budget: Bytes) -> Option<f64> {
    done(&replay(trace, Settings::simulator(budget, "eq"), 1.0).unwrap())
}

#[test]
fn best_completes_where_eq_does_and_costs_less() {
    let (mut logarithms, mut cells) = (0.0, 0u32);
    for log in common::LOGS {
        let Some(trace) = common::recorded(log) else { return };
        for ratio in RATIOS {
            let budget = common::part(trace.base().peak, ratio);
            let report = replay(&trace, ours(budget), 1.0).unwrap();
            assert!(report.stats.peak <= budget);
            let Some(eq) = eq(&trace, budget) else { continue };
            let best =
                done(&report).unwrap_or_else(|| panic!("{log} at {ratio}: eq completes, best does not"));
            assert!(best <= eq + 0.01, "{log} at {ratio}: best {best}, eq {eq}");
            logarithms += ((1.0 + best) / (1.0 + eq)).ln();
            cells += 1;
        }
    }
    let mean = (logarithms / f64::from(cells)).exp();
    println!("geometric mean of the times: {mean:.4} of eq's in {cells} cells");
    assert!(mean < 1.0);
    let unet = common::recorded("unet").unwrap();
    let lower = common::part(unet.base().peak, 0.4);
    assert!(eq(&unet, lower).is_none() && done(&replay(&unet, ours(lower), 1.0).unwrap()).is_some());
}

#[test]
fn no_budget_below_what_is_unavoidable_does() {
    for log in common::LOGS {
        let Some(trace) = common::recorded(log) else { return };
        let free = replay(&trace, ours(Bytes(u64::MAX / 4)), 1.0).unwrap();
        let Bytes(unavoidable) = free.stats.unavoidable;
        println!("{log}: {unavoidable} of {}", free.stats.peak);
        assert!(unavoidable > 0 && unavoidable <= free.stats.peak.0, "{log}");
        for budget in [unavoidable - 1, unavoidable / 2] {
            let report = replay(&trace, ours(Bytes(budget)), 50.0).unwrap();
            assert!(done(&report).is_none(), "{log}: {budget} of {unavoidable}");
        }
    }
}

/// The best heuristic's overhead in the simulator, from 0.9 down to 0.2 (`dynamic-rematerialisation.md`, §5.2).
const TABLE: [(&str, [f64; 8]); 4] = [
    ("unet", [0.0160, 0.0333, 0.0493, 0.0878, 0.1325, 0.2413, 0.5851, f64::INFINITY]),
    ("resnet32", [0.0127, 0.0244, 0.0371, 0.0631, 0.1062, 0.1404, 0.1782, 0.3322]),
    ("transformer", [0.0090, 0.0199, 0.0314, 0.0442, 0.0584, 0.0803, 0.1125, 0.5449]),
    ("lstm", [0.0135, 0.0268, 0.0314, 0.0425, 0.0651, 0.1590, 0.3005, 0.5502]),
];

#[test]
fn a_planned_second_step_beats_every_heuristic() {
    // The portfolio alone, without the search: the search only makes it cheaper.
    let effort = Effort { tries: 0, ..Effort::default() };
    // A third of the cells; `MEMFIT_ALL=1` takes all.
    let part = one_of(3);
    for (at, (log, cells)) in TABLE.iter().enumerate() {
        let Some(trace) = common::recorded(log) else { continue };
        for (ratio, table) in RATIOS[1..].iter().zip(*cells).skip(at % part).step_by(part) {
            if table.is_infinite() {
                continue;
            }
            let budget = common::part(trace.base().peak, *ratio);
            let (report, _) = replay_planned(&trace, ours(budget), 1.0, &mut Portfolio { effort }).unwrap();
            let planned = done(&report).unwrap_or_else(|| panic!("{log} at {ratio}: {:?}", report.outcome));
            assert!(report.guided && report.stats.peak <= budget, "{log} at {ratio}");
            let bar = if *ratio <= 0.5 { table - 1e-9 } else { table + 5e-5 };
            assert!(planned <= bar, "{log} at {ratio}: planned {planned}, table {table}");
        }
    }
}
