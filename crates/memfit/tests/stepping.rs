//! Recorded steps are planned by every way there is; what comes out is judged, followed to the end, and never dearer than
//! what the engine's portfolio finds alone.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memfit::engine::replay::{Trace, recorded, replay_guided};
use memfit::engine::{Allowance, Fault, Planner, Recorded, Settings, Storing};
use memfit::ir::{Link, Store};
use memfit::{Bytes, Floor, Graph, Nanos, StepPlanner, input};

/// A step of the corpus, as it runs without a budget, and the budget `floor+share`.
fn step(name: &str, share: f64) -> (Recorded, Bytes) {
    let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
    let graph: Graph = input::graph(&std::fs::read(path).unwrap(), &Default::default()).unwrap();
    let device = input::device("A100-80").unwrap();
    let trace = Trace::of_graph(&graph, |op| device.time(&graph.op(op)));
    let trace = trace.with_snapshots(|bytes| device.copy_time(bytes));
    let floor = Floor::of(&graph, Bytes(1)).bytes;
    let above = trace.base().peak.saturating_sub(floor);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let budget = floor + Bytes((above.0 as f64 * share) as u64);
    (recorded(&trace).unwrap(), budget)
}

/// Bytes are counted, as the hosts do.
fn counting(budget: Bytes) -> Settings {
    Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) }
}

/// Ns in repetitions of what `strategy` finds, which is followed to its end within `settings`; `None` if it finds nothing.
fn planned(recorded: &Recorded, settings: &Settings, strategy: &str) -> Option<u64> {
    let mut planner = StepPlanner::new(1).by(strategy).unwrap();
    let found = match planner.plan(recorded, settings) {
        Ok(found) => found,
        Err(Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::NoPlan(_)) => return None,
        Err(fault) => panic!("{strategy}: {fault}"),
    };
    let again = found.plan.repeated_ns();
    let least = found.tried.iter().filter_map(|tried| tried.recompute_ns).min();
    assert_eq!(least, Some(again), "{:?}", found.tried);
    let untimed = Settings { allowance: settings.allowance.untimed(), ..settings.clone() };
    let report = replay_guided(&recorded.trace, untimed, 1e9, Some(found.plan)).unwrap();
    assert!(report.guided && report.stats.peak <= settings.budget, "{strategy}");
    assert_eq!(report.stats.recompute_ns, again, "{strategy}");
    Some(again)
}

#[test]
fn nobody_loses_by_the_schedulers() {
    let (mut gains, mut cells) = (0.0, 0);
    for (name, share) in [("vgg16-train-b256", 0.5), ("unet-train-b16", 0.4), ("vit-b16-train-b64", 0.5)] {
        let (recorded, budget) = step(name, share);
        let settings = counting(budget);
        let before = planned(&recorded, &settings, "evict:planned");
        let after = planned(&recorded, &settings, "auto");
        println!("{name} at floor+{share}: {before:?} ns by the portfolio, {after:?} by all");
        if let Some(before) = before {
            let after = after.unwrap();
            assert!(after <= before, "{name}");
            gains += (after.max(1) as f64 / before.max(1) as f64).ln();
            cells += 1;
        }
    }
    assert!(cells > 0);
    let mean = (gains / f64::from(cells)).exp();
    println!("{mean:.3} in the geometric mean");
    assert!(mean < 1.0);
}

/// A step of ResNet-18 as it was recorded on a GPU, with a link of 54.5 GB/s: the engine had repeated 172 ops where the mover's
/// plan left it no room.
#[test]
fn who_is_to_move_alone_repeats_nothing() {
    let path =
        format!("{}/../../corpus/recorded/resnet18-train-b96-h100.json.zst", env!("CARGO_MANIFEST_DIR"));
    let graph: Graph = input::graph(&std::fs::read(path).unwrap(), &Default::default()).unwrap();
    let device = input::device("H100").unwrap();
    let trace = Trace::of_graph(&graph, |op| device.time(&graph.op(op)));
    let recorded = recorded(&trace).unwrap();
    let link = Link {
        out_bandwidth: 54.5e9,
        in_bandwidth: 54.5e9,
        duplex_cap: f64::INFINITY,
        latency: Nanos(10_000),
        asynchronous: true,
    };
    let tiers = [Some(Store { capacity: Bytes(16 << 30), link }), None];
    let align = Bytes(512);
    let moving = Settings { align, tiers, storing: Storing::Always, ..counting(Bytes(1_307_842_304)) };
    for strategy in ["auto", "offload:best"] {
        let found = StepPlanner::new(1).by(strategy).unwrap().plan(&recorded, &moving).unwrap();
        // More may be held beside the step than the plan knows of: what goes for that moves, too.
        for beside in [0, 32 << 20] {
            let within = Settings { budget: Bytes(moving.budget.0 - beside), ..moving.clone() };
            let plan = Some(found.plan.clone());
            let report = replay_guided(&recorded.trace, within.clone(), 1e9, plan).unwrap();
            assert!(report.guided && report.stats.peak <= within.budget, "{strategy}, {beside} beside");
            assert_eq!(report.stats.recomputes, 0, "{strategy}, {beside} beside");
            assert!(report.stats.stored > Bytes::ZERO, "{strategy}");
        }
    }
}

#[test]
fn every_strategy_has_its_name() {
    let (recorded, budget) = step("vgg16-train-b256", 0.7);
    for settings in [counting(budget), Settings::new(budget.round_up(Bytes(512)))] {
        let mut found = 0;
        for strategy in StepPlanner::strategies() {
            let again = planned(&recorded, &settings, strategy);
            println!("{} {strategy}: {again:?}", settings.allocator);
            found += u32::from(again.is_some());
        }
        assert!(found > 5, "{found}");
    }
    assert!(StepPlanner::new(1).by("recompute:dtr").is_ok());
    assert_eq!(StepPlanner::new(1).by("magic").err().unwrap().exit_code(), 2);
}

/// The same on every machine where there is no limit; and where time is over early, what matters has been looked at.
#[test]
fn the_budget_itself_comes_first() {
    let (recorded, budget) = step("vit-b16-train-b64", 0.5);
    let asked = |most: usize, strategy: &str| {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let stop = move || count.fetch_add(1, Ordering::Relaxed) >= most;
        let allowance = Allowance::new(Bytes(u64::MAX), stop);
        let ns = planned(&recorded, &Settings { allowance, ..counting(budget) }, strategy).unwrap();
        (ns, seen.load(Ordering::Relaxed))
    };
    let (portfolio, first) = asked(usize::MAX, "evict:planned");
    let (all, last) = asked(usize::MAX, "auto");
    assert_eq!(asked(usize::MAX, "auto"), (all, last));
    let (early, _) = asked(first + (last - first) / 5, "auto");
    println!("{portfolio} ns by the portfolio, {early} where time is over early, {all} by all");
    assert!(all <= early && early < portfolio);
}
