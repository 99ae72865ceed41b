//! What goes for room is stored where that costs less than computing it again: same numbers, budgets of both sides kept, and
//! never the dearer of the two for a single op.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;

use common::numbers::Numbers;
use memfit_engine::replay::{Outcome, Trace, drive, replay};
use memfit_engine::{Call, Engine, Fault, Output, Settings, Storing, TensorId, VirtualHost};
use memfit_ir::{Bytes, Limits, Link, Nanos, Role, Store};
use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::graph;
use memfit_verify::verify;

const ALIGN: Bytes = Bytes(4);

fn link(rate: f64) -> Link {
    Link {
        out_bandwidth: rate,
        in_bandwidth: rate,
        duplex_cap: f64::INFINITY,
        latency: Nanos(1),
        asynchronous: true,
    }
}

fn settings(budget: Bytes, host: Bytes, rate: f64) -> Settings {
    let tiers = [Some(Store { capacity: host, link: link(rate) }), None];
    Settings { align: ALIGN, tiers, storing: Storing::WhereCheaper, log: true, ..Settings::new(budget) }
}

#[test]
fn numbers_and_bytes_are_the_same_whatever_is_stored() {
    let (mut moved, mut again, mut tight) = (0, 0, 0);
    for seed in 0..20_000u64 {
        let graph = graph(seed);
        let trace = Trace::of_graph(&graph, |op| Nanos(1 + u64::from(op.0) * 7 % 60));
        let plain = {
            let mut engine =
                Engine::new(Numbers::default(), Settings::new(Bytes(trace.base().peak.0 * 8 + 8192)))
                    .unwrap();
            drive(&mut engine, &trace).unwrap();
            held(&mut engine).unwrap()
        };
        for part in [24, 18, 15] {
            let budget = Bytes(trace.base().peak.0 * part / 16 + 8).round_up(ALIGN);
            let what = format!("seed {seed}, budget {}", budget.0);
            let host = Bytes([64, 1 << 20][usize::try_from(seed % 2).unwrap()]);
            let settings = settings(budget, host, 2e9);
            let loses = (seed % 3 == 0).then_some(3);
            let numbers = Numbers { loses, ..Numbers::default() };
            let mut engine = Engine::new(numbers, settings.clone()).unwrap();
            match drive(&mut engine, &trace).and_then(|()| held(&mut engine)) {
                Ok(numbers) => assert_eq!(numbers, plain, "{what}"),
                Err(Fault::NoRoom(_)) => {
                    tight += 1;
                    continue;
                }
                Err(fault) => panic!("{what}: {fault}"),
            }
            let Ok(recorded) = engine.end_step() else { continue };
            let stats = engine.stats();
            assert!(stats.peak <= budget && stats.tier_peaks[0] <= host, "{what}");
            assert!(engine.host.copies.is_empty(), "{what}: copies are left behind");
            let (plan, limits) = (recorded.plan().unwrap(), settings.limits(budget));
            let limits = Limits { replays_random: true, ..limits };
            check(&Truth::of(&recorded.graph), &recorded.graph, &limits, &plan).unwrap();
            verify(&recorded.graph, &limits, plan).unwrap_or_else(|rejected| panic!("{what}: {rejected}"));
            moved += engine.host.moved[1];
            again += stats.recomputes;
        }
    }
    println!("{moved} copies came back, {again} ops ran again, {tight} did not fit");
    assert!(moved > 1000 && again > 1000);
}

