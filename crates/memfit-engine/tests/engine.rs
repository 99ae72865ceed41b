//! What a host can rely on: versions, views, pins, deletion, errors, random numbers, guidance and its end.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use memfit_engine::replay::{Event, Trace, record, replay_guided};
use memfit_engine::{Call, Dealloc, Engine, Fault, Output, Settings, TensorId, VirtualHost, Why, offline};
use memfit_ir::{Bytes, Effect, Nanos, Role};
use memfit_testkit::{Rng, graph};

use common::numbers::{KB, Numbers, number, op, step};

fn engine(kilobytes: u64) -> Engine<'static, Numbers> {
    Engine::new(Numbers::default(), Settings::new(Bytes(1024 * kilobytes))).unwrap()
}

#[test]
fn a_chain_longer_than_the_budget_comes_back_number_by_number() {
    let run = |kilobytes: u64| {
        let mut engine = engine(kilobytes);
        let mut chain = vec![engine.put(KB, Role::Input).unwrap()];
        for _ in 0..40 {
            let next = op(&mut engine, "f", &chain[chain.len() - 1..], &[Output::Fresh(KB)]);
            chain.extend(next);
        }
        let numbers: Vec<u64> = chain.iter().rev().map(|&tensor| number(&mut engine, tensor)).collect();
        assert!(engine.host.most <= kilobytes * 1024);
        (numbers, engine.stats().recomputes)
    };
    let (all, few) = (run(64), run(4));
    assert_eq!(all.0, few.0);
    assert!(all.1 == 0 && few.1 > 0);
}

#[test]
fn ten_thousand_evicted_ancestors_do_not_overflow_the_stack() {
    let mut engine = engine(4);
    let mut last = engine.put(KB, Role::Input).unwrap();
    let first = op(&mut engine, "f", &[last], &[Output::Fresh(KB)])[0];
    last = first;
    for _ in 0..10_000 {
        let next = op(&mut engine, "f", &[last], &[Output::Fresh(KB)])[0];
        engine.del(last).unwrap();
        last = next;
    }
    assert!(engine.drop(last).unwrap());
    engine.get(last).unwrap();
    assert!(engine.stats().recomputes >= 10_000);
}

#[test]
fn an_overwritten_version_is_recomputed_and_overwritten_again() {
    let mut engine = engine(8);
    let x = engine.put(KB, Role::Input).unwrap();
    let a = op(&mut engine, "f", &[x], &[Output::Fresh(KB)])[0];
    let before = number(&mut engine, a);
    let b = op(&mut engine, "relu_", &[a], &[Output::InPlace(0)])[0];
    assert_eq!(engine.stats().used, Bytes(2048));
    let after = number(&mut engine, b);
    assert!(engine.drop(b).unwrap() && !engine.is_resident(b) && !engine.is_resident(a));
    assert_eq!(number(&mut engine, b), after);
    assert_eq!(number(&mut engine, a), before);
    assert_eq!(number(&mut engine, b), after);
}

#[test]
fn what_depends_on_a_lost_version_is_brought_back_before_it_is_lost() {
    let mut engine = engine(16);
    let w = engine.put(KB, Role::Parameter).unwrap();
    let y = op(&mut engine, "f", &[w], &[Output::Fresh(KB)])[0];
    let z = op(&mut engine, "g", &[y], &[Output::Fresh(KB)])[0];
    let (of_y, of_z) = (number(&mut engine, y), number(&mut engine, z));
    engine.drop(z).unwrap();
    engine.drop(y).unwrap();
    let w2 = op(&mut engine, "step_", &[w], &[Output::InPlace(0)])[0];
    engine.del(w).unwrap();
    assert!(engine.is_resident(y) && !engine.drop(y).unwrap(), "y can't be computed again");
    assert_eq!((number(&mut engine, y), number(&mut engine, z)), (of_y, of_z));
    assert!(!engine.drop(w2).unwrap());
}

