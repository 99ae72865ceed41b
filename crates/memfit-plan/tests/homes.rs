//! Parameters and state that are at home in other memory: right bytes, budgets kept, bounds that hold.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use memfit_ir::{
    Action, Bytes, Device, Form, Graph, InPlace, Limits, Link, Nanos, OpId, Plan, Program, Role, Schedule,
    Step, Store, Tier, ValueId,
};
use memfit_plan::Context;
use memfit_plan::families::Named;
use memfit_plan::liveness::Profile;
use memfit_plan::place::{Problem, by_name};
use memfit_plan::schedule::{Front, Scheduler, Task, hybrid, offload, recompute};
use memfit_sim::simulate;
use memfit_testkit::bytes::Truth;
use memfit_testkit::{Case, Rng, Verdict, device, mutant, one_of, trained, try_plan};
use memfit_verify::verify;

fn linked(host: u64, disk: u64, asynchronous: bool) -> Device {
    let rate = 4e9;
    let link = Link {
        out_bandwidth: rate,
        in_bandwidth: rate,
        duplex_cap: f64::INFINITY,
        latency: Nanos(100),
        asynchronous,
    };
    let slow = Link { out_bandwidth: rate / 4.0, in_bandwidth: rate / 4.0, ..link };
    let disk = (disk > 0).then_some(Store { capacity: Bytes(disk), link: slow });
    Device { link: (host > 0).then_some(link), host_memory: Bytes(host), disk, ..device() }
}

fn order(graph: &Graph) -> Vec<OpId> {
    graph.op_ids().collect()
}

/// A placed plan of `program` and the limits that it needs, tiers as `device` has them.
fn placed(graph: &Arc<Graph>, program: Program, device: &Device) -> Case {
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, device.align));
    let placement = by_name("dive").unwrap().place(&problem, &Context::new(device)).unwrap();
    let layout = Problem::layout(&placement.places, &item_of);
    let Limits { host, disk, .. } = device.limits();
    let limits = Limits { host, disk, replays_random: true, ..Limits::arena(placement.height, device.align) };
    Case { graph: Arc::clone(graph), limits, plan: Plan { graph: graph.digest(), program, layout } }
}

