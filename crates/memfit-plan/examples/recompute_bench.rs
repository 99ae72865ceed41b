//! Tables of `recompute` on the shared graphs and the corpus, beside the figures of the notes.
//!
//! `recompute_bench [NAME…] [@checkmate|@hammer|@layered|@PART]`: strategies to run, `best` by default, on the shared
//! graphs, on 10,000 random graphs with judge and real bytes, on layered random graphs, or on the corpus graphs named so. Planning time is
//! that of one thread. `ONLY=unet RATIOS=0.7,0.6 EFFORT=3` in the environment narrow the shared graphs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::path::Path;
use std::time::Duration;

use memfit_formats::graph_json;
use memfit_ir::{
    Bytes, Device, Dtype, Graph, GraphBuilder, InPlace, Limits, Nanos, OpId, OpSpec, Plan, Program, ValueId,
    ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::families::Named;
use memfit_plan::order::ORDERS;
use memfit_plan::place::{PLACERS, Problem};
use memfit_plan::schedule::{RunList, Scheduler, Task, fit};
use memfit_testkit::{Layered, layered};

/// Processor time of this thread so far: other work on the machine doesn't count.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn device(align: u64) -> Device {
    Device {
        name: "bench".into(),
        memory: Bytes(u64::MAX),
        align: Bytes(align),
        flops: vec![(Dtype::F32, 67e12), (Dtype::Bf16, 990e12)],
        bandwidth: 3.35e12,
        efficiency: (0.6, 0.8),
        launch: Nanos(2000),
        copy: None,
        codecs: Vec::new(),
        link: None,
        host_memory: Bytes::ZERO,
        disk: None,
    }
}

/// A graph of (bytes, cost, operands) in an order in which it can run.
fn graph(name: &str, nodes: &[(u64, u64, Vec<usize>)]) -> Graph {
    let mut b = GraphBuilder::new(name);
    for (bytes, cost, reads) in nodes {
        let value = b.value(ValueSpec { size: Bytes(*bytes), ..ValueSpec::default() }).unwrap();
        let reads = reads.iter().map(|&read| ValueId::at(read)).collect();
        let spec = OpSpec { reads, writes: vec![value], time: Some(Nanos(*cost)), ..OpSpec::default() };
        b.op(spec).unwrap();
    }
    b.finish().unwrap()
}

fn checkmate(path: &Path) -> Option<Graph> {
    let text = std::fs::read(path).ok()?;
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let number = |v: &serde_json::Value| v.as_u64().unwrap();
    let layered = json["graph"].get("order").is_some();
    let ids: Vec<u64> = if layered {
        json["graph"]["order"].as_array().unwrap().iter().map(number).collect()
    } else {
        let mut ids: Vec<u64> = json["nodes"].as_array().unwrap().iter().map(|n| number(&n["id"])).collect();
        ids.sort_unstable();
        ids
    };
    let at = |id: u64| ids.iter().position(|&other| other == id).unwrap();
    let (size, cost, id) =
        if layered { ("out_cost", "duration", "name") } else { ("cost_ram", "cost_cpu", "id") };
    let (from, to) = if layered { ("0", "1") } else { ("source", "target") };
    let mut nodes: Vec<(u64, u64, Vec<usize>)> = vec![(0, 0, Vec::new()); ids.len()];
    for node in json["nodes"].as_array().unwrap() {
        let row = &mut nodes[at(number(&node[id]))];
        (row.0, row.1) = (number(&node[size]), number(&node[cost]) * 1000);
    }
    for link in json["links"].as_array().unwrap() {
        nodes[at(number(&link[to]))].2.push(at(number(&link[from])));
    }
    Some(graph(&path.file_stem().unwrap().to_string_lossy(), &nodes))
}

fn chain(layers: usize) -> Graph {
    let nodes = (0..2 * layers + 1).map(|node| {
        let mut reads = Vec::new();
        if node > 0 {
            reads.push(node - 1);
        }
        if node > layers {
            let layer = 2 * layers - node;
            reads.push(layer);
            if layer > 0 {
                reads.push(layer - 1);
            }
            reads.sort_unstable();
            reads.dedup();
        }
        (1, 1000, reads)
    });
    graph(&format!("chain{layers}"), &nodes.collect::<Vec<_>>())
}

/// Layers, edges in a hundred that skip some, and bytes that sizes are multiples of.
const LAYERED: [(usize, usize, u64); 5] =
    [(60, 14, 10), (60, 14, 4096), (100, 3, 4096), (20, 14, 4096), (250, 30, 4096)];

