//! Random schedules with stores, loads, encodings and both: lowered, judged, run on real bytes; and their mutants.

use std::sync::Arc;

use memfit_ir::{
    Action, Bytes, Codec, Form, GraphBuilder, InPlace, Limits, OpSpec, Plan, Schedule, Step, Tier,
    Unscheduled, ValueId, ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::place::{PLACERS, Problem};
use memfit_testkit::bytes::Truth;
use memfit_testkit::{Case, Rng, Verdict, device, graph, mutant, peak_of_copies, schedule, try_plan};
use memfit_verify::verify;

fn placed(graph: &Arc<memfit_ir::Graph>, schedule: &Schedule, seed: u64, rng: &mut Rng, what: &str) -> Case {
    let device = device();
    let context = Context { seed, ..Context::new(&device) };
    let in_place = [InPlace::Must, InPlace::SoleReader, InPlace::May][rng.below(3)];
    let program = schedule.program(graph, in_place).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, device.align));
    let placer = PLACERS[rng.below(PLACERS.len())];
    let placement = placer.place(&problem, &context).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let layout = Problem::layout(&placement.places, &item_of);
    let plan = Plan { graph: graph.digest(), program, layout };
    let mut limits = Limits::arena(placement.height, device.align);
    (limits.host, limits.disk) = (peak_of_copies(&plan, Tier::Host), peak_of_copies(&plan, Tier::Disk));
    limits.replays_random = true;
    Case { graph: Arc::clone(graph), limits, plan }
}

#[test]
fn random_schedules_are_accepted_and_right_and_their_mutants_are_not_wrong() {
    let mut seen = [0usize; 5];
    let (mut mutants, mut homes) = (0, 0);
    for seed in 0..1500 {
        let graph = Arc::new(graph(seed));
        let rng = &mut Rng::new(!seed);
        let schedule = schedule(&graph, true, rng);
        let case = placed(&graph, &schedule, seed, rng, &format!("seed {seed}"));
        let truth = Truth::of(&graph);
        let (verdict, _) = try_plan(&truth, &case);
        assert_eq!(verdict, Verdict::AcceptedRight, "seed {seed}\n{schedule:?}\n{}", case.replay());
        let verified = verify(&graph, &case.limits, case.plan.clone()).expect("accepted above");
        let timeline = memfit_sim::simulate(&graph, &case.plan.program, Some(&case.plan.layout), &device());
        assert_eq!(timeline.peak(), verified.peak(), "seed {seed}");
        for (tier, _) in Tier::ALL {
            assert_eq!(timeline.tier_peaks[tier.index()], verified.tier_peak(tier), "seed {seed}");
        }
        assert_eq!(timeline.stuck, 0, "seed {seed}");
        homes += schedule.parked.len();
        for step in &case.plan.program.steps {
            match step {
                Step::Offload { .. } => seen[0] += 1,
                Step::Fetch { .. } => seen[1] += 1,
                Step::Encode { .. } => seen[2] += 1,
                Step::Decode { .. } => seen[3] += 1,
                Step::Discard(_) => seen[4] += 1,
                _ => {}
            }
        }
        for _ in 0..4 {
            let Some((_, mutant)) = mutant(&case, rng) else { continue };
            let (verdict, _) = try_plan(&truth, &mutant);
            assert_ne!(verdict, Verdict::AcceptedWrong, "seed {seed}\n{}", mutant.replay());
            mutants += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 500), "{seen:?}");
    assert!(mutants > 3000 && homes > 300, "{mutants} {homes}");
}

/// A parameter that a forward op reads and an update mutates: `v0` becomes `v2`.
fn update() -> memfit_ir::Graph {
    let text = r#"graph "update"
  v0 = parameter 64 "w"
  v1 = gradient 64 "g"
  op0 = forward f(v0) -> v1 "f"
  v2 = parameter 64 "w'"
  op1 = update sgd(v0, v1) -> v2 "sgd" must=v0>v2
"#;
    memfit_ir::text::parse(text).expect("a text").graph.expect("a graph")
}

