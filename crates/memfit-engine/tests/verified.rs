//! Random graphs through the engine: the judge accepts the log, and real bytes come out as without a budget.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_engine::replay::{Event, Trace, record};
use memfit_engine::{Dealloc, Fault, Recorded, Regeneration, Settings};
use memfit_ir::{Bytes, Limits, Nanos};
use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::graph;
use memfit_verify::verify;

const ALIGN: Bytes = Bytes(4);

fn settings(budget: Bytes, evictor: &str, allocator: &str) -> Settings {
    let (evictor, allocator) = (evictor.to_owned(), allocator.to_owned());
    Settings { align: ALIGN, evictor, allocator, log: true, ..Settings::new(budget) }
}

fn judge(recorded: &Recorded, budget: Bytes, what: &str) -> Bytes {
    let plan = recorded.plan().expect("the allocator has addresses");
    let limits = Limits { replays_random: true, ..Limits::arena(budget, ALIGN) };
    let truth = Truth::of(&recorded.graph);
    if let Err(fault) = check(&truth, &recorded.graph, &limits, &plan) {
        panic!("{what}: wrong bytes: {fault:?}");
    }
    match verify(&recorded.graph, &limits, plan) {
        Ok(verified) => verified.peak(),
        Err(rejected) => panic!("{what}: {rejected}"),
    }
}

/// Every evictor and allocator in turn, five budgets each from what is needed without eviction downwards.
fn hammer(seeds: std::ops::Range<u64>) {
    let evictors: Vec<&str> = memfit_engine::evict::EVICTORS.iter().map(|entry| entry.info.name).collect();
    let allocators = ["best-fit", "bfc", "caching"];
    let (mut fits, mut tight, mut again) = (0u64, 0u64, 0u64);
    // Steps that a larger budget made slower: how many of how many, by what part of the step's own time.
    let (mut pairs, mut slower, mut lost, mut excess, mut most) = (0u64, 0u64, 0u64, 0.0f64, 0.0f64);
    for seed in seeds {
        let graph = graph(seed);
        let trace = Trace::of_graph(&graph, |op| Nanos(1 + u64::from(op.0) * 7 % 13));
        let trace = if seed % 2 == 1 { trace.with_snapshots(|_| Nanos(1)) } else { trace };
        let calls = trace.events.iter().filter(|event| matches!(event, Event::Call { .. })).count();
        let mut larger: Option<Option<u64>> = None;
        let pick = |len: usize, salt: u64| usize::try_from((seed / salt) % len as u64).unwrap();
        let (evictor, allocator) = (evictors[pick(evictors.len(), 1)], allocators[pick(3, 10)]);
        let dealloc = Dealloc::ALL[pick(3, 30)].0;
        let regeneration = if seed % 4 == 3 { Regeneration::Nested } else { Regeneration::Yielding };
        let roomy = Bytes(trace.base().peak.0 * 4 + 4096);
        for part in [100, 24, 18, 16, 14] {
            let budget = Bytes(roomy.0.min(trace.base().peak.0 * part / 16 + 8)).round_up(ALIGN);
            let what = format!(
                "seed {seed}, {evictor}, {allocator}, {dealloc:?}, {regeneration:?}, budget {}",
                budget.0
            );
            let settings = Settings { dealloc, regeneration, ..settings(budget, evictor, allocator) };
            match record(&trace, settings) {
                Ok((recorded, stats)) => {
                    assert_eq!(recorded.graph.op_count(), calls, "{what}");
                    assert_eq!(recorded.trace.events, trace.events, "{what}");
                    let peak = judge(&recorded, budget, &what);
                    assert!(peak <= budget && stats.peak <= budget && stats.height >= peak, "{what}");
                    fits += 1;
                    again += stats.recomputes;
                    pairs += u64::from(larger.is_some());
                    match larger {
                        Some(None) => lost += 1,
                        Some(Some(before)) if before > stats.recompute_ns => {
                            let by = (before - stats.recompute_ns) as f64 / trace.base().time.0 as f64;
                            (slower, excess, most) = (slower + 1, excess + by, most.max(by));
                        }
                        _ => {}
                    }
                    larger = Some(Some(stats.recompute_ns));
                }
                Err(Fault::NoRoom(fault)) => {
                    assert!(!fault.to_string().is_empty());
                    tight += 1;
                    larger = Some(None);
                }
                Err(fault) => panic!("{what}: {fault}"),
            }
        }
    }
    println!("{fits} fitted, {tight} did not, {again} ops ran again");
    println!(
        "of {pairs} with a larger budget beside them: {lost} did not fit there, {slower} were slower there, by \
         {:.2} of the step in the mean, {most:.2} at most",
        excess / slower.max(1) as f64
    );
    assert!(fits > tight && again > 0);
}

#[test]
fn logs_of_random_steps_pass_the_judge_and_keep_their_bytes() {
    hammer(0..10_000);
}
