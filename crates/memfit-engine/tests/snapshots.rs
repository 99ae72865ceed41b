//! Ops that overwrite a little of what lasts can be repeated, and leave it as if they had run once.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::Numbers;
use memfit_engine::replay::{Event, Trace, drive, record};
use memfit_engine::{Engine, Fault, Settings};
use memfit_ir::{Bytes, Effect, Graph, GraphBuilder, Limits, Nanos, OpSpec, Reuse, Role, ValueId, ValueSpec};
use memfit_testkit::Rng;

/// A chain of layers with batch norm and back: each op `norm` overwrites two small statistics.
fn chain(seed: u64, layers: usize) -> Graph {
    let mut rng = Rng::new(seed);
    let mut b = GraphBuilder::new("chain");
    let value = |b: &mut GraphBuilder, size: u64, role: Role| {
        b.value(ValueSpec { size: Bytes(size), role, ..ValueSpec::default() }).unwrap()
    };
    let sizes: Vec<u64> = (0..layers).map(|_| 4 * (100 + rng.below(200) as u64)).collect();
    let mut stats: Vec<ValueId> =
        (0..2 * layers).map(|at| value(&mut b, 4 * (1 + at as u64 % 3), Role::State)).collect();
    let weight = value(&mut b, 64, Role::Parameter);
    let mut last = value(&mut b, 512, Role::Input);
    let mut kept = Vec::new();
    let op = |b: &mut GraphBuilder, kind: &str, reads: &[ValueId], writes: &[ValueId], pairs: &[usize]| {
        let reuses = pairs.iter().map(|&at| {
            let output = writes[writes.len() - pairs.len() + at];
            Reuse { input: reads[reads.len() - pairs.len() + at], output, must: true }
        });
        b.op(OpSpec {
            kind: kind.into(),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            reuses: reuses.collect(),
            time: Some(Nanos(100)),
            effect: if kind == "dropout" { Effect::Seeded } else { Effect::Pure },
            ..OpSpec::default()
        })
        .unwrap();
    };
    for layer in 0..layers {
        let conv = value(&mut b, sizes[layer], Role::Activation);
        op(&mut b, "conv", &[last, weight], &[conv], &[]);
        let normed = value(&mut b, sizes[layer], Role::Activation);
        let (mean, var) = (stats[2 * layer], stats[2 * layer + 1]);
        let sizes_of = [4 * (1 + (2 * layer) as u64 % 3), 4 * (1 + (2 * layer + 1) as u64 % 3)];
        let next = sizes_of.map(|size| value(&mut b, size, Role::Activation));
        op(&mut b, "norm", &[conv, mean, var], &[normed, next[0], next[1]], &[0, 1]);
        (stats[2 * layer], stats[2 * layer + 1]) = (next[0], next[1]);
        last = normed;
        if layer % 3 == 2 {
            last = value(&mut b, sizes[layer], Role::Activation);
            op(&mut b, "dropout", &[normed], &[last], &[]);
        }
        kept.push((conv, normed));
    }
    let mut gradient = value(&mut b, 400, Role::Gradient);
    op(&mut b, "loss", &[last], &[gradient], &[]);
    for &(conv, normed) in kept.iter().rev() {
        let next = value(&mut b, 400, Role::Gradient);
        op(&mut b, "backward", &[gradient, conv, normed], &[next], &[]);
        gradient = next;
    }
    for result in stats.into_iter().chain([gradient, weight]) {
        b.result(result).unwrap();
    }
    b.finish().unwrap()
}

/// What the step leaves in memory, and the most that was in use.
fn numbers(trace: &Trace, budget: Bytes) -> Result<(Vec<u64>, u64), Fault> {
    let settings = Settings { align: Bytes(4), ..Settings::new(budget) };
    let mut engine = Engine::new(Numbers::default(), settings)?;
    drive(&mut engine, trace)?;
    let held = engine.held();
    let mut numbers = Vec::new();
    for tensor in held {
        let block = engine.get(tensor)?;
        numbers.push(engine.host.held[&block.offset.0]);
    }
    numbers.sort_unstable();
    assert!(engine.host.most <= budget.0);
    Ok((numbers, engine.stats().recomputes))
}

