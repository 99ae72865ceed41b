//! Plans whose storages are at home encoded are followed: the numbers of plain training, in fewer bytes from one step to the next.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::Numbers;
use common::training::{Training, Ways};
use memfit_engine::offline::Portfolio;
use memfit_engine::stepping::{Options, Stepper};
use memfit_engine::{Engine, Fault, Settings, StepPlan};
use memfit_ir::{
    Action, Bytes, Codec, Content, Form, Graph, InPlace, OpId, Role, Schedule, Step, Tier, ValueId, text,
};

const ALL: Bytes = Bytes(1 << 30);
const ALIKE: Ways = Ways { strays: false, alike: true, leaves: None };

/// Of a step that nobody has planned: the graph, with this said of each state.
fn step(seed: u64, said: &str) -> Graph {
    let mut engine = Engine::new(Numbers::default(), settings(ALL)).unwrap();
    let mut training = Training::new(&mut engine, seed).unwrap();
    engine.begin_step().unwrap();
    training.step(&mut engine, ALIKE).unwrap();
    let recorded = engine.end_step().unwrap();
    let of = states(&recorded.graph);
    let said_of = |id: &str| {
        let number = id.strip_prefix('v').and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| of[number])
    };
    let printed = text::print(None, Some(&recorded.graph), None);
    let line = |line: &str| match line.trim_start().split_once(" = ") {
        Some((id, _)) if said_of(id) => format!("{} {said}\n", line.trim_end_matches(" other[]")),
        _ => format!("{line}\n"),
    };
    text::parse(printed.lines().map(line).collect::<String>()).unwrap().graph.unwrap()
}

fn settings(budget: Bytes) -> Settings {
    Settings { align: Bytes(1), ..Settings::new(budget) }
}

/// Which values of `graph` are state, or a version of it.
fn states(graph: &Graph) -> Vec<bool> {
    let mut of: Vec<bool> = graph.value_ids().map(|value| graph.value(value).role == Role::State).collect();
    for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
        of[pair.output.index()] |= of[pair.input.index()];
    }
    of
}

/// `graph` in its order, its state at home by `codec`: plain for the ops that use it alone.
fn at_home(graph: &Graph, codec: Codec) -> StepPlan {
    let form = Form::Encoded(codec);
    let is_state = |value: &ValueId| graph.value(*value).role == Role::State;
    let parked: Vec<(ValueId, Form)> =
        graph.value_ids().filter(is_state).map(|value| (value, form)).collect();
    let of = states(graph);
    let mut actions = Vec::new();
    for op in graph.op_ids() {
        let this = graph.op(op);
        let used = this.reads.iter().filter(|value| of[value.index()]);
        actions.extend(used.map(|&value| Action::Load(value, form)));
        actions.push(Action::Run { op, algorithm: 0 });
        let made = this.reuses.iter().filter(|pair| pair.must && of[pair.output.index()]);
        actions.extend(made.map(|pair| Action::Store(pair.output, form)));
    }
    // The program holds what layers make to the end.
    let held = graph.op_ids().filter(|&op| graph.op(op).kind == "layer");
    actions.extend(held.map(|op| Action::Release(graph.op(op).writes[0], None)));
    let schedule = Schedule { actions, parked };
    let program = schedule.program(graph, InPlace::Must).unwrap();
    let allowed = Settings { codecs: vec![(codec, 1e9, 1e9)], ..settings(ALL) };
    StepPlan::judge_unplaced(graph.clone(), &allowed, program)
        .unwrap_or_else(|refusal| panic!("{refusal}\n{}", refusal.replay))
}

/// What happened in some steps.
struct Trained {
    numbers: Vec<Vec<u64>>,
    /// The most that was in use in each.
    peaks: Vec<u64>,
    guided: Vec<bool>,
    parked: Vec<bool>,
    stores: usize,
}

