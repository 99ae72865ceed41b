//! Offloading and hybrids on random graphs: within both budgets, right on real bytes, as fast as the clock says.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::rc::Rc;

use memfit_ir::{Bytes, Codec, Device, InPlace, Limits, Link, Nanos, OpId, Plan, Program, Step, Store, Tier};
use memfit_plan::Context;
use memfit_plan::families::Named;
use memfit_plan::liveness::Profile;
use memfit_plan::place::{Problem, by_name};
use memfit_plan::schedule::offload::{AutoSwap, MoDnn, Vdnn};
use memfit_plan::schedule::{Cost, Scheduler, Task, compress, hybrid, offload, recompute};
use memfit_sim::simulate;
use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::{Layered, cases, device, layered, one_of, with_algorithms};
use memfit_verify::verify;

const KIB: u64 = 1 << 10;

/// One of each kind.
const LOSSY: [Codec; 4] = [Codec::ZvcF16, Codec::CastBf16, Codec::Int4, Codec::Int8Mask];

fn linked(host: Bytes) -> Device {
    let link = Link {
        out_bandwidth: 4e9,
        in_bandwidth: 6e9,
        duplex_cap: f64::INFINITY,
        latency: Nanos(100),
        asynchronous: true,
    };
    Device { link: Some(link), host_memory: host, ..device() }
}

/// A random graph whose values are large enough to be worth a transfer.
fn graph(seed: u64) -> memfit_ir::Graph {
    layered(shape(seed), seed)
}

/// The same, of which two ops of three have up to three other algorithms.
fn graph_with_choices(seed: u64) -> memfit_ir::Graph {
    with_algorithms(&graph(seed), 64, seed)
}

fn shape(seed: u64) -> Layered {
    let ops = 4 + usize::try_from(seed % 37).unwrap();
    let sparse = usize::try_from(seed % 4).unwrap();
    Layered { ops, edges: ops * 2, layers: ops / 2, skips: 60, unit: 64, sparse }
}

/// The fastest plan of `strategy` within `budget`, if it finds any; all are judged, run on real bytes, and timed.
fn planned(
    strategy: (&dyn Scheduler, bool),
    graph: &memfit_ir::Graph,
    on: (&Device, InPlace),
    budget: Bytes,
    what: &str,
) -> Option<(Nanos, usize)> {
    planned_with(&[], strategy, graph, on, budget, what)
}

/// The same where codecs of `lossy` are allowed.
fn planned_with(
    lossy: &[Codec],
    (strategy, recomputes): (&dyn Scheduler, bool),
    graph: &memfit_ir::Graph,
    (device, in_place): (&Device, InPlace),
    budget: Bytes,
    what: &str,
) -> Option<(Nanos, usize)> {
    let context = Context { lossy, ..Context::new(device) };
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(graph, &order, in_place, true, &context);
    let front = match strategy.plan(&task, budget, &context) {
        Ok(front) => front,
        Err(missed) => {
            assert!(missed.proved == (budget < task.least()), "{what}: {missed:?}");
            return None;
        }
    };
    let first = front.points.first().unwrap_or_else(|| panic!("{what}: no step"));
    let base = task.least_time();
    assert!(front.bound >= base && (!front.proved || first.cost.time == base), "{what}");
    let found = front.points.iter().map(|point| {
        let program = point.program(&task).unwrap();
        let runs = program.steps.iter().filter(|step| matches!(step, Step::Compute(_)));
        assert_eq!(runs.count(), point.schedule.len(), "{what}");
        assert!(point.cost.peak <= budget && point.cost.time >= base, "{what}");
        (point.cost.time, held_to_account(graph, (program, point.cost), (recomputes, lossy), device, what))
    });
    found.collect::<Vec<_>>().first().copied()
}

/// What `graph` computes; that of the last graph is kept.
fn truth_of(graph: &memfit_ir::Graph) -> Rc<Truth> {
    thread_local!(static LAST: RefCell<Option<(memfit_ir::Digest, Rc<Truth>)>> = const { RefCell::new(None) });
    let digest = graph.digest();
    LAST.with_borrow_mut(|last| match last {
        Some((of, truth)) if *of == digest => truth.clone(),
        _ => last.insert((digest, Rc::new(Truth::of(graph)))).1.clone(),
    })
}