#[test]
fn views_go_with_their_storage_and_come_back_by_their_op() {
    let mut engine = engine(8);
    let x = engine.put(KB, Role::Input).unwrap();
    let a = op(&mut engine, "f", &[x], &[Output::Fresh(KB)])[0];
    let v = op(&mut engine, "view", &[a], &[Output::View(0)])[0];
    assert_eq!(engine.stats().used, Bytes(2048));
    engine.del(a).unwrap();
    assert!(engine.is_resident(v), "a view holds its storage");
    assert!(engine.drop(v).unwrap() && !engine.is_resident(v));
    engine.restore(v).unwrap();
    assert_eq!(engine.stats().recomputes, 2);
}

#[test]
fn random_ops_draw_the_same_numbers_again_or_are_kept() {
    let mut engine = engine(8);
    let x = engine.put(KB, Role::Input).unwrap();
    let mut made = Vec::new();
    let reads = [x];
    let outputs = [Output::Fresh(KB), Output::Fresh(Bytes(128))];
    let call =
        Call { kind: "dropout", reads: &reads, outputs: &outputs, effect: Effect::Seeded, ..Call::default() };
    engine.apply(&call, &mut made).unwrap();
    let (y, mask) = (number(&mut engine, made[0]), number(&mut engine, made[1]));
    assert!(engine.drop(made[0]).unwrap());
    assert_eq!((number(&mut engine, made[0]), number(&mut engine, made[1])), (y, mask));
    let mut host = VirtualHost::default();
    host.replays_random = false;
    let mut engine = Engine::new(host, Settings::new(Bytes(8192))).unwrap();
    let x = engine.put(KB, Role::Input).unwrap();
    let mut made = Vec::new();
    engine.apply(&Call { reads: &[x], ..call }, &mut made).unwrap();
    assert!(!engine.drop(made[0]).unwrap());
}

#[test]
fn no_room_says_who_holds_what_and_how_much_would_do() {
    let mut engine = engine(4);
    let w = engine.put(KB, Role::Parameter).unwrap();
    let b = op(&mut engine, "f", &[w], &[Output::Fresh(KB)])[0];
    let a = op(&mut engine, "f", &[w], &[Output::Fresh(KB)])[0];
    engine.pin(a).unwrap();
    let mut made = Vec::new();
    let call = Call { kind: "big", reads: &[b], outputs: &[Output::Fresh(Bytes(2048))], ..Call::default() };
    let Err(Fault::NoRoom(fault)) = engine.apply(&call, &mut made) else { panic!("it can't fit") };
    let mut why: Vec<Why> = fault.holding.iter().map(|holding| holding.why).collect();
    why.sort_unstable();
    assert_eq!((why, fault.enough), (vec![Why::Operand, Why::Pinned, Why::Source], Bytes(5 * 1024)));
    assert_eq!(
        fault.to_string(),
        "out of memory: op `big` takes `2 KiB` more, the budget is `4 KiB`: `1 KiB` operands of the op, `1 KiB` pinned by the \
         user, `1 KiB` can't be computed again; less than `5 KiB` is not enough for it"
    );
    assert!(made.is_empty());
    engine.unpin(a).unwrap();
    engine.apply(&call, &mut made).unwrap();
    assert!(!engine.is_resident(a));
}

