//! The engine's own time for each `apply`, at 10,000 live tensors: `cargo run --release --example engine_cost`.
//!
//! A virtual host takes no time, so all that is measured is tables, policy and allocator. Without eviction: a budget that
//! is never reached, short-lived tensors made and deleted among 10,000 that live. With eviction: a full budget, so that
//! each `apply` evicts; and each eighth reads an old tensor, which may have to come back.
#![allow(clippy::print_stdout, reason = "its purpose")]

use std::time::Instant;

use memfit_engine::alloc::ALLOCATORS;
use memfit_engine::evict::EVICTORS;
use memfit_engine::{Call, Engine, Output, Settings, TensorId, VirtualHost};
use memfit_ir::{Bytes, Nanos, Role};

const LIVE: usize = 10_000;
const CALLS: usize = 50_000;
const SIZE: u64 = 1 << 16;

fn call(engine: &mut Engine<'_, VirtualHost>, reads: &[TensorId], made: &mut Vec<TensorId>, at: usize) {
    let (size, time) =
        (Bytes(SIZE + (at as u64 * 7919 % 13) * 512), Nanos(1000 + at as u64 * 104_729 % 9000));
    let call = Call { kind: "op", reads, outputs: &[Output::Fresh(size)], time, ..Call::default() };
    engine.apply(&call, made).expect("there is room for one op");
}

/// Ns for each call, the median of batches of 500; and evictions and recomputes for each.
fn measure(settings: Settings, evicts: bool, calls: usize) -> (f64, f64, f64) {
    let mut engine = Engine::new(VirtualHost::default(), settings).expect("the names are from the tables");
    let weight = engine.put(Bytes(SIZE), Role::Parameter).expect("one tensor fits");
    let mut live = Vec::new();
    for at in 0..LIVE {
        let before = if at % 16 == 0 { weight } else { live[at - 1] };
        call(&mut engine, &[before, weight], &mut live, at);
    }
    let (mut made, mut draw) = (Vec::with_capacity(calls), 12345usize);
    let before = engine.stats();
    let mut start = Instant::now();
    let mut batches = Vec::new();
    for at in 0..calls {
        if at % 500 == 499 {
            batches.push(start.elapsed().as_secs_f64() * 1e9 / 500.0);
            start = Instant::now();
        }
        let last = made.last().copied().unwrap_or(live[LIVE - 1]);
        if evicts {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let old = if at % 8 == 0 { live[(draw >> 33) % live.len()] } else { weight };
            call(&mut engine, &[last, old], &mut made, at);
            live.push(made[made.len() - 1]);
        } else {
            call(&mut engine, &[last, weight], &mut made, at);
            engine.del(last).ok();
        }
    }
    batches.sort_by(f64::total_cmp);
    let nanos = batches.get(batches.len() / 2).copied().unwrap_or_default();
    let after = engine.stats();
    let each = |count: u64| count as f64 / calls as f64;
    (nanos, each(after.evictions - before.evictions), each(after.recomputes - before.recomputes))
}

fn main() {
    println!("{LIVE} live tensors; ns of engine time for each apply");
    for allocator in ALLOCATORS {
        let roomy = Settings {
            allocator: allocator.info.name.to_owned(),
            ..Settings::new(Bytes(SIZE * 4 * LIVE as u64))
        };
        let (nanos, ..) = measure(roomy, false, CALLS);
        println!("without eviction, {:>9}: {nanos:8.0}", allocator.info.name);
    }
    for evictor in EVICTORS {
        for allocator in ["ideal", "best-fit"] {
            let evictor = evictor.info.name;
            let tight = Settings {
                evictor: evictor.to_owned(),
                allocator: allocator.to_owned(),
                ..Settings::new(Bytes(SIZE * 11 / 10 * LIVE as u64))
            };
            // A scan of the pool at each eviction takes its time.
            let calls = if evictor == "best" { CALLS } else { CALLS / 20 };
            let (nanos, evictions, recomputes) = measure(tight, true, calls);
            println!(
                "with eviction, {evictor:>10}, {allocator:>9}: {nanos:10.0}   ({evictions:.2} evictions, {recomputes:.2} recomputes each)"
            );
        }
    }
}
