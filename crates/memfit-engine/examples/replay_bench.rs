//! Every recorded log under every ratio with every evictor: `cargo run --release --example replay_bench [evictor …]`.
//!
//! Prints overheads (limit 2), as tables of DTR's kind. Needs `../shared/data/dtr-logs`.
#![allow(clippy::print_stdout, reason = "its purpose")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use memfit_engine::Settings;
use memfit_engine::evict::EVICTORS;
use memfit_engine::replay::{Outcome, replay};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for name in common::LOGS {
        let Some(trace) = common::recorded(name) else { continue };
        let base = trace.base();
        println!("{name}: {} calls, {} ns, peak {} B", base.calls, base.time.0, base.peak.0);
        for entry in EVICTORS {
            let evictor = entry.info.name;
            if !wanted.is_empty() && !wanted.iter().any(|name| name == evictor) {
                continue;
            }
            let mut row = format!("{evictor:>10}");
            let start = Instant::now();
            let mut failures = 0;
            for tenth in (1..=10).rev() {
                if failures >= 2 {
                    break;
                }
                let budget = common::part(base.peak, f64::from(tenth) / 10.0);
                let settings =
                    if evictor == "best" { best(budget) } else { Settings::simulator(budget, evictor) };
                let report = replay(&trace, settings, 1.0).expect("a recorded step can be replayed");
                row += &match report.outcome {
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

fn best(budget: memfit_ir::Bytes) -> Settings {
    Settings { align: memfit_ir::Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) }
}