#[test]
fn what_lasts_comes_out_as_without_a_budget() {
    let (mut plain, mut snapshots, mut again) = (0, 0, 0);
    for seed in 0..60 {
        let graph = chain(seed, 6 + usize::try_from(seed).unwrap() % 9);
        let trace = Trace::of_graph(&graph, |_| Nanos(100));
        let with = trace.with_snapshots(|_| Nanos(10));
        assert_eq!(with.with_snapshots(|_| Nanos(10)), with, "nothing is left to copy");
        let peak = trace.base().peak;
        let (truth, _) = numbers(&trace, Bytes(peak.0 * 4)).unwrap();
        assert_eq!(numbers(&with, Bytes(peak.0 * 4)).unwrap().0, truth);
        for part in [14, 11, 9, 8] {
            let budget = Bytes(peak.0 * part / 16).round_up(Bytes(4));
            if let Ok((found, _)) = numbers(&trace, budget) {
                assert_eq!(found, truth);
                plain += 1;
            }
            if let Ok((found, recomputes)) = numbers(&with, budget) {
                assert_eq!(found, truth, "seed {seed}, {part}");
                snapshots += 1;
                again += recomputes;
            }
            let settings = Settings { align: Bytes(4), ..Settings::new(budget) };
            if let Ok((recorded, _)) = record(&with, settings) {
                let limits = Limits { replays_random: true, ..Limits::arena(budget, Bytes(4)) };
                let plan = recorded.plan().unwrap();
                let truth = memfit_testkit::bytes::Truth::of(&recorded.graph);
                memfit_testkit::bytes::check(&truth, &recorded.graph, &limits, &plan).unwrap();
                memfit_verify::verify(&recorded.graph, &limits, plan).unwrap();
            }
        }
    }
    println!("{plain} runs fitted without snapshots, {snapshots} with, {again} ops ran again");
    assert!(snapshots > 3 * plain / 2 && again > 1000);
}

/// Training steps of the corpus with batch norm, online, at the floor and half of what lies above it.
#[test]
fn convolutional_nets_fit_online() {
    for (name, percent) in [("resnet50-train-b32", 10), ("densenet121-train-b64", 20)] {
        let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
        let graph = memfit_formats::graph_json::read(&std::fs::read(path).unwrap()).unwrap();
        let device = memfit_formats::device_toml::preset("A100-80").unwrap();
        let trace = Trace::of_graph(&graph, |op| device.time(&graph.op(op)));
        let with = trace.with_snapshots(|bytes| device.copy_time(bytes));
        assert!(with.events.len() > trace.events.len());
        let (peak, sources) = (trace.base().peak, sources(&trace));
        let budget = sources + Bytes((peak.0 - sources.0) * 11 / 20);
        assert!(matches!(record(&trace, Settings::new(budget)), Err(Fault::NoRoom(_))), "{name}");
        let (recorded, stats) = record(&with, Settings::new(budget)).unwrap();
        println!("{name}: {} of {} ns again", stats.recompute_ns, stats.first_ns);
        assert!(stats.recomputes > 50 && stats.recompute_ns < stats.first_ns / 100 * percent, "{name}");
        let limits = Limits { replays_random: true, ..Limits::arena(budget, Bytes(512)) };
        memfit_verify::verify(&recorded.graph, &limits, recorded.plan().unwrap()).unwrap();
    }
}

/// Bytes that are there from the start and last.
fn sources(trace: &Trace) -> Bytes {
    let lasting = trace.events.iter().filter_map(|event| match event {
        Event::Put { size, role } if role.is_persistent() => Some(*size),
        _ => None,
    });
    lasting.sum()
}