/// Judge, real bytes over two steps, clock: all points of `front`. How many storages are parked, mutants tried.
fn held_to_account(
    graph: &Arc<Graph>,
    (task, front): (&Task<'_>, &Front),
    (device, budget): (&Device, Bytes),
    rng: &mut Rng,
    what: &str,
) -> (usize, usize) {
    let truth = Truth::of(graph);
    let (mut parked, mut mutants) = (0, 0);
    assert!(!front.points.is_empty(), "{what}: no step");
    for point in &front.points {
        let program = point.program(task).unwrap();
        assert!(point.cost.peak <= budget, "{what}");
        assert_eq!(point.cost.peak, Profile::of(&program, device.align).peak().0, "{what}");
        let timeline = simulate(graph, &program, None, device);
        assert_eq!((point.cost.time, timeline.stuck), (timeline.time, 0), "{what}");
        parked += program.parked.len();
        let case = placed(graph, program, device);
        let (verdict, _) = try_plan(&truth, &case);
        assert_eq!(verdict, Verdict::AcceptedRight, "{what}\n{}", case.replay());
        let verified = verify(graph, &case.limits, case.plan.clone()).unwrap();
        for (tier, _) in Tier::ALL {
            assert_eq!(verified.tier_peak(tier), timeline.tier_peaks[tier.index()], "{what}");
        }
        for _ in 0..6 {
            let Some((_, mutant)) = mutant(&case, rng) else { continue };
            let (verdict, _) = try_plan(&truth, &mutant);
            assert_ne!(verdict, Verdict::AcceptedWrong, "{what}\n{}", mutant.replay());
            mutants += 1;
        }
    }
    (parked, mutants)
}

/// Every strategy that moves values, on steps that have parameters and state in all phases, above and below the floor.
#[test]
fn every_strategy_that_moves_keeps_to_budgets_and_has_the_right_bytes() {
    let (mut found, mut below, mut parked, mut mutants, mut missed) = (0, 0, 0, 0, 0);
    // A part of the graphs; `MEMFIT_ALL=1` takes all.
    let part = one_of(5);
    for seed in (0..32u64).step_by(part) {
        let layers = 2 + usize::try_from(seed % 5).unwrap();
        let graph = Arc::new(trained(layers, 64, seed));
        let memories =
            [(1 << 30, 0, true), (1 << 30, 0, false), (40 << 10, 1 << 30, true), (0, 1 << 30, true)];
        let (host, disk, asynchronous) = memories[usize::try_from(seed % 4).unwrap()];
        let device = linked(host, disk, asynchronous);
        let in_place = [InPlace::Must, InPlace::May][usize::try_from(seed % 2).unwrap()];
        let context = Context { seed, ..Context::new(&device) };
        let task = Task::new(&graph, &order(&graph), in_place, true, &context);
        let (floor, least, peak) = (task.floor().0, task.least(), task.reference());
        assert!(least <= floor, "seed {seed}");
        let between = |part: u64| Bytes(floor.0 + peak.0.saturating_sub(floor.0) * part / 100);
        let under = |part: u64| Bytes(floor.0 - (floor.0 - least.0) * part / 100);
        let rng = &mut Rng::new(seed);
        for budget in [between(50), between(5), under(30), under(70), under(100)] {
            let strategies = Named::each().filter(|one| one.family.means.offload).enumerate();
            let strategies = strategies.filter(|(at, one)| {
                let name = one.name();
                let home = ["offload:optimizer-state", "offload:zero-offload"].contains(&name.as_str());
                match one.scheduler.info().name {
                    "best" if one.family.means.recompute => seed % 9 == 0,
                    "best" => seed % 4 == 0,
                    _ => home || (*at as u64 + seed).is_multiple_of(6),
                }
            });
            for (_, one) in strategies {
                let what = format!("seed {seed}, {}, {budget} of floor {floor}", one.name());
                match one.scheduler.plan(&task, budget, &context) {
                    Ok(front) => {
                        let told = held_to_account(&graph, (&task, &front), (&device, budget), rng, &what);
                        assert!(told.0 > 0 || budget >= floor, "{what}: below the floor, all at home");
                        (found, parked, mutants) = (found + 1, parked + told.0, mutants + told.1);
                        below += usize::from(budget < floor);
                        // The same input, the same plan: on a part of the graphs, for it takes half of the time.
                        if seed % 9 == 0 {
                            let again = one.scheduler.plan(&task, budget, &context).unwrap();
                            assert_eq!(again.points, front.points, "{what}: other plans");
                        }
                    }
                    Err(why) => {
                        missed += 1;
                        assert_eq!(why.proved, budget < least, "{what}: {why:?}");
                    }
                }
            }
        }
    }
    println!(
        "{found} plans, {below} below the floor, {parked} storages parked, {mutants} mutants; {missed} missed"
    );
    let enough = [(found, 200), (below, 40), (parked, 300), (mutants, 1000)];
    assert!(enough.iter().all(|&(count, all)| count > all / part) && missed > 0);
}

/// Where nothing that lasts has to move, it does only if that is faster than what leaves it on the device.
#[test]
fn what_lasts_moves_only_where_that_is_needed_or_faster() {
    let (mut compared, mut stays) = (0, 0);
    for seed in 0..40u64 {
        let graph = trained(3, 64, seed);
        let device = linked(1 << 30, 0, true);
        let context = Context::new(&device);
        let task = Task::new(&graph, &order(&graph), InPlace::May, true, &context);
        let budget = Bytes(task.floor().0.0 + (task.reference().0 - task.floor().0.0) / 2);
        let Ok(front) = offload::Best.plan(&task, budget, &context) else { continue };
        let program = front.points[0].program(&task).unwrap();
        let others: [&dyn Scheduler; 3] = [&offload::G10, &offload::AutoSwap::BO, &offload::MoDnn];
        let others = others.iter().filter_map(|one| one.plan(&task, budget, &context).ok()?.time());
        if let Some(other) = others.min() {
            let time = front.points[0].cost.time;
            assert!(
                time < other || time == other && program.parked.is_empty(),
                "seed {seed}: {time}, {other}"
            );
            compared += 1;
            stays += u64::from(program.parked.is_empty());
        }
    }
    assert!(compared > 20 && stays > 5, "{compared}, {stays}");
}

/// A budget that only recomputation or moving can't do with is enough for both with state at home elsewhere.
#[test]
fn hybrids_park_where_nothing_else_fits() {
    let (mut below, mut again) = (0, 0);
    let part = one_of(3);
    for seed in (0..40u64).step_by(3 * part) {
        let graph = Arc::new(trained(9, 64, seed));
        // A slow link, so that another run is worth it.
        let link = linked(1 << 30, 0, true).link.unwrap();
        let link = Link { out_bandwidth: 2e8, in_bandwidth: 2e8, ..link };
        let device = Device { link: Some(link), ..linked(1 << 30, 0, true) };
        let context = Context::new(&device);
        let task = Task::new(&graph, &order(&graph), InPlace::May, true, &context);
        let (floor, least) = (task.floor().0, task.least());
        // So little that activations have to go as well.
        let budget = Bytes(least.0 + (floor.0 - least.0) / 8);
        if budget >= floor {
            continue;
        }
        assert!(recompute::Best.plan(&task, budget, &context).is_err(), "seed {seed}: below the floor");
        let Ok(front) = hybrid::Best.plan(&task, budget, &context) else { continue };
        let what = format!("seed {seed}");
        let rng = &mut Rng::new(seed);
        let (parked, _) = held_to_account(&graph, (&task, &front), (&device, budget), rng, &what);
        assert!(parked > 0, "{what}");
        below += 1;
        if let Some(time) = offload::Best.plan(&task, budget, &context).ok().and_then(|front| front.time()) {
            assert!(front.time().unwrap() <= time, "{what}: slower than moving alone");
            again += usize::from(front.time().unwrap() < time);
        }
    }
    println!("{below} plans below the floor, {again} faster than moving alone");
    assert!(below > 6 / part && again > 1 / part);
}

/// All ways to run a step of one layer, in which each storage that lasts is on the device or at home in host memory, and loaded
/// before each use or held between two of them: none needs fewer bytes than the bound says, and `best` finds a plan with what
/// the best of them needs.
#[test]
fn no_schedule_is_below_the_bound_and_what_fits_is_found() {
    let (mut tried, mut below) = (0, 0);
    for seed in 0..60u64 {
        let graph = trained(1, 4096, seed);
        let device = linked(1 << 30, 0, true);
        let context = Context::new(&device);
        let task = Task::new(&graph, &order(&graph), InPlace::Must, true, &context);
        let lasting = graph.lasting();
        let is_home = |&value: &ValueId| {
            let this = graph.value(value);
            // What is smaller is not worth a transfer to anybody.
            let large = this.size >= Bytes(4096);
            large && this.producer.is_none() && this.role.is_persistent() && lasting[value.index()]
        };
        let storages: Vec<ValueId> = graph.value_ids().filter(is_home).collect();
        let mut best = Bytes::MAX;
        for parked in 0..1u32 << storages.len() {
            for held in 0..1u32 << storages.len() {
                let chosen = |bits: u32, at: usize| bits >> at & 1 == 1;
                let homes: Vec<(ValueId, bool)> = (0..storages.len())
                    .filter(|&at| chosen(parked, at))
                    .map(|at| (storages[at], chosen(held, at)))
                    .collect();
                let program =
                    schedule(&graph, &order(&graph), &homes).program(&graph, InPlace::Must).unwrap();
                let peak = Profile::of(&program, device.align).peak().0;
                assert!(peak >= task.least(), "seed {seed}: {peak} with {homes:?} is below {}", task.least());
                best = best.min(peak);
                tried += 1;
            }
        }
        let found = offload::Best.plan(&task, best, &context);
        assert!(found.is_ok(), "seed {seed}: nothing found within {best}: {found:?}");
        below += usize::from(best < task.floor().0);
    }
    println!("{tried} schedules; the best is below the floor on {below} graphs");
    assert!(tried > 1000 && below > 5, "{tried} {below}");
}

/// Every op once; each of `homes` is loaded before a use, and stored after what mutates it; some are held from the first load on.
fn schedule(graph: &Graph, order: &[OpId], homes: &[(ValueId, bool)]) -> Schedule {
    let host = Form::Tier(Tier::Host);
    let mut now: Vec<(ValueId, bool, bool)> =
        homes.iter().map(|&(value, held)| (value, held, false)).collect();
    let mut actions = Vec::new();
    for (place, &op) in order.iter().enumerate() {
        let this = graph.op(op);
        for (value, _, here) in now.iter_mut().filter(|(value, ..)| this.reads.contains(value)) {
            if !std::mem::replace(here, true) {
                actions.push(Action::Load(*value, host));
            }
        }
        actions.push(Action::Run { op, algorithm: 0 });
        let later = |value: ValueId| order[place + 1..].iter().any(|&op| graph.op(op).reads.contains(&value));
        for (value, held, here) in &mut now {
            let used = this.reads.contains(value);
            let pair = this.reuses.iter().find(|pair| pair.must && pair.input == *value);
            if let Some(pair) = pair {
                *value = pair.output;
                actions.push(Action::Store(*value, host));
            }
            if used && !(*held && later(*value)) {
                *here = false;
            }
        }
    }
    Schedule { actions, parked: homes.iter().map(|&(value, _)| (value, Form::Tier(Tier::Host))).collect() }
}

/// What was only read is not stored again, and what was mutated is, once.
#[test]
fn only_what_was_mutated_is_stored() {
    let (mut stores, mut clean) = (0, 0);
    for seed in 0..40u64 {
        let graph = trained(4, 64, seed);
        let device = linked(1 << 30, 0, true);
        let context = Context::new(&device);
        let task = Task::new(&graph, &order(&graph), InPlace::May, true, &context);
        let Ok(front) = offload::OptimizerState.plan(&task, task.reference(), &context) else { continue };
        let program = front.points[0].program(&task).unwrap();
        assert!(!program.parked.is_empty(), "seed {seed}");
        for &copy in &program.parked {
            let value = program.copies[copy.index()].content.value().unwrap();
            assert_eq!(graph.value(value).role, Role::State, "seed {seed}");
            clean += usize::from(graph.value(value).mutator.is_none());
        }
        let offloads = program.steps.iter().filter_map(|step| match step {
            Step::Offload { from, .. } => program.buffers[from.index()].content.value(),
            _ => None,
        });
        let mut versions: Vec<ValueId> =
            offloads.filter(|&value| graph.value(value).role == Role::State).collect();
        stores += versions.len();
        let all = versions.len();
        versions.sort_unstable();
        versions.dedup();
        assert_eq!((versions.len(), versions.len()), (all, program.parked.len()), "seed {seed}: once each");
    }
    assert!(stores > 30 && clean == 0, "{stores} {clean}");
}

/// Small tasks are planned on a ladder of budgets: what is found on a rung is there for all above it.
#[test]
fn optimizer_state_of_small_tasks_leaves_no_slower_step_in_more_memory() {
    let (mut pairs, mut faster) = (0, 0);
    for seed in 0..80 {
        let graph = trained(2, 64, seed);
        let device = linked(1 << 30, 0, true);
        let context = Context::new(&device);
        let task = Task::new(&graph, &order(&graph), InPlace::May, true, &context);
        if task.nodes() > 32 {
            continue;
        }
        let (floor, above) = (task.floor().0.0, task.reference().0 - task.floor().0.0);
        let mut best: Option<Nanos> = None;
        for part in [0, 1, 2, 4, 8, 12, 16, 20, 24, 28] {
            let budget = Bytes(floor + above / 32 * part);
            let time =
                offload::OptimizerState.plan(&task, budget, &context).ok().and_then(|front| front.time());
            if let Some(best) = best {
                pairs += 1;
                faster += usize::from(time < Some(best));
                assert!(time.is_some_and(|time| time <= best), "seed {seed}, {budget}: {time:?}, {best}");
            }
            best = time.or(best);
        }
    }
    assert!(pairs > 20 && faster > 0, "{pairs} {faster}");
}