#[test]
fn a_storage_that_begins_elsewhere_ends_there() {
    let graph = update();
    let run = |op: u32| Action::Run { op: memfit_ir::OpId(op), algorithm: 0 };
    let (before, after, host) = (ValueId(0), ValueId(2), Form::Tier(Tier::Host));
    let schedule = |actions: Vec<Action>, parked: Vec<(ValueId, Form)>| Schedule { actions, parked };
    let parked = vec![(before, host)];
    let (load, store) = (Action::Load(before, host), Action::Store(after, host));
    let good = schedule(vec![load, run(0), run(1), store], parked.clone());
    let program = good.program(&graph, InPlace::Must).expect("a schedule");
    // Fetched, used, mutated in place, stored; the copy that it began with ends when it has been fetched.
    let kinds: Vec<&str> = program
        .steps
        .iter()
        .map(|step| match step {
            Step::Compute(_) => "run",
            Step::Free(_) => "free",
            Step::Offload { .. } => "out",
            Step::Fetch { .. } => "in",
            Step::Discard(_) => "discard",
            Step::Await(_) => "await",
            Step::Encode { .. } | Step::Decode { .. } => "codec",
        })
        .collect();
    assert_eq!(kinds.join(" "), "in await discard run run free out await free");
    assert_eq!((program.parked.len(), program.resident.len()), (1, 0));
    let fault = |actions, parked| schedule(actions, parked).program(&graph, InPlace::Must).unwrap_err();
    // Without the store the tier has what the storage held before: stale.
    let stale = Unscheduled::NotBack { value: after, form: host };
    assert_eq!(fault(vec![load, run(0), run(1)], parked.clone()), stale);
    let elsewhere = Action::Store(after, Form::Tier(Tier::Disk));
    assert_eq!(fault(vec![load, run(0), run(1), elsewhere], parked.clone()), stale);
    let missing = Unscheduled::Missing { action: 0, value: before, form: None };
    assert_eq!(fault(vec![run(0), run(1), store], parked.clone()), missing);
    for wrong in [vec![(after, host)], vec![(ValueId(9), host)], [parked.clone(), parked].concat()] {
        let value = wrong[0].0;
        assert_eq!(fault(vec![load, run(0), run(1), store], wrong), Unscheduled::NotParked { value });
    }
}

#[test]
fn an_encoded_home_is_taken_over_by_the_next_version() {
    let graph = update();
    let run = |op: u32| Action::Run { op: memfit_ir::OpId(op), algorithm: 0 };
    let (before, after, form) = (ValueId(0), ValueId(2), Form::Encoded(Codec::State8));
    let (load, store) = (Action::Load(before, form), Action::Store(after, form));
    let parked = vec![(before, form)];
    let schedule = Schedule { actions: vec![load, run(0), run(1), store], parked: parked.clone() };
    let program = schedule.program(&graph, InPlace::Must).expect("a schedule");
    let encodes = |step: &&Step| matches!(step, Step::Encode { .. });
    let Some(&Step::Encode { to, .. }) = program.steps.iter().find(encodes) else { panic!("no encoding") };
    assert_eq!(program.resident.len(), 1);
    assert_eq!(program.buffers[to.index()].over, Some(program.resident[0]));
    // It is never given back: what is there at the end are the 20 bytes that were there at the start.
    let frees =
        |step: &&Step| matches!(step, Step::Free(buffer) if *buffer == to || *buffer == program.resident[0]);
    assert_eq!(program.steps.iter().find(frees), None);
    let stale = Schedule { actions: vec![load, run(0), run(1)], parked };
    let fault = Unscheduled::NotBack { value: after, form };
    assert_eq!(stale.program(&graph, InPlace::Must).unwrap_err(), fault);
    let nowhere = Form::EncodedOn(Tier::Host, Codec::State8);
    let parked = Schedule { actions: vec![], parked: vec![(before, nowhere)] };
    assert_eq!(parked.program(&graph, InPlace::Must).unwrap_err(), Unscheduled::NotParked { value: before });
}

