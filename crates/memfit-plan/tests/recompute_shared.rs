//! Known optima and published bars, on the shared graphs and the corpus. No timing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod order_graphs;

use std::path::Path;

use memfit_formats::graph_json;
use memfit_ir::{
    Bytes, Graph, GraphBuilder, InPlace, Limits, Nanos, OpId, OpSpec, Phase, Plan, ValueId, ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::families::Named;
use memfit_plan::place::{PLACERS, Problem};
use memfit_plan::schedule::{Task, fit};
use memfit_verify::verify;

/// One of Checkmate's networks, or nothing, loudly.
fn checkmate(name: &str) -> Option<Graph> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/checkmate");
    let Ok(text) = std::fs::read(root.join(format!("{name}.train.json"))) else {
        eprintln!("SKIPPED: the shared data with {name} is not here");
        return None;
    };
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let mut reads: Vec<Vec<ValueId>> = vec![Vec::new(); nodes.len()];
    let index = |v: &serde_json::Value| usize::try_from(v.as_u64().unwrap()).unwrap();
    for link in json["links"].as_array().unwrap() {
        reads[index(&link["target"])].push(ValueId::at(index(&link["source"])));
    }
    let mut b = GraphBuilder::new(name);
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(index(&node["id"]), at);
        let size = Bytes(node["cost_ram"].as_u64().unwrap());
        let value = b.value(ValueSpec { size, ..ValueSpec::default() }).unwrap();
        let phase = if node["backward"].as_bool().unwrap() { Phase::Backward } else { Phase::Forward };
        let time = Some(Nanos(node["cost_cpu"].as_u64().unwrap() * 1000));
        let reads = std::mem::take(&mut reads[at]);
        b.op(OpSpec { reads, writes: vec![value], phase, time, ..OpSpec::default() }).unwrap();
    }
    Some(b.finish().unwrap())
}

/// Overhead of `best` at tenths of the peak.
fn overheads(graph: &Graph, tenths: &[u64]) -> Vec<f64> {
    let mut device = order_graphs::device();
    device.align = Bytes(1);
    let context = Context::new(&device);
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(graph, &order, InPlace::May, false, &context);
    let strategy = Named::called("recompute:best").unwrap().scheduler;
    let base = task.base_time().as_secs_f64();
    let overhead = |&tenth: &u64| {
        let budget = Bytes(task.reference().0 * tenth / 10);
        let front = strategy.plan(&task, budget, &context).unwrap();
        front.points[0].cost.time.as_secs_f64() / base
    };
    tenths.iter().map(overhead).collect()
}

#[test]
fn best_is_optimal_where_the_optimum_is_known() {
    let Some(graph) = checkmate("unet") else { return };
    let found = overheads(&graph, &[8, 7, 6, 5, 4]);
    for (found, optimum) in found[..3].iter().zip([1.0198, 1.0297, 1.0445]) {
        assert!((found - optimum).abs() < 5e-5, "{found} instead of {optimum}");
    }
    // The best known to a solver within its limit.
    assert!(found[3] < 1.07195 && found[4] < 1.13635, "{found:?}");
}

#[test]
fn best_is_never_above_the_best_greedy() {
    let bars: [(&str, &[u64], &[f64]); 2] = [
        ("vgg16", &[9], &[1.0197]),
        (
            "mobilenet",
            &[9, 8, 7, 6, 5, 4, 3, 2],
            &[1.0016, 1.0038, 1.0063, 1.0109, 1.017, 1.0256, 1.0436, 1.0933],
        ),
    ];
    for (name, tenths, bars) in bars {
        let Some(graph) = checkmate(name) else { continue };
        for (found, bar) in overheads(&graph, tenths).iter().zip(bars) {
            assert!(*found < bar + 5e-5, "{name}: {found} above {bar}");
        }
    }
}

/// A residual chain: layer i reads i − 1 and i − 2; backward mirrors it.
fn residual(layers: usize) -> Graph {
    let mut b = GraphBuilder::new("residual");
    for node in 0..2 * layers {
        let value = b.value(ValueSpec { size: Bytes(1 << 20), ..ValueSpec::default() }).unwrap();
        let mut reads: Vec<usize> = Vec::new();
        if node > 0 {
            reads.push(node - 1);
        }
        let phase = if node < layers { Phase::Forward } else { Phase::Backward };
        if node >= layers {
            reads.push(2 * layers - 1 - node);
        } else if node > 1 && node % 2 == 0 {
            reads.push(node - 2);
        }
        reads.sort_unstable();
        reads.dedup();
        // Backward takes twice as long as forward.
        let time = Some(Nanos(if node < layers { 1000 } else { 2000 }));
        let reads = reads.into_iter().map(ValueId::at).collect();
        b.op(OpSpec { reads, writes: vec![value], phase, time, ..OpSpec::default() }).unwrap();
    }
    b.finish().unwrap()
}

#[test]
fn a_thousand_residual_layers_take_the_root_of_their_memory() {
    let graph = residual(1000);
    let device = order_graphs::device();
    let context = Context::new(&device);
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(&graph, &order, InPlace::May, false, &context);
    // 1000 layers: 2 √1000 is 63; with what a residual adds, and what one op needs, below 100 of 1001.
    let budget = Bytes(100 << 20);
    for name in ["recompute:best", "recompute:chen-greedy"] {
        let front = Named::called(name).unwrap().scheduler.plan(&task, budget, &context).unwrap();
        let overhead = front.points[0].cost.time.as_secs_f64() / task.base_time().as_secs_f64();
        assert!(overhead <= 1.35, "{name}: {overhead}");
    }
}

#[test]
fn batch_norm_runs_again_on_a_snapshot_and_counts_its_batches_once() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/graphs/mobilenet-v2-train-b256.json.zst");
    let graph = graph_json::read(&std::fs::read(path).unwrap()).unwrap();
    let mut device = order_graphs::device();
    (device.align, device.memory) = (Bytes(512), Bytes(1 << 40));
    let context = Context::new(&device);
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(&graph, &order, InPlace::May, false, &context);
    let floor = task.floor().0;
    let budget = Bytes(floor.0 + (task.reference().0 - floor.0) / 2);
    let limits = Limits::arena(budget, device.align);
    let strategy = Named::called("recompute:next-use").unwrap().scheduler;
    let done = fit(strategy, &task, budget, &context, |program| {
        let (problem, item_of) = Problem::of(&graph, program, &limits);
        let placed = PLACERS[4].place(&problem, &context).ok()?;
        Some((placed.height, Problem::layout(&placed.places, &item_of)))
    });
    let done = done.unwrap();
    let encoded = done.program.steps.iter().filter(|step| matches!(step, memfit_ir::Step::Encode { .. }));
    assert!(encoded.count() > 0, "no snapshot was needed");
    let timeline = memfit_sim::simulate(&graph, &done.program, Some(&done.placed), &device);
    assert_eq!(timeline.live_peak, done.cost.peak);
    assert_eq!(timeline.time, done.cost.time);
    let plan = Plan { graph: graph.digest(), program: done.program, layout: done.placed };
    let verified = verify(&graph, &limits, plan).unwrap();
    assert_eq!(timeline.peak(), verified.peak());
}
