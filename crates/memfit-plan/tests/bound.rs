//! No step of a small graph, by brute force over runs and transfers, is faster than the bound says, and the bound says something.
//!
//! A part of the graphs; `MEMFIT_CASES=1000` takes as many.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_ir::{Bytes, Device, Graph, InPlace, Link, Nanos, OpId, OpSpec, ValueId, ValueSpec};
use memfit_plan::schedule::{Task, least_time};
use memfit_plan::{Context, Means};
use memfit_testkit::brute::best_steps;
use memfit_testkit::{Rng, Sketch, cases, device};

/// None, or one of three rates: from where next to nothing can move within the step to where all of it can.
fn machine(seed: u64) -> Device {
    let rate = [None, Some(2e8), Some(1e9), Some(5e9)][usize::try_from(seed % 4).unwrap()];
    let link = rate.map(|rate| Link {
        out_bandwidth: rate,
        in_bandwidth: rate * [0.7, 1.5][usize::try_from(seed / 4 % 2).unwrap()],
        duplex_cap: f64::INFINITY,
        latency: Nanos(if seed.is_multiple_of(3) { 0 } else { 100 }),
        asynchronous: true,
    });
    Device { link, host_memory: Bytes(if link.is_some() { 1 << 30 } else { 0 }), ..device() }
}

/// Layers forward and backward, each of which reads its map again, and some of which read another one.
fn training(layers: usize, seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    let mut sketch = Sketch::default();
    let op = |sketch: &mut Sketch, rng: &mut Rng, reads: Vec<ValueId>| {
        let size = Bytes(4096 * (1 + rng.below(12)) as u64);
        sketch.values.push(ValueSpec { size, ..ValueSpec::default() });
        let write = ValueId::at(sketch.values.len() - 1);
        let time = Some(Nanos(1000 * (1 + rng.below(60)) as u64));
        let (kind, writes) = ("layer".into(), vec![write]);
        sketch.ops.push(OpSpec { kind, reads, writes, time, ..OpSpec::default() });
        write
    };
    let mut maps = vec![op(&mut sketch, &mut rng, Vec::new())];
    for at in 0..layers {
        let mut reads = vec![maps[at]];
        if at > 0 && rng.chance(30) {
            reads.push(maps[rng.below(at)]);
        }
        maps.push(op(&mut sketch, &mut rng, reads));
    }
    let mut gradient = maps[layers];
    for at in (0..layers).rev() {
        gradient = op(&mut sketch, &mut rng, vec![gradient, maps[at]]);
    }
    sketch.results.push(gradient);
    sketch.build()
}

#[test]
fn no_step_is_faster_than_the_bound() {
    let (mut cells, mut met, mut above, mut waits) = (0u64, 0u64, 0u64, 0u64);
    let count = cases(48);
    for seed in 0..count {
        // Nine ops where nothing moves, less where brute force has more to try.
        let device = machine(seed);
        let layers = match device.link {
            None => 2 + usize::try_from(seed / 4 % 3).unwrap(),
            Some(_) => 2 + usize::from((seed / 4).is_multiple_of(6)),
        };
        let graph = training(layers, seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed / 8 % 2).unwrap()];
        let context = Context::new(&device);
        let task = Task::new(&graph, &order, in_place, true, &context);
        let more = if layers == 2 || device.link.is_none() { 2 } else { 1 };
        for (peak, time) in best_steps(&graph, in_place, &device, (Bytes(1), more)) {
            let means = Means { compress: false, ..Means::ALL };
            let bound = least_time(&task, peak, means, &context);
            let what = format!("seed {seed}, {layers} layers, {peak}");
            assert!(bound <= time, "{what}: the bound {bound} is above {time}");
            assert!(bound >= task.least_time(), "{what}");
            cells += 1;
            met += u64::from(bound == time);
            above += u64::from(bound > task.least_time());
            waits += u64::from(device.link.is_some() && bound > task.least_time());
        }
    }
    println!(
        "{cells} cells, the bound met in {met}, above the base in {above}, of which {waits} with a link"
    );
    assert!(cells > 2 * count && above > count / 2 && waits > count / 8);
}