fn held(engine: &mut Engine<'_, Numbers>) -> Result<Vec<u64>, Fault> {
    let held: Vec<TensorId> = engine.held();
    let mut numbers = Vec::new();
    for tensor in held {
        let block = engine.get(tensor)?;
        numbers.push(if block.size > Bytes::ZERO { engine.host.held[&block.offset.0] } else { 0 });
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A net of convolutions, batch norms and ReLUs in a budget of five maps, with `times` for each kind: which kinds
/// were stored, and how often which ran again.
fn what_went(times: &[(&'static str, u64)], size: u64, rate: f64) -> (Vec<String>, BTreeMap<String, u64>) {
    let host = Bytes(size * 100);
    let settings = settings(Bytes(size * 5), host, rate);
    let mut engine = Engine::new(VirtualHost::of(&settings), settings).unwrap();
    let mut last = engine.put(Bytes(size), Role::Input).unwrap();
    let mut made = Vec::new();
    for _ in 0..6 {
        for &(kind, time) in times {
            let reads = [last];
            let outputs = [Output::Fresh(Bytes(size))];
            let call = Call { kind, reads: &reads, outputs: &outputs, time: Nanos(time), ..Call::default() };
            let before = made.len();
            engine.apply(&call, &mut made).unwrap();
            last = made[before];
        }
    }
    // Backward reads all of it again, last first, and gives it up.
    for &tensor in made.iter().rev() {
        engine.get(tensor).unwrap();
        engine.del(tensor).unwrap();
    }
    let recorded = engine.end_step().unwrap();
    let (graph, program) = (&recorded.graph, &recorded.program);
    let mut stored = Vec::new();
    let mut ran: BTreeMap<String, u64> = BTreeMap::new();
    for step in &program.steps {
        match *step {
            memfit_ir::Step::Offload { from, .. } => {
                let memfit_ir::Content::Value(value) = program.buffers[from.index()].content else {
                    continue;
                };
                let maker = graph.value(value).producer.unwrap();
                stored.push(graph.op(maker).kind.to_owned());
            }
            memfit_ir::Step::Compute(ref compute) => {
                *ran.entry(graph.op(compute.op).kind.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    (stored, ran)
}

#[test]
fn what_is_cheap_for_its_bytes_is_dropped_and_what_is_dear_is_stored() {
    // 12.8 MB maps of 64 channels of 56 × 56, batch 16, on two cores, ns as measured (docs/swapping.md).
    let times = [("conv", 18_540_000), ("bn", 2_230_000), ("relu", 170_000)];
    let (stored, ran) = what_went(&times, 12_845_056, 3e9);
    assert!(!stored.is_empty() && stored.iter().all(|kind| kind == "conv"), "{stored:?}");
    assert_eq!(ran["conv"], 6, "a convolution runs once");
    assert!(ran["bn"] > 6 && ran["relu"] > 6, "{ran:?}");
    // On a link that takes longer than the convolution nothing is stored.
    let (stored, ran) = what_went(&times, 12_845_056, 1e8);
    assert!(stored.is_empty() && ran["conv"] > 6, "{ran:?}");
}

#[test]
fn storing_helps_on_recorded_steps() {
    let (mut sum, mut cells) = (0.0, 0u32);
    for log in common::LOGS {
        let Some(trace) = common::recorded(log) else { return };
        for ratio in [0.7, 0.5, 0.4, 0.3] {
            let budget = common::part(trace.base().peak, ratio);
            let drop = Settings { align: Bytes(1), allocator: "ideal".into(), ..Settings::new(budget) };
            let tiers = [Some(Store { capacity: Bytes(1 << 40), link: link(12e9) }), None];
            let store = Settings { tiers, storing: Storing::WhereCheaper, ..drop.clone() };
            let time = |settings| {
                let report = replay(&trace, settings, 10.0).unwrap();
                let time = report.time().0 + report.stats.stall_ns;
                (report.outcome == Outcome::Done).then_some(time as f64)
            };
            let (drop, store) = (time(drop), time(store));
            let base = trace.base().time.0 as f64;
            let over = |time: Option<f64>| time.map_or(f64::INFINITY, |time| time / base - 1.0);
            println!("{log} at {ratio}: drop {:+.4}, drop or store {:+.4}", over(drop), over(store));
            if let Some(drop) = drop {
                let store = store.unwrap_or_else(|| panic!("{log} at {ratio}: only dropping fits"));
                assert!(store <= drop * 1.01, "{log} at {ratio}");
                sum += (store / drop).ln();
                cells += 1;
            }
        }
    }
    assert!(cells == 0 || (sum / f64::from(cells)).exp() < 1.0);
}