/// How much `program` stores, which takes `cost`: the judge, real bytes and the clock are asked.
fn held_to_account(
    graph: &memfit_ir::Graph,
    (program, Cost { peak, time }): (Program, Cost),
    (recomputes, lossy): (bool, &[Codec]),
    device: &Device,
    what: &str,
) -> usize {
    assert_eq!(peak, Profile::of(&program, device.align).peak().0, "{what}");
    let timeline = simulate(graph, &program, None, device);
    assert_eq!((time, timeline.stuck), (timeline.time, 0), "{what}");
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, device.align));
    let placement = by_name("dive").unwrap().place(&problem, &Context::new(device)).unwrap();
    let layout = Problem::layout(&placement.places, &item_of);
    let plan = Plan { graph: graph.digest(), program, layout };
    let Limits { host, disk, .. } = device.limits();
    let lossy = lossy.to_vec();
    let limits = Limits { host, disk, lossy, ..Limits::arena(placement.height, device.align) };
    let verified =
        verify(graph, &limits, plan.clone()).unwrap_or_else(|rejected| panic!("{what}: {rejected}"));
    assert!(verified.tier_peak(Tier::Host) <= device.host_memory, "{what}");
    if let Err(fault) = check(&truth_of(graph), graph, &limits, &plan) {
        panic!("{what}: wrong bytes: {fault:?}");
    }
    assert!(recomputes || timeline.recomputes == 0, "{what}");
    let stores =
        plan.program.steps.iter().filter(|step| matches!(step, Step::Offload { .. } | Step::Encode { .. }));
    stores.count()
}

/// Hybrids find what recomputation or offloading alone finds within the same live budget, and are not slower; and more often
/// than not, faster.
#[test]
fn hybrids_are_not_slower_than_either_alone() {
    let (mut both, mut faster, mut stores) = (0, 0, 0);
    let (part, half) = (one_of(3), one_of(2));
    for seed in (0..60).step_by(7 * part) {
        let graph = graph(seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let cells = [(60, 1 << 30), (30, 1 << 30), (10, 1 << 30), (40, 60 * KIB)];
        // Half of them, in turn, or `MEMFIT_ALL=1` all.
        for (part, host) in cells.into_iter().skip(usize::try_from(seed).unwrap() % half).step_by(half) {
            // A slow link, so that not all that could move does.
            let asynchronous = seed % 3 > 0;
            let link = linked(Bytes(0)).link.unwrap();
            let link = Link { out_bandwidth: 4e8, in_bandwidth: 6e8, asynchronous, ..link };
            let device = Device { link: Some(link), host_memory: Bytes(host), ..device() };
            let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed % 2).unwrap()];
            let context = Context::new(&device);
            let task = Task::new(&graph, &order, in_place, true, &context);
            let (floor, peak) = (task.floor().0, task.reference());
            let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) * part / 100);
            let what = format!("seed {seed}, {part} %, host {host}");
            let alone = [&recompute::Best as &dyn Scheduler, &offload::Best, &compress::Best];
            let alone = alone.iter().filter_map(|one| one.plan(&task, budget, &context).ok()?.time()).min();
            let Some(alone) = alone else { continue };
            let mixed = planned((&hybrid::Best, true), &graph, (&device, in_place), budget, &what);
            let (time, count) = mixed.unwrap_or_else(|| panic!("{what}: nothing found"));
            assert!(time <= alone, "{what}: {time} against {alone}");
            // The same input, the same plan: on a part of the graphs, for it takes half of the time.
            if seed % 63 == 21 {
                let again = planned((&hybrid::Best, true), &graph, (&device, in_place), budget, &what);
                assert_eq!(again, mixed, "{what}: other plans");
            }
            both += 1;
            faster += usize::from(time < alone);
            stores += count;
        }
    }
    println!("{both} plans, {faster} faster than recomputation and offloading alone; {stores} stores");
    let part = part * half;
    assert!(both > 30 / part && faster > 2 / part && stores > 30 / part);
}

