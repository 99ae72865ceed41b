//! Planning ends where its memory or its time does, and takes what it has by then.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering};

use memfit_engine::offline::{self, Effort};
use memfit_engine::replay::{Event, Trace};
use memfit_engine::{Allowance, Fault, Output, Settings};
use memfit_ir::{Bytes, Effect, Nanos, Role};

/// A chain of `length` ops that are read again from its end, as by a backward pass.
fn chain(length: u32) -> Trace {
    let mut trace = Trace { kinds: vec!["f".to_owned()], ..Trace::default() };
    trace.events.push(Event::Put { size: Bytes(1 << 10), role: Role::Input });
    let call = |reads: Vec<u32>| Event::Call {
        kind: 0,
        reads,
        outputs: vec![Output::Fresh(Bytes(1 << 10))],
        time: Nanos(100),
        workspace: Bytes::ZERO,
        effect: Effect::Pure,
    };
    trace.events.extend((0..length).map(|at| call(vec![at])));
    let mut gradient = length;
    for at in (1..=length).rev() {
        trace.events.push(call(vec![gradient, at]));
        trace.events.push(Event::Release(at));
        if gradient > length {
            trace.events.push(Event::Release(gradient));
        }
        gradient = 2 * length + 1 - at;
    }
    trace.held.push(gradient);
    trace
}

fn settings(kib: u64) -> Settings {
    Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(Bytes(kib << 10)) }
}

#[test]
fn the_best_by_then_is_taken_when_time_is_over() {
    let (trace, effort) = (chain(200), Effort::default());
    let whole = offline::plan(&trace, &settings(24), &effort).unwrap();
    let mut runs = Vec::new();
    for looks in [10, 200, 2000] {
        let left = AtomicU64::new(looks);
        let stop = move || {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
        };
        let limited = Settings { allowance: Allowance::new(Bytes(u64::MAX), stop), ..settings(24) };
        match offline::plan(&trace, &limited, &effort) {
            Ok(planned) => {
                assert!(planned.stats.peak <= Bytes(24 << 10));
                assert!(planned.stats.recompute_ns >= whole.stats.recompute_ns);
                runs.push(planned.runs);
            }
            Err(fault) => assert!(looks == 10 && fault == Fault::OverAllowance, "{looks}: {fault}"),
        }
    }
    assert!(!runs.is_empty() && runs.iter().all(|&these| these < whole.runs), "{runs:?} of {}", whole.runs);
}

#[test]
fn programs_that_take_too_much_memory_are_not_gone_on_with() {
    let (trace, effort) = (chain(300), Effort { most_recompute: 1000, ..Effort::default() });
    let limited = |bytes: u64| Settings { allowance: Allowance::new(Bytes(bytes), || false), ..settings(8) };
    assert!(offline::plan(&trace, &settings(8), &effort).is_ok());
    let fault = offline::plan(&trace, &limited(1 << 16), &effort).unwrap_err();
    assert_eq!(fault, Fault::OverAllowance);
    // An allowance that is not used up changes nothing.
    let (roomy, free) =
        (offline::plan(&trace, &limited(1 << 40), &effort), offline::plan(&trace, &settings(8), &effort));
    assert_eq!(roomy.unwrap().recorded.program, free.unwrap().recorded.program);
}
