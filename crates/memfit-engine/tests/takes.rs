//! What an op writes over an operand that ends with it counts once: where that may be, and nowhere else.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::{KB, Numbers, check, number, op};
use memfit_engine::replay::{Event, Trace, followed, record, recorded};
use memfit_engine::{Call, Engine, Fault, Output, Settings, TensorId, offline};
use memfit_ir::{Bytes, Effect, Nanos, Role};

const TAKES: Output = Output::Takes(KB, 0);

fn engine(kilobytes: u64) -> Engine<'static, Numbers> {
    Engine::new(Numbers::default(), Settings::new(Bytes(1024 * kilobytes))).unwrap()
}

/// A source, and what is computed from it.
fn pair(engine: &mut Engine<'_, Numbers>) -> (TensorId, TensorId) {
    let x = engine.put(KB, Role::Input).unwrap();
    (x, op(engine, "f", &[x], &[Output::Fresh(KB)])[0])
}

#[test]
fn what_is_written_over_counts_once_and_comes_back() {
    let mut engine = engine(3);
    let (x, a) = pair(&mut engine);
    let other = op(&mut engine, "g", &[a], &[Output::Fresh(KB)])[0];
    let of_other = number(&mut engine, other);
    assert!(engine.drop(other).unwrap());
    let b = op(&mut engine, "exp", &[a], &[TAKES])[0];
    assert!(!engine.is_resident(a), "it was written over");
    engine.del(a).unwrap();
    assert_eq!((engine.stats().used, engine.stats().peak), (Bytes(2048), Bytes(3072)));
    let of_b = number(&mut engine, b);
    // A repetition has bytes of its own, and so the operand is there for others.
    assert!(engine.drop(b).unwrap());
    assert_eq!(engine.stats().used, KB);
    assert_eq!((number(&mut engine, b), number(&mut engine, other)), (of_b, of_other));
    assert_eq!(number(&mut engine, b), of_b);
    for tensor in [b, other, x] {
        engine.del(tensor).unwrap();
    }
    assert_eq!((engine.stats().used, engine.host.used), (Bytes::ZERO, 0));
}

#[test]
fn a_chain_goes_through_the_bytes_of_one() {
    for kilobytes in [2, 3] {
        let mut engine = engine(kilobytes);
        let (_, mut last) = pair(&mut engine);
        for _ in 0..5 {
            let next = op(&mut engine, "exp", &[last], &[TAKES])[0];
            engine.del(last).unwrap();
            last = next;
        }
        assert_eq!((engine.stats().peak, engine.stats().recomputes), (Bytes(2048), 0));
        let before = number(&mut engine, last);
        // To come back it takes an operand and a result at a time.
        assert!(engine.drop(last).unwrap());
        match kilobytes {
            2 => assert!(matches!(engine.get(last), Err(Fault::NoRoom(_)))),
            _ => assert_eq!(number(&mut engine, last), before),
        }
    }
}