#[test]
fn plans_keep_to_both_budgets_and_have_the_right_bytes() {
    let (mut found, mut tight, mut stores, mut hidden, mut on_disk) = (0, 0, 0, 0, 0);
    // A part of the graphs, and on each a part of the strategies; `MEMFIT_CASES=10000` takes as many graphs and all strategies that
    // are quick, each graph with one of the memories. An eighth of the memories, or `MEMFIT_ALL=1` all.
    let part = one_of(8) as u64;
    let cases = std::env::var("MEMFIT_CASES").ok().and_then(|text| text.parse::<u64>().ok());
    for seed in 0..cases.unwrap_or(60) {
        let graph = if seed % 3 == 1 { graph_with_choices(seed) } else { graph(seed) };
        let order: Vec<OpId> = graph.op_ids().collect();
        let memories = [(90, 1 << 30, 0), (60, 1 << 30, 0), (30, 1 << 30, 0), (0, 1 << 30, 0)];
        let small = [(60, 40 * KIB, 0), (60, 40 * KIB, 1 << 30), (30, 20 * KIB, 1 << 30), (60, 0, 1 << 30)];
        let cells = memories.into_iter().chain(small);
        let turn = |at: usize| (at as u64 + seed / 3).is_multiple_of(part);
        let asked = |at: usize| if cases.is_some() { at as u64 == seed / 6 % 8 } else { turn(at) };
        for (_, (share, host, capacity)) in cells.enumerate().filter(|(at, _)| asked(*at)) {
            let mut device = linked(Bytes(host));
            if capacity > 0 {
                let link = Link { out_bandwidth: 8e8, in_bandwidth: 9e8, ..device.link.unwrap() };
                device.disk = Some(Store { capacity: Bytes(capacity), link });
                device.link = device.link.filter(|_| host > 0);
            }
            let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed % 2).unwrap()];
            let task = Task::new(&graph, &order, in_place, true, &Context::new(&device));
            let (floor, peak) = (task.floor().0, task.reference());
            let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) * share / 100);
            let strategies = Named::each()
                .filter(|one| one.family.means.moves())
                .map(|one| (one.scheduler, one.family.means.recompute))
                .enumerate()
                // Those that search take most of the time; of the others each meets every fourth graph, if not all.
                .filter(|(at, (strategy, recomputes))| match strategy.info().name {
                    "best" if *recomputes => seed % 20 == 0,
                    "best" => seed % 5 < 2,
                    _ => cases.is_some() || (*at as u64 + seed).is_multiple_of(4),
                });
            // Codecs that lose something are allowed on every other graph.
            let lossy: &[Codec] = if seed % 2 == 1 { &LOSSY } else { &[] };
            for (_, (strategy, recomputes)) in strategies {
                let what =
                    format!("seed {seed}, {}, {share} %, host {host}, disk {capacity}", strategy.info().name);
                let planned = || {
                    planned_with(lossy, (strategy, recomputes), &graph, (&device, in_place), budget, &what)
                };
                match planned() {
                    Some((time, count)) => {
                        found += 1;
                        stores += count;
                        on_disk += usize::from(capacity > 0 && count > 0);
                        hidden += usize::from(count > 0 && time == task.base_time());
                        // The same input, the same plan; on one graph of seven.
                        if seed % 7 == 0 {
                            assert_eq!(planned(), Some((time, count)), "{what}");
                        }
                    }
                    None => tight += 1,
                }
            }
        }
    }
    println!(
        "{found} plans with {stores} stores, {hidden} of them for nothing, {on_disk} beside a disk; {tight} not found"
    );
    let enough = [(found, 300), (stores, 500), (hidden, 20), (on_disk, 100)];
    assert!(enough.iter().all(|&(count, all)| count as u64 > all / part) && tight > 0);
}