#[test]
fn what_a_first_run_took_is_what_its_repetition_has() {
    let mut engine = engine(8);
    let input = engine.put(KB, Role::Input).unwrap();
    engine.host.measured = Some(Bytes(3 * 1024));
    let guess = Call {
        kind: "f",
        reads: &[input],
        outputs: &[Output::Fresh(KB)],
        workspace: Bytes(512),
        time: Nanos(10),
        ..Call::default()
    };
    let mut made = Vec::new();
    engine.apply(&guess, &mut made).unwrap();
    assert_eq!(engine.host.had, (Bytes(512), Bytes(8 * 1024 - 2 * 1024 - 512)));
    assert_eq!(engine.stats().peak, Bytes(5 * 1024));
    engine.host.measured = None;
    // For the repetition some of these have to go.
    let held: Vec<TensorId> =
        (0..6).flat_map(|_| op(&mut engine, "g", &[input], &[Output::Fresh(KB)])).collect();
    assert!(engine.drop(made[0]).unwrap());
    number(&mut engine, made[0]);
    assert_eq!(engine.host.had.0, Bytes(3 * 1024));
    assert!(engine.stats().peak <= Bytes(8 * 1024));
    assert!(held.iter().any(|&tensor| !engine.is_resident(tensor)));
}

#[test]
fn a_failing_host_leaves_nothing_behind() {
    let mut engine = engine(8);
    let x = engine.put(KB, Role::Input).unwrap();
    engine.host.fails = true;
    let mut made = Vec::new();
    let call = Call { kind: "f", reads: &[x], outputs: &[Output::Fresh(KB)], ..Call::default() };
    assert!(matches!(engine.apply(&call, &mut made), Err(Fault::Host(_))));
    engine.host.fails = false;
    assert_eq!((engine.stats().used, engine.held()), (KB, vec![x]));
    engine.apply(&call, &mut made).unwrap();
    engine.del(made[0]).unwrap();
    assert!(matches!(engine.del(made[0]), Err(Fault::Unknown(_))));
    engine.del(x).unwrap();
    assert_eq!(engine.stats().used, Bytes::ZERO);
}

/// Between the ops of a step come some that fail: of the device, for want of room, with outputs and without, over what is
/// there and over what must come back first.
#[test]
fn ops_that_fail_change_nothing_that_comes_after() {
    let run = |seed: u64, fails: bool| {
        let mut rng = Rng::new(seed);
        let mut engine = engine(12);
        let weight = engine.put(KB, Role::Parameter).unwrap();
        let mut chain = vec![weight];
        for _ in 0..40 {
            let from = chain[rng.below(chain.len())];
            let also = chain[rng.below(chain.len())];
            let reads = if from == also { vec![from] } else { vec![from, also] };
            let outputs =
                [Output::Fresh(KB), Output::View(0), Output::InPlace(0), Output::Fresh(Bytes(1 << 20))];
            let shape = rng.below(6);
            let (kept, dropped) = (rng.below(3) == 0, rng.below(chain.len()));
            if fails {
                let outputs = match shape {
                    4 => &outputs[..0],
                    5 => &[Output::Fresh(KB), Output::View(0), Output::Fresh(KB)][..],
                    // Over the weight it would be lost.
                    2 if from == weight => &outputs[..1],
                    shape => &outputs[shape..=shape],
                };
                engine.host.fails = shape != 3;
                let call = Call { kind: "bad", reads: &reads, outputs, ..Call::default() };
                let before = engine.held();
                assert!(engine.apply(&call, &mut Vec::new()).is_err());
                assert_eq!(engine.held(), before);
                engine.host.fails = false;
            }
            chain.extend(op(&mut engine, "f", &reads, &[Output::Fresh(KB)]));
            if kept && dropped > 0 {
                engine.del(chain.swap_remove(dropped)).unwrap();
            }
        }
        let numbers: Vec<u64> = chain.iter().map(|&tensor| number(&mut engine, tensor)).collect();
        for tensor in chain {
            engine.del(tensor).unwrap();
        }
        assert_eq!((engine.stats().used, engine.host.used), (Bytes::ZERO, 0));
        numbers
    };
    for seed in 0..300 {
        assert_eq!(run(seed, true), run(seed, false), "seed {seed}");
    }
}

