//! G10's kernel traces, on the machine that its authors simulate: as fast as G10 and faster, within its memories.
//!
//! Zhang et al., "G10", MICRO 2023, and its artifact: 40 GiB on the device, 128 GB of host memory, an SSD. Skipped where the
//! traces are not beside the checkout.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::{Budget, Bytes, Goal, Graph, Means, Nanos, Options, Tools, input, plan};

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
        flashneuron(name, &graph);
        assert!(g10 > published * 0.97, "{name}: {g10}");
        assert!(ours >= published && ours >= g10, "{name}: {ours}");
        assert!(demand < published, "{name}: {demand}");
    }
}

/// What G10's artifact simulates as FlashNeuron: the bytes that it moves, and its time in ms.
const FLASHNEURON: [(&str, u64, f64); 2] =
    [("bert-base-256", 10_884_612_096, 10_215.5), ("resnet152-1280", 266_407_002_112, 175_261.0)];

/// The same choice of what moves, to the byte, and nearly the same time. The artifact counts an SSD of "3.2 GB/s" in GiB, and its
/// memory in pages.
fn flashneuron(name: &str, graph: &Graph) {
    let (_, bytes, published) = FLASHNEURON.into_iter().find(|(known, ..)| *known == name).unwrap();
    let mut device = input::device("g10-a100").unwrap();
    let disk = &mut device.disk.as_mut().unwrap().link;
    (disk.out_bandwidth, disk.in_bandwidth) = (3.2 * f64::from(1 << 30), 3.2 * f64::from(1 << 30));
    let strategies = ["offload:flashneuron", "order:given", "budget:live"].map(str::to_owned).to_vec();
    let options = Options { strategies, ..Options::default() };
    let goal = Goal { options, ..Goal::new(device, "40GiB".parse().unwrap()) };
    let summary = plan(graph, &goal, &Tools::none()).unwrap().summary;
    let ms = summary.time.0 as f64 / 1e6;
    println!("{name} by offload:flashneuron: {ms:.1} ms, {} B moved", summary.offloaded.0);
    assert!(summary.live_peak <= Bytes(40 << 30) && summary.host_peak == Bytes::ZERO, "{name}: {summary:?}");
    assert_eq!(summary.offloaded, Bytes(bytes), "{name}");
    assert!((ms / published - 1.0).abs() < 0.02, "{name}: {ms}");
}