/// Codecs are used where the graph says that values are sparse, and nowhere else; and choosing what to encode is no slower than
/// encoding all.
#[test]
fn what_is_sparse_waits_encoded() {
    let device = linked(Bytes(1 << 30));
    let (mut found, mut encodes, mut faster, mut dense) = (0, 0, 0, 0);
    let part = one_of(3);
    for seed in (0..80).step_by(part) {
        let graph = graph(seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::Must, true, &Context::new(&device));
        let (floor, peak) = (task.floor().0, task.reference());
        for part in [80, 50, 20] {
            let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) * part / 100);
            let strategies: [&dyn Scheduler; 3] =
                [&compress::Zvc::MAPS, &compress::Zvc::ALL, &compress::Best];
            let [zvc, zcomp, best] = strategies.map(|strategy| {
                let what = format!("seed {seed}, {}, {part} %", strategy.info().name);
                planned((strategy, false), &graph, (&device, InPlace::Must), budget, &what)
            });
            if seed % 4 == 0 {
                assert_eq!((zvc, zcomp, best), (None, None, None), "seed {seed}: nothing is sparse");
                dense += 1;
                continue;
            }
            let Some((time, count)) = best else {
                assert_eq!((zvc, zcomp), (None, None), "seed {seed}, {part} %");
                continue;
            };
            found += 1;
            encodes += count;
            for (other, _) in [zvc, zcomp].into_iter().flatten() {
                assert!(time <= other, "seed {seed}, {part} %: {time} against {other}");
                faster += usize::from(time < other);
            }
        }
    }
    println!("{found} plans with {encodes} values encoded, {faster} faster than encoding all; {dense} dense");
    assert!(found > 50 / part && encodes > 50 / part && faster > 10 / part && dense > 30 / part);
}

/// Tells `look` how many ops the random graph of `seed` has, and how long its step is by a strategy, within a budget between the
/// floor and the peak.
fn on_random(seed: u64, look: impl FnOnce(usize, &dyn Fn(&dyn Scheduler) -> Option<Nanos>)) {
    let graph = graph(seed);
    let order: Vec<OpId> = graph.op_ids().collect();
    let device = linked(Bytes(1 << 30));
    let context = Context::new(&device);
    let task = Task::new(&graph, &order, InPlace::May, true, &context);
    let (floor, peak) = (task.floor().0, task.reference());
    let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) * (1 + seed % 4) / 5);
    look(task.nodes(), &|one| one.plan(&task, budget, &context).ok()?.time());
}

/// vDNN++ is vDNN without its wait, and AutoSwap weighs what its scores weigh alone.
#[test]
fn what_is_built_on_another_is_not_slower() {
    let pairs: [(&dyn Scheduler, &[&dyn Scheduler]); 2] = [
        (&Vdnn::PLUS_PLUS, &[&Vdnn::ALL, &Vdnn::CONV]),
        (&AutoSwap::BO, &[&AutoSwap::DOA, &AutoSwap::AOA, &AutoSwap::WDOA, &AutoSwap::SWDOA]),
    ];
    let (mut compared, mut faster, mut best, mut behind) = (0, 0, 0, 0);
    let part = one_of(3);
    for seed in (0..120).step_by(part) {
        on_random(seed, |_, time| {
            let ours = time(&offload::Best);
            for (better, others) in pairs {
                for other in others {
                    let Some(alone) = time(*other) else { continue };
                    let what = format!("seed {seed}: {} and {}", better.info().name, other.info().name);
                    let time = time(better).unwrap_or_else(|| panic!("{what}"));
                    assert!(time <= alone, "{what}: {time} against {alone}");
                    compared += 1;
                    faster += usize::from(time < alone);
                    best += usize::from(ours.is_some_and(|ours| ours <= time));
                    behind += usize::from(ours.is_none_or(|ours| ours > time));
                }
            }
        });
    }
    println!(
        "{compared} compared, {faster} faster; `best` ahead or level {best} times, behind {behind} times"
    );
    assert!(compared > 200 / part && faster > 20 / part && best > 20 * behind);
}

