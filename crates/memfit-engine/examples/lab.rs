//! Lab.
#![allow(clippy::print_stdout, missing_docs, reason = "its purpose")]
#[path = "../tests/common/mod.rs"]
mod common;
use memfit_engine::replay::{Outcome, Trace, replay};
use memfit_engine::{Dealloc, Regeneration, Settings};
use memfit_formats::{checkmate_json, graph_json};
use memfit_ir::{Bytes, Graph, Nanos};

fn of_graph(graph: &Graph) -> Trace {
    Trace::of_graph(graph, |op| {
        let op = graph.op(op);
        op.time.unwrap_or(Nanos(3000 + (op.flops / 1e4).max(op.moved.0 as f64 / 1e3) as u64))
    })
}

fn main() {
    let variants: Vec<u64> = std::env::args().nth(1).unwrap().split(',').map(|v| v.parse().unwrap()).collect();
    let which = std::env::args().nth(2).unwrap_or("logs".into());
    let show = std::env::args().nth(3).is_some();
    let mut traces: Vec<(String, Trace)> = Vec::new();
    if which.contains("logs") {
        for name in common::LOGS.into_iter().filter(|n| *n != "lstm" || which.contains("lstm")) {
            traces.push((name.into(), common::recorded(name).unwrap()));
        }
    }
    if which.contains("checkmate") {
        for name in ["unet.train", "mobilenet.train", "random-n100"] {
            let bytes = std::fs::read(format!("/work/shared/data/checkmate/{name}.json")).unwrap();
            traces.push((name.into(), of_graph(&checkmate_json::read(&bytes).unwrap())));
        }
    }
    if which.contains("corpus") {
        for name in std::fs::read_dir("corpus/graphs").unwrap() {
            let path = name.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !name.contains("train") || name.contains("7b") {
                continue;
            }
            let graph = graph_json::read(&std::fs::read(&path).unwrap()).unwrap();
            traces.push((name, of_graph(&graph)));
        }
    }
    let mut sums = vec![(0.0, 0, 0, 0.0f64, 0); variants.len()];
    for (name, trace) in &traces {
        let base = trace.base();
        let mut rows: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        let ratios = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1];
        let run = |settings: &dyn Fn(Bytes) -> Settings| {
            let mut failed = 0;
            ratios
                .map(|ratio| {
                    if failed >= 2 {
                        return None;
                    }
                    let report = replay(trace, settings(common::part(base.peak, ratio)), 1.0).unwrap();
                    let done = report.outcome == Outcome::Done;
                    failed += i32::from(!done);
                    done.then(|| 1.0 + report.overhead())
                })
                .to_vec()
        };
        let eq = run(&|budget| Settings::simulator(budget, "eq"));
        rows.push(("eq".into(), eq.clone()));
        for (at, &variant) in variants.iter().enumerate() {
            let cells = run(&|budget| {
                let mut settings = Settings { align: Bytes(1), allocator: "ideal".into(), ..Settings::new(budget) };
                settings.options.seed = variant;
                settings.dealloc = if variant & 1 == 1 { Dealloc::Ignore } else { Dealloc::EagerEvict };
                settings.regeneration = if variant & 2 == 2 { Regeneration::Listed } else { Regeneration::Nested };
                settings
            });
            for (a, b) in eq.iter().zip(&cells) {
                let sum = &mut sums[at];
                match (a, b) {
                    (Some(a), Some(b)) => {
                        sum.0 += (b / a).ln();
                        sum.1 += 1;
                        sum.2 += i32::from(b > &(a + 0.01));
                        sum.3 = sum.3.max(b - a);
                    }
                    (Some(_), None) => sum.4 -= 100,
                    (None, Some(_)) => sum.4 += 1,
                    _ => {}
                }
            }
            rows.push((format!("{variant}"), cells));
        }
        if show {
            println!("{name}");
            for (row, cells) in rows {
                let text: Vec<String> =
                    cells.iter().map(|c| c.map_or("     -".into(), |c| format!("{c:.4}"))).collect();
                println!("{row:>10}  {}", text.join("  "));
            }
        }
    }
    for (variant, sum) in variants.iter().zip(&sums) {
        println!(
            "{variant}: geomean ratio {:.5}  worse cells {}  worst +{:.4}  more cells {}",
            (sum.0 / f64::from(sum.1)).exp(),
            sum.2,
            sum.3,
            sum.4
        );
    }
}