fn train(
    seed: u64,
    plan: Option<StepPlan>,
    host: Numbers,
    reads: impl Fn(usize) -> bool,
    trusting: bool,
) -> Result<Trained, Fault> {
    let mut engine = Engine::new(host, settings(ALL))?;
    let mut training = Training::new(&mut engine, seed)?;
    let options = Options { settled: u32::MAX, trusting, ..Options::default() };
    let mut stepper = Stepper::new(options, Box::new(Portfolio::default()));
    plan.into_iter().for_each(|plan| stepper.add(plan));
    let (numbers, peaks, guided, parked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut all = Trained { numbers, peaks, guided, parked, stores: 0 };
    for at in 0..6 {
        stepper.begin(&mut engine)?;
        engine.reset_peak();
        training.step(&mut engine, ALIKE)?;
        let stepped = stepper.end(&mut engine)?;
        all.guided.push(stepped.guided);
        all.peaks.push(engine.stats().peak.0);
        all.parked.push(engine.has_parked());
        if reads(at) {
            all.numbers.push(training.numbers(&mut engine)?);
        }
    }
    all.stores = engine.host.moved[0];
    // Whoever asks gets all of it.
    for tensor in engine.held() {
        engine.restore(tensor)?;
    }
    assert!(!engine.has_parked());
    all.numbers.push(training.numbers(&mut engine)?);
    Ok(all)
}

#[test]
fn state_that_is_at_home_encoded_has_the_numbers_of_plain_training() {
    for seed in 0..200 {
        let graph = step(seed, "f32[] density=0.25");
        for (codec, trusting) in [(Codec::Zvc, false), (Codec::State8, true), (Codec::Csr, true)] {
            let plan = at_home(&graph, codec);
            let homes = plan.program().resident.iter();
            let homes = homes
                .filter(|home| matches!(plan.program().buffers[home.index()].content, Content::Encoded(..)));
            let states = homes.count();
            assert!(states >= 3);
            for odd in [true, false] {
                let reads = |at: usize| odd && at % 2 == 1;
                let what = format!("seed {seed}, {}, reads {odd}", codec.name());
                let plain = train(seed, None, Numbers::default(), reads, trusting).unwrap();
                let ours = train(seed, Some(plan.clone()), Numbers::default(), reads, trusting).unwrap();
                assert_eq!(ours.numbers, plain.numbers, "{what}");
                assert_eq!((ours.guided, ours.parked), (vec![true; 6], vec![true; 6]), "{what}");
                // Each state in each step once; those that were read are at home in their copies still.
                assert_eq!(ours.stores, 6 * states, "{what}");
                // The first step begins with plain state.
                let (peak, most) = (plain.peaks[3], ours.peaks[1..].iter().max().unwrap());
                assert!(*most < peak, "{what}: {most} of {peak}");
            }
        }
    }
}

/// A home that can't be read is an error, and nothing is made up. Where somebody else may write to what the program holds, all of it
/// stays plain.
#[test]
fn homes_that_are_lost_are_told() {
    for seed in 0..200 {
        let plan = at_home(&step(seed, "f32[] density=0.25"), Codec::Zvc);
        for every in [2, 5, 11] {
            let host = Numbers { loses: Some(every), ..Numbers::default() };
            match train(seed, Some(plan.clone()), host, |_| true, false) {
                Err(Fault::Gone { why, .. }) => assert!(why.0.starts_with("the disk"), "{why}"),
                Err(fault) => panic!("seed {seed}, every {every}: {fault}"),
                Ok(_) => panic!("seed {seed}, every {every}: a lost copy is not missed"),
            }
        }
        let plain = train(seed, None, Numbers::default(), |_| true, false).unwrap();
        let host = Numbers { shared: true, ..Numbers::default() };
        let ours = train(seed, Some(plan), host, |_| true, false).unwrap();
        assert_eq!((ours.numbers, ours.stores), (plain.numbers, 0), "seed {seed}");
    }
}

/// A codec that keeps signs alone is no home of what somebody may read between two steps, and what a step leaves in another form
/// than it began in is refused.
#[test]
fn signs_are_no_home() {
    let graph = step(1, "f32[]");
    let state = graph.value_ids().find(|&value| graph.value(value).role == Role::State).unwrap();
    let plan = at_home(&graph, Codec::Zvc);
    let mut program = plan.program().clone();
    for buffer in &mut program.buffers {
        if let Content::Encoded(value, _) = buffer.content {
            buffer.content = Content::Encoded(value, Codec::Binarize);
        }
    }
    let refused = StepPlan::judge_unplaced(graph.clone(), &settings(ALL), program).unwrap_err();
    assert!(refused.to_string().contains("R"), "{refused}");
    let mut program = plan.program().clone();
    program.steps.retain(|step| !matches!(step, Step::Encode { .. }));
    assert!(StepPlan::judge_unplaced(graph.clone(), &settings(ALL), program).is_err());
    let parked = vec![(state, Form::EncodedOn(Tier::Host, Codec::Zvc))];
    let actions = graph.op_ids().map(|op: OpId| Action::Run { op, algorithm: 0 }).collect();
    assert!(Schedule { actions, parked }.program(&graph, InPlace::Must).is_err());
}