/// moDNN holds what it finds against the maps of vDNN, and its algorithms pay.
#[test]
fn modnn_is_not_slower_than_vdnn() {
    let (mut compared, mut faster, mut alone, mut chosen) = (0, 0, 0, 0);
    let part = one_of(3);
    for seed in (0..160).step_by(part) {
        let graph = if seed % 2 == 0 { graph_with_choices(seed) } else { graph(seed) };
        let device = linked(Bytes(1 << 30));
        let context = Context::new(&device);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, true, &context);
        let (floor, peak) = (task.floor().0, task.reference());
        for part in [70, 30] {
            let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) * part / 100);
            let what = format!("seed {seed}, {part} %");
            let ours = planned((&MoDnn, false), &graph, (&device, InPlace::May), budget, &what);
            let front = MoDnn.plan(&task, budget, &context).ok();
            let program = front.and_then(|front| front.points[0].program(&task));
            chosen += program
                .iter()
                .flat_map(|program| &program.steps)
                .filter(|step| matches!(step, Step::Compute(compute) if compute.algorithm > 0))
                .count();
            for vdnn in [&Vdnn::ALL, &Vdnn::CONV, &Vdnn::DYN, &Vdnn::PLUS_PLUS] {
                let theirs = planned((vdnn, false), &graph, (&device, InPlace::May), budget, &what);
                match (ours, theirs) {
                    (Some((ours, _)), Some((theirs, _))) => {
                        assert!(ours <= theirs, "{what}: {ours} against {theirs} by {}", vdnn.info().name);
                        compared += 1;
                        faster += usize::from(ours < theirs);
                    }
                    (Some(_), None) => alone += 1,
                    (None, theirs) => assert_eq!(theirs, None, "{what}: {}", vdnn.info().name),
                }
            }
        }
    }
    println!(
        "{compared} compared, {faster} faster, {alone} that vDNN has none for; {chosen} other algorithms"
    );
    assert!(compared > 200 / part && faster > 50 / part && alone > 20 / part && chosen > 100 / part);
}

/// Where ops have several algorithms, searches choose among them: never for a slower step than where they have but their own.
#[test]
fn searches_choose_algorithms() {
    let (mut found, mut faster, mut chosen) = (0, 0, 0);
    let part = one_of(3);
    for seed in (0..60).step_by(4 * part) {
        let graph = graph_with_choices(seed);
        let link = Link { out_bandwidth: 4e8, in_bandwidth: 6e8, ..linked(Bytes(0)).link.unwrap() };
        let device = Device { link: Some(link), ..linked(Bytes(1 << 30)) };
        let context = Context::new(&device);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, true, &context);
        let (floor, peak) = (task.floor().0, task.reference());
        let budget = Bytes(floor.0 + peak.0.saturating_sub(floor.0) / 2);
        for (strategy, recomputes) in [(&offload::Best as &dyn Scheduler, false), (&hybrid::Best, true)] {
            let what = format!("seed {seed}, {}", strategy.info().name);
            let Some((time, _)) =
                planned((strategy, recomputes), &graph, (&device, InPlace::May), budget, &what)
            else {
                continue;
            };
            let front = strategy.plan(&task, budget, &context).unwrap();
            let program = front.points[0].program(&task).unwrap();
            let other = |step: &&Step| matches!(step, Step::Compute(compute) if compute.algorithm > 0);
            chosen += program.steps.iter().filter(other).count();
            found += 1;
            faster += usize::from(time < task.base_time());
        }
    }
    println!(
        "{found} plans, {faster} faster than all ops by their own algorithms; {chosen} other algorithms"
    );
    assert!(found > 15 / part && faster * 2 > found && chosen > 3 * found);
}

#[test]
fn without_a_link_it_says_so() {
    let graph = graph(7);
    let device = device();
    let context = Context::new(&device);
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(&graph, &order, InPlace::May, true, &context);
    let missed = offload::Best.plan(&task, task.floor().0, &context).unwrap_err();
    assert!(missed.why.unwrap().contains("no link"));
}

/// Nothing that has a name is faster than `best` on graphs that are searched for the budget at hand. On smaller ones, which are
/// searched at a lattice of budgets so that more memory is never slower, a plan that was made for this very budget now and then is,
/// by little.
#[test]
fn nothing_named_is_faster_than_best() {
    let solvers = ["autotm-static", "autotm-sync", "autotm-async", "swapadvisor"];
    let (mut compared, mut slower, mut worst) = (0u64, 0u64, 1.0f64);
    let part = one_of(2) as u64;
    for seed in 0..cases(30 / part) {
        on_random(seed, |nodes, time| {
            let Some(ours) = time(&offload::Best) else { return };
            for other in offload::OFFLOADS {
                let Some(theirs) = time(*other) else { continue };
                let name = other.info().name;
                assert!(ours <= theirs || nodes <= 32 || solvers.contains(&name), "seed {seed}: {name}");
                compared += 1;
                slower += u64::from(ours > theirs);
                worst = worst.max(ours.0 as f64 / theirs.0 as f64);
            }
        });
    }
    println!("{compared} compared, {slower} faster than `best`, by {:.2} % at most", 100.0 * (worst - 1.0));
    assert!(compared > 150 / part && slower * 20 < compared && worst < 1.02);
}