const RATIOS: [f64; 8] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];

fn ratios(graph: &Graph, strategy: &dyn Scheduler, best: [f64; 8]) {
    let device = device(1);
    let setting = |name: &str| std::env::var(name).ok();
    let effort = setting("EFFORT").and_then(|text| text.parse().ok()).unwrap_or(1);
    let context = Context { effort, ..Context::new(&device) };
    let only = setting("ONLY");
    if only.as_ref().is_some_and(|only| !graph.name().contains(only)) {
        return;
    }
    let order: Vec<OpId> = graph.op_ids().collect();
    let started = cpu();
    let task = Task::new(graph, &order, InPlace::May, false, &context);
    let made = cpu() - started;
    let (base, peak) = (task.base_time().as_secs_f64(), task.reference());
    println!("\n{} · {} ops · {} · task {made:.0?}", graph.name(), graph.op_count(), strategy.info().name);
    println!("ratio   overhead      bound   best greedy of the notes   planning");
    let wanted = setting("RATIOS");
    for (ratio, greedy) in RATIOS.into_iter().zip(best) {
        if wanted.as_ref().is_some_and(|text| !text.split(',').any(|part| part.parse() == Ok(ratio))) {
            continue;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let budget = Bytes((peak.0 as f64 * ratio) as u64);
        let started = cpu();
        let front = strategy.plan(&task, budget, &context);
        let took = cpu() - started;
        let notes = if greedy.is_finite() { format!("{greedy:.4}") } else { "OOM".into() };
        match front {
            Ok(front) => {
                let first = &front.points[0];
                let overhead = first.cost.time.as_secs_f64() / base;
                let proved = if front.proved { "  proved" } else { "" };
                let mark = if overhead > greedy + 5e-5 { "  WORSE" } else { "" };
                let bound = front.bound.as_secs_f64() / base;
                println!(
                    "{ratio:.1}     {overhead:.4}     {bound:.4}     {notes:>8}     {took:>8.0?}{mark}{proved}"
                );
            }
            Err(fail) => {
                let needed = fail.needed.ratio(peak);
                let why = fail.why.unwrap_or_default();
                println!(
                    "{ratio:.1}     none, needs {needed:.4}, proved {}     {notes:>8}     {took:>8.0?} {why}",
                    fail.proved
                );
            }
        }
    }
}

fn corpus(strategy: &dyn Scheduler, only: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/graphs");
    let mut files: Vec<_> = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    println!(
        "\ngraph                          ops   peak        floor       budget      overhead bound   live/budget planning"
    );
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains("train") || !name.contains(only) {
            continue;
        }
        let bytes = std::fs::read(&file).unwrap();
        let graph = graph_json::read(&bytes).unwrap();
        let device = device(512);
        let context = Context::new(&device);
        let started = cpu();
        let order = ORDERS.last().unwrap().order(&graph, &context);
        let ordering = cpu() - started;
        let task = Task::new(&graph, &order, InPlace::May, false, &context);
        let peak = task.reference();
        let floor = task.floor().0;
        for percent in [75, 50, 25, 10] {
            let started = cpu();
            let budget = floor + Bytes((peak.0 - floor.0) / 100 * percent);
            let limits = Limits::arena(budget, device.align);
            let mut places = 0;
            let mut placing = Duration::ZERO;
            let fitted = fit(strategy, &task, budget, &context, |program: &Program| {
                let started = cpu();
                places += 1;
                let (problem, item_of) = Problem::of(&graph, program, &limits);
                let context = Context { enough: budget, ..context };
                let placed = PLACERS.last().unwrap().place(&problem, &context).ok()?;
                placing += cpu() - started;
                Some((placed.height, Problem::layout(&placed.places, &item_of)))
            });
            let took = cpu() - started;
            match fitted {
                Ok(done) => {
                    let plan = Plan { graph: graph.digest(), program: done.program, layout: done.placed };
                    let verified = memfit_verify::verify(&graph, &limits, plan).unwrap();
                    let base = task.base_time().as_secs_f64();
                    println!(
                        "{name:30} {:5} {:>9} {:>9} {percent}% {:>9} {:.4} {:.4} {:.3} {took:.1?} ({places} placed in {placing:.1?}, ordered in {ordering:.1?}) {}",
                        graph.op_count(),
                        peak.to_string(),
                        floor.to_string(),
                        budget.to_string(),
                        done.cost.time.as_secs_f64() / base,
                        done.bound.as_secs_f64() / base,
                        done.cost.peak.ratio(budget),
                        verified.peak(),
                    );
                }
                Err(fail) => println!(
                    "{name:30} {percent}% of {peak} over {floor}: {budget} none: {fail:?} {took:.1?}"
                ),
            }
        }
    }
}