#[test]
fn a_training_loop_does_not_grow_the_tables() {
    let mut engine = engine(64);
    let mut weight = engine.put(KB, Role::Parameter).unwrap();
    let mut slots = Vec::new();
    for _ in 0..50 {
        let x = engine.put(KB, Role::Input).unwrap();
        let y = op(&mut engine, "f", &[x, weight], &[Output::Fresh(KB)])[0];
        let gradient = op(&mut engine, "b", &[y, x, weight], &[Output::Fresh(KB)])[0];
        let next = op(&mut engine, "step_", &[weight, gradient], &[Output::InPlace(0)])[0];
        for gone in [x, y, gradient, weight] {
            engine.del(gone).unwrap();
        }
        weight = next;
        slots.push(weight.0);
        assert_eq!(engine.stats().used, KB);
    }
    assert!(slots.iter().all(|&slot| slot < 12), "{slots:?}");
}

#[test]
fn a_step_that_begins_forgets_the_past_and_its_log_stands_alone() {
    let mut engine = engine(64);
    let x = engine.put(KB, Role::Input).unwrap();
    let y = op(&mut engine, "f", &[x], &[Output::Fresh(KB)])[0];
    engine.drop(y).unwrap();
    engine.begin_step().unwrap();
    let z = op(&mut engine, "g", &[y], &[Output::Fresh(KB)])[0];
    engine.drop(z).unwrap();
    let step = engine.end_step().unwrap();
    assert_eq!((step.graph.op_count(), step.graph.results().len()), (1, 3));
    let limits = memfit_ir::Limits::arena(Bytes(64 * 1024), Bytes(512));
    memfit_verify::verify(&step.graph, &limits, step.plan().unwrap()).unwrap();
}

/// Record a step, plan it, follow the plan in the next one: less recomputation, the same numbers.
#[test]
fn the_second_step_of_a_training_loop_follows_the_plan() {
    let run = |budget: u64, plan: bool| {
        let settings = Settings { log: true, ..Settings::new(Bytes(budget)) };
        let mut engine = Engine::new(Numbers::default(), settings.clone()).unwrap();
        let mut weight = engine.put(KB, Role::Parameter).unwrap();
        engine.begin_step().unwrap();
        let mut numbers = Vec::new();
        let mut costs = Vec::new();
        for at in 0..3 {
            let before = engine.stats().recompute_ns;
            let (new, number) = step(&mut engine, weight, 12);
            assert!(engine.host.most <= budget && (at == 0 || !plan || engine.is_guided()));
            weight = new;
            numbers.push(number);
            let recorded = engine.end_step().unwrap();
            costs.push(engine.stats().recompute_ns - before);
            let limits = memfit_ir::Limits {
                replays_random: true,
                ..memfit_ir::Limits::arena(Bytes(budget), Bytes(512))
            };
            memfit_verify::verify(&recorded.graph, &limits, recorded.plan().unwrap()).unwrap();
            engine.begin_step().unwrap();
            if plan {
                let planned = offline::plan(&recorded.trace, &settings, &offline::Effort::default()).unwrap();
                engine.follow(planned.recorded.judged(&settings).unwrap());
            }
        }
        (numbers, costs)
    };
    let (free, _) = run(1 << 20, false);
    let (online, costs) = run(13 * 1024, false);
    let (planned, fewer) = run(13 * 1024, true);
    assert_eq!((&online, &planned), (&free, &free));
    assert!(costs[1] > 0 && fewer[1] < costs[1] && fewer[2] <= fewer[1], "{costs:?} {fewer:?}");
}