/// Three ops in a row, of which the last reads what the first and the second make.
fn small() -> Arc<memfit_ir::Graph> {
    let mut b = GraphBuilder::new("small");
    let value = || ValueSpec { size: Bytes(64), ..ValueSpec::default() };
    let [x, y, z] = [0, 1, 2].map(|_| b.value(value()).expect("a value"));
    for (reads, write) in [(vec![], x), (vec![x], y), (vec![x, y], z)] {
        b.op(OpSpec { reads, writes: vec![write], ..OpSpec::default() }).expect("an op");
    }
    Arc::new(b.finish().expect("a graph"))
}

#[test]
fn waits_and_frees_stand_where_they_must() {
    let graph = small();
    let run = |op: u32| Action::Run { op: memfit_ir::OpId(op), algorithm: 0 };
    let (x, host) = (ValueId(0), Form::Tier(Tier::Host));
    let steps = |actions: Vec<Action>| {
        let program =
            Schedule { actions, ..Schedule::default() }.program(&graph, InPlace::Must).expect("a schedule");
        let name = |step: &Step| match step {
            Step::Compute(compute) => format!("run{}", compute.op.0),
            Step::Free(buffer) => format!("free{}", buffer.0),
            Step::Offload { .. } => "out".to_owned(),
            Step::Fetch { .. } => "in".to_owned(),
            Step::Discard(_) => "discard".to_owned(),
            Step::Await(step) => format!("await{}", step.0),
            Step::Encode { .. } => "encode".to_owned(),
            Step::Decode { .. } => "decode".to_owned(),
        };
        program.steps.iter().map(name).collect::<Vec<String>>().join(" ")
    };
    // The store is waited for where x is freed: at once, or as late as the release says.
    let (store, load) = (Action::Store(x, host), Action::Load(x, host));
    assert_eq!(
        steps(vec![run(0), run(1), store, load, run(2)]),
        "run0 run1 out await2 free0 in await5 discard run2 free2 free1 free3"
    );
    assert_eq!(
        steps(vec![run(0), store, run(1), Action::Release(x, None), load, run(2)]),
        "run0 out run1 await1 free0 in await5 discard run2 free2 free1 free3"
    );
    // What comes back encoded is decoded right before its first use.
    let both = Form::EncodedOn(Tier::Host, Codec::Zvc);
    assert_eq!(
        steps(vec![run(0), Action::Store(x, both), run(1), Action::Load(x, both), run(2)]),
        "run0 encode out await2 free1 run1 free0 in await7 discard decode free3 run2 free4 free2 free5"
    );
}

#[test]
fn what_can_not_be_done_is_refused_by_name() {
    let graph = small();
    let run = |op: u32| Action::Run { op: memfit_ir::OpId(op), algorithm: 0 };
    let (x, form) = (ValueId(0), Form::Encoded(Codec::Zvc));
    let fault = |actions: Vec<Action>| {
        Schedule { actions, ..Schedule::default() }.program(&graph, InPlace::Must).unwrap_err()
    };
    assert_eq!(fault(vec![run(1)]), Unscheduled::Missing { action: 0, value: x, form: None });
    assert_eq!(
        fault(vec![run(0), Action::Load(x, form)]),
        Unscheduled::Missing { action: 1, value: x, form: Some(form) }
    );
    assert_eq!(fault(vec![run(9)]), Unscheduled::Unknown { action: 0 });
    assert_eq!(fault(vec![Action::Release(ValueId(7), None)]), Unscheduled::Unknown { action: 0 });
    assert_eq!(
        fault(vec![Action::Run { op: memfit_ir::OpId(0), algorithm: 1 }]),
        Unscheduled::Unknown { action: 0 }
    );
    let mut b = GraphBuilder::new("result");
    let value = b.value(ValueSpec { size: Bytes(8), ..ValueSpec::default() }).expect("a value");
    b.op(OpSpec { writes: vec![value], ..OpSpec::default() }).expect("an op");
    b.result(value).expect("a result");
    let graph = b.finish().expect("a graph");
    assert_eq!(
        Schedule::default().program(&graph, InPlace::Must).unwrap_err(),
        Unscheduled::NoResult { value }
    );
}