/// Plans `graphs` random graphs at five budgets each; judge, real bytes and monotony decide.
fn hammer(strategy: &dyn Scheduler, graphs: u64) {
    let device = device(8);
    let context = Context::new(&device);
    let (mut fits, mut again) = (0u64, 0u64);
    for seed in 0..graphs {
        let graph = memfit_testkit::graph(seed);
        let truth = memfit_testkit::bytes::Truth::of(&graph);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, seed % 2 == 0, &context);
        let peak = RunList::plain(&task).cost(&task).unwrap().peak;
        let floor = task.floor().0;
        let mut last = None;
        for k in 0..5 {
            let budget = Bytes(floor.0 + (peak.0 - floor.0) * k / 4);
            let mut limits = Limits::arena(budget, device.align);
            limits.replays_random = seed % 2 == 0;
            let fitted = fit(strategy, &task, budget, &context, |program: &Program| {
                let (problem, item_of) = Problem::of(&graph, program, &limits);
                let placed = PLACERS.last().unwrap().place(&problem, &context).ok()?;
                Some((placed.height, Problem::layout(&placed.places, &item_of)))
            });
            let Ok(done) = fitted else {
                assert!(last.is_none(), "seed {seed}: a smaller budget was enough");
                continue;
            };
            assert!(last.is_none_or(|time| done.cost.time <= time), "seed {seed}: slower with more");
            last = Some(done.cost.time);
            fits += 1;
            again += u64::from(done.recompute > Nanos::ZERO);
            let plan = Plan { graph: graph.digest(), program: done.program, layout: done.placed };
            memfit_testkit::bytes::check(&truth, &graph, &limits, &plan).unwrap();
            memfit_verify::verify(&graph, &limits, plan).unwrap();
        }
    }
    println!(
        "{}: {graphs} graphs × 5 budgets: {fits} fit, {again} of them run something again",
        strategy.info().name
    );
}

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let only = names.iter().position(|name| name.starts_with('@')).map(|at| names.remove(at));
    if names.is_empty() {
        names.push("best".into());
    }
    const OOM: f64 = f64::INFINITY;
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/checkmate");
    let tables = [
        ("vgg16.train", [1.0197, OOM, OOM, OOM, OOM, OOM, OOM, OOM]),
        ("unet.train", [1.0116, 1.0213, 1.0392, 1.0516, 1.0745, 1.1748, OOM, OOM]),
        ("mobilenet.train", [1.0016, 1.0038, 1.0063, 1.0109, 1.0170, 1.0256, 1.0436, 1.0933]),
        ("random-n100", [1.3560, 2.1216, OOM, OOM, OOM, OOM, OOM, OOM]),
    ];
    for name in names {
        let strategy = Named::called(&format!("recompute:{name}")).unwrap().scheduler;
        if only.as_deref() == Some("@hammer") {
            let graphs = std::env::var("GRAPHS").ok().and_then(|text| text.parse().ok());
            hammer(strategy, graphs.unwrap_or(10_000));
            continue;
        }
        if matches!(only.as_deref(), None | Some("@layered")) {
            for (seed, (layers, skips, unit)) in (1..).zip(LAYERED) {
                println!(
                    "\n{layers} layers, {skips} % of the edges skip some, sizes are multiples of {unit}, seed {seed}"
                );
                ratios(
                    &layered(Layered { ops: 1000, edges: 5875, layers, skips, unit, sparse: 0 }, seed),
                    strategy,
                    [OOM; 8],
                );
            }
        }
        match only.as_deref() {
            None | Some("@checkmate") => {
                for (file, best) in tables {
                    match checkmate(&shared.join(format!("{file}.json"))) {
                        Some(graph) => ratios(&graph, strategy, best),
                        None => println!("SKIPPED {file}: the shared data is not here"),
                    }
                }
                ratios(
                    &chain(32),
                    strategy,
                    [1.0615, 1.1077, 1.1692, 1.2154, 1.2615, 1.3231, 1.3846, 2.0923],
                );
                ratios(&chain(1000), strategy, [OOM; 8]);
            }
            _ => {}
        }
        if !matches!(only.as_deref(), Some("@checkmate" | "@layered")) {
            corpus(strategy, only.as_deref().unwrap_or("@").trim_start_matches('@'));
        }
    }
}