/// Sampling and the like change the choice, never whether there is one.
#[test]
fn sieves_never_hold_all_back() {
    use memfit_engine::evict::{EVICTORS, Options, Sample, Sieve};
    for entry in EVICTORS {
        for sieve in [
            Sieve { sample: Sample::Sqrt, ..Sieve::default() },
            Sieve { sample: Sample::Count(2.try_into().unwrap()), minimum: 1 << 40, ..Sieve::default() },
            Sieve { share_of_mean: 0.01, ..Sieve::default() },
            Sieve { minimum: 1 << 40, ..Sieve::default() },
        ] {
            let settings = Settings {
                evictor: entry.info.name.to_owned(),
                options: Options { sieve, seed: 3, ..Options::default() },
                ..Settings::new(Bytes(8 * 1024))
            };
            let mut engine = Engine::new(Numbers::default(), settings).unwrap();
            let mut last = engine.put(KB, Role::Input).unwrap();
            for at in 0..60 {
                last = op(&mut engine, "f", &[last], &[Output::Fresh(Bytes(512 + at % 3 * 256))])[0];
            }
            assert!(engine.stats().evictions > 40, "{} with {sieve:?}", entry.info.name);
        }
    }
}

/// Plans for random steps are followed to the end, keep the budget, and cost what they say.
#[test]
fn plans_are_followed_on_random_steps() {
    let effort = offline::Effort { tries: 3, ..offline::Effort::default() };
    let mut again = 0;
    for seed in 0..300 {
        let graph = graph(seed);
        let trace = Trace::of_graph(&graph, |op| Nanos(1 + u64::from(op.0) * 7 % 13));
        for allocator in ["ideal", "best-fit"] {
            let budget = Bytes(trace.base().peak.0 * 14 / 16 + 8).round_up(Bytes(4));
            let settings =
                Settings { align: Bytes(4), allocator: allocator.to_owned(), ..Settings::new(budget) };
            let Ok(planned) = offline::plan(&trace, &settings, &effort) else { continue };
            if let Some(plan) = planned.recorded.plan() {
                let limits =
                    memfit_ir::Limits { replays_random: true, ..memfit_ir::Limits::arena(budget, Bytes(4)) };
                let truth = memfit_testkit::bytes::Truth::of(&planned.recorded.graph);
                memfit_testkit::bytes::check(&truth, &planned.recorded.graph, &limits, &plan).unwrap();
                memfit_verify::verify(&planned.recorded.graph, &limits, plan).unwrap();
            }
            let judged = planned.recorded.judged(&settings).unwrap();
            let report = replay_guided(&trace, settings, 1e9, Some(judged)).unwrap();
            assert!(report.guided && report.stats.peak <= budget, "seed {seed}, {allocator}");
            assert_eq!(report.stats.recompute_ns, planned.stats.recompute_ns, "seed {seed}, {allocator}");
            again += report.stats.recomputes;
        }
    }
    assert!(again > 0);
}

/// A graph is planned in its own numbers.
#[test]
fn planned_graphs_pass_the_judge() {
    let effort = offline::Effort { tries: 2, ..offline::Effort::default() };
    let (mut fits, mut again) = (0, 0);
    for case in 0..800u64 {
        let (seed, part) = (case / 2, [20, 15][usize::try_from(case % 2).unwrap()]);
        let graph = graph(seed);
        let time = |op: memfit_ir::OpId| Nanos(1 + u64::from(op.0) * 5 % 11);
        let budget = Bytes(Trace::of_graph(&graph, time).base().peak.0 * part / 16 + 4).round_up(Bytes(4));
        let settings = Settings { align: Bytes(4), ..Settings::new(budget) };
        let Ok(planned) = offline::plan_graph(&graph, time, &settings, &effort) else { continue };
        let limits = memfit_ir::Limits { replays_random: true, ..memfit_ir::Limits::arena(budget, Bytes(4)) };
        let layout = planned.layout.expect("the allocator has addresses");
        let plan = memfit_ir::Plan { graph: graph.digest(), program: planned.program, layout };
        if let Err(rejected) = memfit_verify::verify(&graph, &limits, plan) {
            panic!("seed {seed}: {rejected}");
        }
        fits += 1;
        again += planned.stats.recomputes;
    }
    assert!(fits > 150 && again > 0, "{fits} {again}");
}