#[test]
fn what_may_not_go_is_not_written_over() {
    type Hold = fn(&mut Engine<'_, Numbers>, TensorId) -> (Vec<TensorId>, Output);
    let holds: [(&str, Hold); 6] = [
        ("held twice", |engine, a| {
            engine.share(a).unwrap();
            (vec![a], TAKES)
        }),
        ("a view is held", |engine, a| {
            op(engine, "view", &[a], &[Output::View(0)]);
            (vec![a], TAKES)
        }),
        ("pinned", |engine, a| {
            engine.pin(a).unwrap();
            (vec![a], TAKES)
        }),
        ("read twice", |_, a| (vec![a, a], TAKES)),
        ("another size", |_, a| (vec![a], Output::Takes(Bytes(512), 0))),
        ("a source", |engine, _| (vec![engine.put(KB, Role::Input).unwrap()], TAKES)),
    ];
    for (what, hold) in holds {
        let mut engine = engine(8);
        let (_, a) = pair(&mut engine);
        let (reads, output) = hold(&mut engine, a);
        let (before, of_a) = (engine.stats().used, number(&mut engine, reads[0]));
        op(&mut engine, "exp", &reads, &[output]);
        assert_eq!(engine.stats().used, before + output.bytes(), "{what}");
        assert!(engine.is_resident(reads[0]), "{what}");
        assert_eq!(number(&mut engine, reads[0]), of_a, "{what}");
    }
}

#[test]
fn a_source_goes_where_its_op_does_not_run_again() {
    let mut engine = engine(1);
    let x = engine.put(KB, Role::Input).unwrap();
    let mut made = Vec::new();
    let (reads, outputs) = ([x], [TAKES]);
    let call =
        Call { kind: "exp", reads: &reads, outputs: &outputs, effect: Effect::Once, ..Call::default() };
    engine.apply(&call, &mut made).unwrap();
    engine.del(x).unwrap();
    assert!(engine.is_resident(made[0]) && !engine.is_evictable(made[0]));
    assert_eq!(engine.stats().peak, KB);
    engine.del(made[0]).unwrap();
    assert_eq!((engine.stats().used, engine.host.used), (Bytes::ZERO, 0));
}

#[test]
fn what_a_failed_run_was_to_be_written_over_is_doubted() {
    let mut engine = engine(4);
    let (_, a) = pair(&mut engine);
    let of_a = number(&mut engine, a);
    engine.host.fails = true;
    let (reads, outputs) = ([a], [TAKES]);
    let call = Call { kind: "exp", reads: &reads, outputs: &outputs, ..Call::default() };
    assert!(engine.apply(&call, &mut Vec::new()).is_err());
    engine.host.fails = false;
    assert!(!engine.is_resident(a), "it may be half written");
    assert_eq!(number(&mut engine, a), of_a);
    assert_eq!(engine.stats().used.0, engine.host.used);
    assert_eq!(engine.held().len(), 2);
}

/// Layers whose outputs are read again backward, each with an op on it that is written over; its gradient as well.
fn step(layers: u32) -> Trace {
    let mut trace = Trace { kinds: vec!["f".to_owned(), "bias".to_owned()], ..Trace::default() };
    let mut made = 0;
    trace.events.push(Event::Put { size: KB, role: Role::Parameter });
    let mut call = |trace: &mut Trace, kind: usize, reads: &[u32], ends: &[u32]| {
        let outputs = vec![if kind == 0 { Output::Fresh(KB) } else { TAKES }];
        let (reads, time) = (reads.to_vec(), Nanos(100));
        trace.events.push(Event::Call {
            kind,
            reads,
            outputs,
            time,
            workspace: Bytes::ZERO,
            effect: Effect::Pure,
        });
        trace.events.extend(ends.iter().map(|&ended| Event::Release(ended)));
        made += 1;
        made
    };
    let mut saved = vec![0];
    for _ in 0..layers {
        let linear = call(&mut trace, 0, &saved[saved.len() - 1..], &[]);
        saved.push(call(&mut trace, 1, &[linear, 0], &[linear]));
    }
    let mut gradient = saved.pop().unwrap();
    for &activation in saved[1..].iter().rev() {
        let next = call(&mut trace, 0, &[gradient, activation], &[gradient, activation]);
        gradient = call(&mut trace, 1, &[next, 0], &[next]);
    }
    trace.held = vec![0, gradient];
    trace
}

#[test]
fn recorded_steps_and_plans_count_alike() {
    let trace = step(12);
    let all = recorded(&trace).unwrap();
    assert!(all.graph.op_ids().any(|op| all.graph.op(op).reuses.iter().any(|pair| !pair.must)));
    let peak = trace.base().peak;
    // The parameter, twelve activations, and what the last is computed with. A bias in bytes of its own would be one more.
    assert_eq!(peak, Bytes(13 * 1024 + 1024));
    let settings =
        |budget: Bytes| Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) };
    let (free, stats) = record(&trace, settings(peak)).unwrap();
    assert_eq!((stats.peak, stats.recomputes, stats.unavoidable), (peak, 0, Bytes(4096)));
    assert!(free.judged(&settings(peak)).is_ok());
    let effort = offline::Effort { most_recompute: 100, ..offline::Effort::default() };
    for share in [30, 50, 70, 90] {
        let budget = Bytes(peak.0 * share / 100);
        let (online, stats) = record(&trace, settings(budget)).unwrap();
        assert!(stats.peak <= budget && stats.recomputes > 0, "{share} %");
        assert!(online.judged(&settings(budget)).is_ok(), "{share} %");
        let planned = offline::plan(&trace, &settings(budget), &effort).unwrap();
        let plan = planned.recorded.judged(&settings(budget)).unwrap();
        let (_, stats) = followed(&trace, settings(budget), plan).unwrap().expect("a plan is followed");
        assert!(stats.peak <= budget, "{share} %");
        assert_eq!(stats.recomputes, planned.stats.recomputes, "{share} %");
    }
}

#[test]
fn random_chains_come_back_number_by_number() {
    for seed in 0..200 {
        let mut rng = memfit_testkit::Rng::new(seed);
        let mut engine = engine(8 + rng.below(6) as u64);
        let source = common::numbers::put(&mut engine, KB, Role::Input).unwrap();
        let mut held = vec![source];
        for _ in 0..60 {
            let at = rng.below(held.len());
            let other = held[rng.below(held.len())];
            let ends = at > 0 && rng.chance(60);
            let output = if ends { TAKES } else { Output::Fresh(KB) };
            let reads = if rng.chance(50) { vec![held[at]] } else { vec![held[at], other] };
            let call =
                Call { kind: "f", reads: &reads, outputs: &[output], time: Nanos(10), ..Call::default() };
            let mut made = Vec::new();
            match common::numbers::apply(&mut engine, &call, &mut made) {
                Ok(()) => {}
                Err(Fault::NoRoom(_)) => break,
                Err(fault) => panic!("seed {seed}: {fault}"),
            }
            if ends {
                engine.del(held.swap_remove(at)).unwrap();
            }
            held.extend(made);
            while held.len() > 8 {
                engine.del(held.swap_remove(1 + rng.below(held.len() - 1))).unwrap();
            }
        }
        check(&mut engine, &format!("seed {seed}"));
        assert!(engine.host.most <= engine.settings().budget.0, "seed {seed}");
    }
}
