//! Plans by `auto` of graphs whose ops have a choice of algorithms: memory that is left over is used for faster ones, in every budget.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use memfit::strategies::families::Named;
use memfit::{Budget, Bytes, Device, Graph, Nanos, Planned, input};
use memfit_ir::{OpId, Step};
use memfit_testkit::{cases, device, mixed, one_of, with_algorithms};

mod common;

use common::{machines, planned};

fn graph(seed: u64) -> Graph {
    with_algorithms(&mixed(seed), 64 << (seed % 3 * 3), seed)
}

/// The number of the algorithm by which each op goes, the same in all its runs.
fn algorithms(planned: &Planned) -> BTreeMap<OpId, u16> {
    let mut found = BTreeMap::new();
    for step in &planned.verified.plan().program.steps {
        if let Step::Compute(compute) = step {
            let first = *found.entry(compute.op).or_insert(compute.algorithm);
            assert_eq!(first, compute.algorithm, "two runs of {:?} by two algorithms", compute.op);
        }
    }
    found
}

/// Every op once by its fastest algorithm.
fn least(graph: &Graph, device: &Device) -> Nanos {
    let times = graph.op_ids().map(|id| {
        let op = graph.op(id);
        let others = op.algorithms.iter().map(|algorithm| device.time_by(&op, algorithm));
        others.fold(device.time(&op), Nanos::min)
    });
    times.sum()
}

#[test]
fn all_go_by_the_fastest_where_there_is_room_for_it() {
    let mut faster = 0;
    for seed in 0..cases(40) {
        let (graph, device) = (graph(seed), device());
        let planned = planned(&graph, &device, Budget::Bytes(Bytes(1 << 40)), None).unwrap();
        algorithms(&planned);
        let summary = &planned.summary;
        assert_eq!((summary.time, summary.time_bound), (least(&graph, &device), summary.time), "seed {seed}");
        faster += u64::from(summary.time < summary.base_time);
    }
    assert!(faster * 4 > cases(40) * 3, "{faster}");
}

/// Also above every op once: there the plan of a smaller budget was faster, which had had to look for one.
#[test]
fn nobody_quick_is_faster_and_more_memory_is_seldom_slower() {
    let (mut pairs, mut slower, mut named, mut faster) = (0u64, 0u64, 0u64, 0u64);
    let count = cases(4 / one_of(2) as u64);
    for seed in (0..count).map(|at| at * 7 + 1) {
        let graph = graph(seed);
        for device in machines(seed) {
            let mut before: Option<Nanos> = None;
            for (at, percent) in [10u32, 40, 70, 100, 120].into_iter().enumerate() {
                let what = format!("seed {seed}, floor + {percent} %, link {}", device.link.is_some());
                let budget = Budget::AboveFloor(f64::from(percent) / 100.0);
                let auto = planned(&graph, &device, budget, None);
                auto.iter().for_each(|auto| _ = algorithms(auto));
                let time = auto.map(|planned| planned.summary.time);
                if let Some(before) = before {
                    pairs += 1;
                    slower += u64::from(time.is_none_or(|time| time > before));
                }
                before = time.or(before);
                let waits = |one: &Named| device.link.is_some() || one.family.name != "offload";
                let turn = |one: usize| (one + at).is_multiple_of(6);
                for (_, one) in Named::quick().filter(waits).enumerate().filter(|(one, _)| turn(*one)) {
                    let name = one.name();
                    let Some(other) = planned(&graph, &device, budget, Some(&name)) else { continue };
                    let other = other.summary.time;
                    assert!(time.is_some_and(|time| time <= other), "{what}: {time:?}, `{name}` {other}");
                    faster += u64::from(time.is_some_and(|time| time < other));
                    named += 1;
                }
            }
        }
    }
    assert!(pairs >= 3 * count && slower * 20 <= pairs, "{slower} of {pairs}");
    assert!(named > 10 * count && faster > 5 * count, "{faster} of {named}");
}

/// A U-Net as PyTorch captures it, whose convolutions have other algorithms.
#[test]
fn a_captured_network_is_faster_with_more_memory() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/unet.json.zst");
    let graph = input::graph(&std::fs::read(path).unwrap(), &input::Options::default()).unwrap();
    let device = input::device("H100").unwrap();
    let mut times = Vec::new();
    for percent in [30u32, 60, 100] {
        let budget = Budget::AboveFloor(f64::from(percent) / 100.0);
        let planned = planned(&graph, &device, budget, None).unwrap();
        algorithms(&planned);
        times.push((planned.summary.time.0 as f64) / planned.summary.base_time.0 as f64);
    }
    assert!(times.is_sorted_by(|less, more| less >= more), "{times:?}");
    assert!(times[0] < 0.9 && times[2] < 0.7, "{times:?}");
}
