//! G10's kernel traces, on the machine that its authors simulate: as fast as G10 and faster, within its memories.
//!
//! Zhang et al., "G10", MICRO 2023, and its artifact: 40 GiB on the device, 128 GB of host memory, an SSD. Skipped where the
//! traces are not beside the checkout.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::{Budget, Bytes, Goal, Means, Nanos, Options, Tools, input, plan};

/// A trace, the sum of its kernels, and how close to that G10 came.
const TRACES: [(&str, u64, f64); 2] =
    [("bert-base-256", 7_285_465_834, 0.9965), ("resnet152-1280", 112_589_384_242, 0.9840)];

#[test]
fn steps_are_as_fast_as_those_of_g10() {
    for (name, ideal, published) in TRACES {
        let path = format!("{}/../../../shared/data/g10/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let Ok(bytes) = std::fs::read(path) else {
            println!("SKIPPED: `shared/data/g10/{name}.json` is not there");
            continue;
        };
        let graph = input::graph(&bytes, &input::Options::default()).unwrap();
        let speed = |strategy: &str| {
            let budget: Budget = "40GiB".parse().unwrap();
            let host = Bytes(128_000_000_000);
            let means = Means { recompute: false, ..Means::ALL };
            let options = Options { means, host_budget: Some(host), ..Options::default() };
            let goal = Goal { options, ..Goal::new(input::device("g10-a100").unwrap(), budget) };
            let planned = plan(&graph, &goal.with_strategy(strategy), &Tools::none()).unwrap();
            let summary = planned.summary;
            assert_eq!((summary.base_time, summary.recompute), (Nanos(ideal), Nanos::ZERO), "{name}");
            assert!(summary.peak <= Bytes(40 << 30) && summary.host_peak <= host, "{name}: {summary:?}");
            println!("{name} by {strategy}: {}, {} on disk", summary.time, summary.disk_peak);
            ideal as f64 / summary.time.0 as f64
        };
        let [g10, ours, demand] = ["offload:g10", "offload:best", "offload:lru"].map(speed);
        assert!(g10 > published * 0.97, "{name}: {g10}");
        assert!(ours >= published && ours >= g10, "{name}: {ours}");
        assert!(demand < published, "{name}: {demand}");
    }
}
