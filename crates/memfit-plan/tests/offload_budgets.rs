//! `offload:best` on small graphs: nothing is faster where there is little to choose, and more memory is never slower.
//!
//! A part of the graphs; `MEMFIT_CASES=1000` takes as many.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_ir::{Bytes, Device, Graph, InPlace, Link, Nanos, OpId, OpSpec, Store, ValueId, ValueSpec};
use memfit_plan::Context;
use memfit_plan::schedule::{LEAST_MOVED, Scheduler, Task, early, offload};
use memfit_testkit::brute::fastest_moves;
use memfit_testkit::{Layered, Rng, Sketch, cases, device, layered, one_of};

/// Slow or fast, so that all or little of what moves is waited for; beside a disk every third time, which is all there is every
/// ninth; now and then both directions share their rate, or ops wait for transfers.
fn machine(seed: u64) -> Device {
    let (out_bandwidth, in_bandwidth) = if seed.is_multiple_of(2) { (4e8, 6e8) } else { (4e9, 6e9) };
    let duplex_cap = if seed % 5 == 1 { out_bandwidth } else { f64::INFINITY };
    let link =
        Link { out_bandwidth, in_bandwidth, duplex_cap, latency: Nanos(100), asynchronous: seed % 7 != 3 };
    let disk =
        Store { capacity: Bytes(1 << 30), link: Link { out_bandwidth: 2e8, in_bandwidth: 3e8, ..link } };
    Device {
        link: Some(link).filter(|_| seed % 9 != 4),
        host_memory: Bytes(1 << 30),
        disk: Some(disk).filter(|_| seed % 3 == 1),
        ..device()
    }
}

/// `device` with so much host memory, if it has a link there.
fn with_host(device: Device, host: Bytes) -> Device {
    let host_memory = if device.link.is_some() { host } else { Bytes(0) };
    Device { host_memory, ..device }
}

fn random(seed: u64, ops: usize) -> Graph {
    let layers = if seed.is_multiple_of(4) { ops / 2 } else { ops.saturating_sub(2) };
    let sparse = usize::try_from(seed % 3).unwrap();
    layered(Layered { ops, edges: ops * 2, layers, skips: 60, unit: 64, sparse }, seed)
}

/// Layers forward and backward, of which each reads its map again.
fn training(seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    let mut sketch = Sketch::default();
    let layers = 2 + rng.below(2);
    let value = |sketch: &mut Sketch, rng: &mut Rng| {
        let size = Bytes(4096 * (1 + rng.below(12)) as u64);
        sketch.values.push(ValueSpec { size, ..ValueSpec::default() });
        ValueId::at(sketch.values.len() - 1)
    };
    let op = |sketch: &mut Sketch, reads: Vec<ValueId>, write: ValueId, rng: &mut Rng| {
        let time = Some(Nanos(1000 * (1 + rng.below(100)) as u64));
        sketch.ops.push(OpSpec {
            kind: "layer".into(),
            reads,
            writes: vec![write],
            time,
            ..OpSpec::default()
        });
    };
    let mut maps = vec![value(&mut sketch, &mut rng)];
    op(&mut sketch, Vec::new(), maps[0], &mut rng);
    for at in 0..layers {
        let map = value(&mut sketch, &mut rng);
        op(&mut sketch, vec![maps[at]], map, &mut rng);
        maps.push(map);
    }
    let mut gradient = maps[layers];
    for at in (0..layers).rev() {
        let next = value(&mut sketch, &mut rng);
        op(&mut sketch, vec![gradient, maps[at]], next, &mut rng);
        gradient = next;
    }
    sketch.results.push(gradient);
    sketch.build()
}

/// Amounts of host memory, from none to all there is.
fn hosts(graph: &Graph) -> Vec<Bytes> {
    let total: u64 = graph.value_ids().map(|value| graph.value(value).size.0).sum();
    [0, 8, 15, 30, 100].iter().map(|part| Bytes(total * part / 100)).collect()
}

fn budget(task: &Task<'_>, part: u64) -> Bytes {
    let (floor, peak) = (task.floor().0, task.reference());
    Bytes(floor.0 + peak.0.saturating_sub(floor.0) * part / 100)
}

/// Whatever the budget, and whatever the host memory: more of either is never slower, and never does not fit where less does.
#[test]
fn budgets_are_monotone() {
    let count = cases(10);
    let (mut plans, mut waits) = (0u64, 0u64);
    for seed in (0..1000).step_by(usize::try_from((1000 / count).max(1)).unwrap()) {
        let graph = random(seed, 4 + usize::try_from(seed % 29).unwrap());
        let order: Vec<OpId> = graph.op_ids().collect();
        let machine = machine(seed);
        let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed / 2 % 2).unwrap()];
        let task = Task::new(&graph, &order, in_place, true, &Context::new(&machine));
        // By budget: the time with less host memory.
        let mut before: Vec<Option<Nanos>> = Vec::new();
        for host in hosts(&graph) {
            let device = with_host(machine.clone(), host);
            let context = Context::new(&device);
            let mut last: Option<Nanos> = None;
            let mut row = Vec::new();
            for part in (0..=100).step_by(7) {
                let what = format!("seed {seed}, {part} %, host {host}");
                let time = offload::Best
                    .plan(&task, budget(&task, part), &context)
                    .ok()
                    .and_then(|front| front.time());
                let less = [last, before.get(row.len()).copied().flatten()].into_iter().flatten().min();
                assert!(
                    less.is_none_or(|less| time.is_some_and(|time| time <= less)),
                    "{what}: {time:?}, {less:?} with less"
                );
                plans += u64::from(time.is_some());
                waits += u64::from(time.is_some_and(|time| time > task.base_time()));
                last = time.or(last);
                row.push(time);
            }
            before = row;
        }
    }
    println!("{plans} plans, {waits} of them wait for transfers");
    assert!(plans > 20 * count && waits > count);
}

/// On graphs of few ops: exactly the time of the best of all steps, or none where there is none.
#[test]
fn nothing_is_faster_on_graphs_of_few_ops() {
    let (mut same, mut none, mut waits) = (0u64, 0u64, 0u64);
    let part = one_of(2) as u64;
    for seed in 0..cases(60 / part) {
        let graph = training(seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        for (part, host) in [(0, 4), (20, 4), (50, 4), (30, 2), (60, 1)] {
            let machine = machine(seed);
            let device = with_host(machine, hosts(&graph)[host]);
            let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed / 2 % 2).unwrap()];
            let context = Context::new(&device);
            let task = Task::new(&graph, &order, in_place, true, &context);
            let (budget, what) = (budget(&task, part), format!("seed {seed}, {part} %, host {host}"));
            let order = early(&graph, &order, in_place, device.align);
            let best = fastest_moves(&graph, (&order, in_place), &device, (budget, LEAST_MOVED));
            let ours = offload::Best.plan(&task, budget, &context).ok().and_then(|front| front.time());
            assert_eq!(ours, best, "{what}");
            same += u64::from(best.is_some());
            none += u64::from(best.is_none());
            waits += u64::from(best.is_some_and(|best| best > task.base_time()));
        }
    }
    println!("{same} as fast as the best there is, {waits} of which wait; {none} where there is none");
    assert!(same > 100 / part && waits > 20 / part && none > 5 / part);
}