/// Whatever the step does instead of what was recorded, the engine goes on by itself, and the log stays right.
#[test]
fn a_step_that_differs_falls_back_without_losing_anything() {
    let mut diverged = 0;
    for seed in 0..400u64 {
        let mut rng = Rng::new(seed);
        let graph = graph(seed);
        let trace = Trace::of_graph(&graph, |op| Nanos(1 + u64::from(op.0) % 5));
        let budget = Bytes(trace.base().peak.0 * 15 / 16 + 8).round_up(Bytes(4));
        let settings = Settings { align: Bytes(4), ..Settings::new(budget) };
        let Ok((recorded, _)) = record(&trace, Settings { forget: false, ..settings.clone() }) else {
            continue;
        };
        let mut other = trace.clone();
        let calls: Vec<usize> =
            (0..other.events.len()).filter(|&at| matches!(other.events[at], Event::Call { .. })).collect();
        let Some(at) = rng.pick(&calls) else { continue };
        other.kinds.push("something else".to_owned());
        if let Event::Call { kind, .. } = &mut other.events[at] {
            *kind = other.kinds.len() - 1;
        }
        let settings = Settings { log: true, dealloc: Dealloc::EagerEvict, ..settings };
        let mut engine = Engine::new(VirtualHost::default(), settings.clone()).unwrap();
        engine.follow(recorded.judged(&settings).unwrap());
        match memfit_engine::replay::drive(&mut engine, &other) {
            Ok(()) => {}
            Err(Fault::NoRoom(_)) => continue,
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
        assert!(!engine.is_guided(), "seed {seed}");
        diverged += 1;
        let Ok(step) = engine.end_step() else { continue };
        let limits = memfit_ir::Limits { replays_random: true, ..memfit_ir::Limits::arena(budget, Bytes(4)) };
        if let Err(rejected) = memfit_verify::verify(&step.graph, &limits, step.plan().unwrap()) {
            panic!("seed {seed}: {rejected}");
        }
    }
    assert!(diverged > 50, "{diverged}");
}

#[test]
fn a_budget_can_change_while_things_run() {
    let settings =
        Settings { allocator: "ideal".to_owned(), align: Bytes(1), ..Settings::new(Bytes(8 << 10)) };
    let mut engine = Engine::new(VirtualHost::default(), settings).unwrap();
    let mut chain = vec![engine.put(KB, Role::Input).unwrap()];
    for _ in 0..6 {
        let reads = [chain[chain.len() - 1]];
        let call = Call { kind: "f", reads: &reads, outputs: &[Output::Fresh(KB)], ..Call::default() };
        engine.apply(&call, &mut chain).unwrap();
    }
    assert_eq!(engine.stats().used, Bytes(7 << 10));
    engine.set_budget(Bytes(3 << 10)).unwrap();
    assert!(engine.stats().used <= Bytes(3 << 10));
    assert_eq!(engine.stats().peak, Bytes(7 << 10));
    engine.reset_peak();
    for &tensor in chain.iter().rev() {
        engine.get(tensor).unwrap();
    }
    assert!(engine.stats().peak <= Bytes(3 << 10) && engine.stats().recomputes > 0);
    engine.pin(chain[6]).unwrap();
    let Err(Fault::NoRoom(told)) = engine.set_budget(Bytes(1 << 10)) else { panic!("two can't go") };
    assert_eq!((told.budget, told.enough), (Bytes(1 << 10), Bytes(2 << 10)));
    assert_eq!(engine.settings().budget, Bytes(3 << 10));
    engine.set_budget(Bytes(8 << 10)).unwrap();
    for &tensor in &chain {
        engine.restore(tensor).unwrap();
    }
    assert_eq!(engine.stats().used, Bytes(7 << 10));
}

#[test]
fn an_arena_with_addresses_keeps_its_size() {
    let mut engine = engine(4);
    assert!(matches!(engine.set_budget(Bytes(1 << 20)), Err(Fault::BadCall(_))));
}
