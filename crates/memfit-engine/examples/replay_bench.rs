//! Every recorded log under every ratio with every evictor: `cargo run --release --example replay_bench [evictor …]`.
//!
//! Prints overheads (limit 2), as tables of DTR's kind. Needs `../shared/data/dtr-logs`.
#![allow(clippy::print_stdout, reason = "its purpose")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use memfit_engine::Settings;
use memfit_engine::evict::EVICTORS;
use memfit_engine::offline::Portfolio;
use memfit_engine::replay::{Outcome, ReplayReport, Trace, replay, replay_planned};
use memfit_ir::Bytes;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut names: Vec<&str> = EVICTORS.iter().map(|entry| entry.info.name).collect();
    names.push("planned");
    for log in common::LOGS {
        let Some(trace) = common::recorded(log) else { continue };
        let base = trace.base();
        println!("{log}: {} calls, {} ns, peak {} B", base.calls, base.time.0, base.peak.0);
        for &name in
            names.iter().filter(|name| wanted.is_empty() || wanted.iter().any(|other| other == *name))
        {
            let start = Instant::now();
            let (mut row, mut failures) = (format!("{name:>10}"), 0);
            for tenth in (1..=10).rev() {
                if failures >= 2 {
                    break;
                }
                let report = run(&trace, name, common::part(base.peak, f64::from(tenth) / 10.0));
                row += &match report.outcome {
                    Outcome::Done if name == "planned" && !report.guided => "  diverged".to_owned(),
                    Outcome::Done => format!("  {:.4}", 1.0 + report.overhead()),
                    Outcome::NoRoom(_) => "     OOM".to_owned(),
                    Outcome::Slow => "       T".to_owned(),
                };
                failures += u32::from(report.outcome != Outcome::Done);
            }
            println!("{row}   {:.2} s", start.elapsed().as_secs_f64());
        }
    }
}

fn run(trace: &Trace, name: &str, budget: Bytes) -> ReplayReport {
    let ours = Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) };
    match name {
        "planned" => replay_planned(trace, ours, 1.0, &mut Portfolio::default()).map(|(report, _)| report),
        "best" => replay(trace, ours, 1.0),
        _ => replay(trace, Settings::simulator(budget, name), 1.0),
    }
    .expect("a recorded step can be replayed")
}
