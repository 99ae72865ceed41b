//! Plans are followed in the room that they were judged for, and to their end where there is less.
#![allow(clippy::unwrap_used, reason = "a test")]

use memfit_engine::replay::{Event, Trace, followed, recorded};
use memfit_engine::{Output, Settings, Stats, StepPlan};
use memfit_ir::{Action, Bytes, Effect, InPlace, Nanos, OpId, Role, Schedule};

fn put(size: u64) -> Event {
    Event::Put { size: Bytes(size), role: Role::Input }
}

/// Reads `reads`, makes `sizes`.
fn call(reads: &[u32], sizes: &[u64]) -> Event {
    Event::Call {
        kind: 0,
        reads: reads.to_vec(),
        outputs: sizes.iter().map(|&size| Output::Fresh(Bytes(size))).collect(),
        time: Nanos(10),
        workspace: Bytes::ZERO,
        effect: Effect::Pure,
    }
}

fn trace(events: Vec<Event>, held: &[u32]) -> Trace {
    Trace { events, kinds: vec!["f".to_owned()], held: held.to_vec(), ..Trace::default() }
}

/// What becomes of `trace` within `budget` by the plan that runs these ops in this order.
fn run(trace: &Trace, runs: &[u32], budget: u64) -> Option<Stats> {
    let settings = |budget: u64| Settings {
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        ..Settings::new(Bytes(budget))
    };
    let graph = recorded(trace).unwrap().graph;
    let actions = runs.iter().map(|&op| Action::Run { op: OpId(op), algorithm: 0 }).collect();
    let program = Schedule { actions, ..Schedule::default() }.program(&graph, InPlace::Must).unwrap();
    let plan = StepPlan::judge_unplaced(graph, &settings(1 << 20), program).unwrap();
    followed(trace, settings(budget), plan).unwrap().map(|(_, stats)| stats)
}

/// A source is let go before what is computed from it, and that before what the program has given up: then nothing of it
/// stays, though none of it could be made again.
#[test]
fn what_the_plan_frees_takes_no_room() {
    let events = vec![
        put(10),               // 0
        call(&[0], &[100]),    // 1
        put(30),               // 2
        call(&[1, 2], &[100]), // 3
        Event::Release(1),
        Event::Release(2),
        call(&[3], &[10]),    // 4
        call(&[3, 4], &[10]), // 5
        Event::Release(4),
        call(&[3, 5], &[10]), // 6
        Event::Release(3),
        call(&[5, 6], &[300]), // 7
    ];
    let trace = trace(events, &[7]);
    let runs: Vec<u32> = (0..7).collect();
    let stats = run(&trace, &runs, 1 << 20).unwrap();
    assert_eq!(stats.peak, trace.base().peak);
    let stats = run(&trace, &runs, trace.base().peak.0).unwrap();
    assert_eq!((stats.evictions, stats.recomputes), (0, 0));
}

/// An op with two outputs runs again, and there was no room to keep what it reads.
#[test]
fn what_is_missing_for_a_repetition_is_made_again() {
    let events = vec![
        put(10),               // 0
        call(&[0], &[100]),    // 1
        call(&[1], &[50, 50]), // 2, 3
        call(&[0], &[150]),    // 4
        call(&[4], &[10]),     // 5
        Event::Release(4),
        call(&[2, 5], &[10]), // 6
        call(&[3, 6], &[10]), // 7
        Event::Release(1),
        Event::Release(2),
        Event::Release(3),
    ];
    let trace = trace(events, &[7]);
    // The second op runs once more for the one output, and a third time for the other.
    let runs = [0, 1, 2, 3, 1, 4, 1, 5];
    let roomy = run(&trace, &runs, 1 << 20).unwrap();
    assert!(roomy.recomputes >= 1, "{roomy:?}");
    let tight = run(&trace, &runs, 240).unwrap();
    assert!(tight.evictions > 0 && tight.recomputes > roomy.recomputes, "{tight:?}");
    assert!(tight.peak <= Bytes(240));
}
