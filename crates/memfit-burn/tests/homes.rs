//! Plan files that have state at home encoded, from one step to the next: followed, with the bits of plain training where the codec
//! loses nothing.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn_flex::{Flex, FlexDevice};
use memfit::engine::{Settings, StepPlan};
use memfit::ir::{Action, Codec, Form, Graph, InPlace, Schedule, ValueId, text};
use memfit::profile::{self, Saved};
use memfit::{Bytes, Failure, input};
use memfit_burn::zoo::{Model, Trained, Training, Where, plain};
use memfit_burn::{
    Budget, Memfit, Mode, Options, Report, attempt, enable_with, load_plan, report, step, take_recorded,
};

/// There is one device: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICE: Mutex<()> = Mutex::new(());
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn training() -> Training {
    Training { batch: 3, steps: 6, seed: 3, gradients: true, ..Training::new(Model::Gpt) }
}

/// The training by `options`, from the beginning by the plan in `saved`.
fn run(options: Options, saved: Option<&Saved>) -> Result<(Trained, Report), Failure> {
    enable_with(&FlexDevice, options).unwrap();
    saved.map_or(Ok(()), |saved| load_plan(&FlexDevice, saved))?;
    let trained = attempt(&FlexDevice, || {
        training().run::<Autodiff<Memfit<Flex>>>(&FlexDevice, &mut |_| step(&FlexDevice).unwrap())
    });
    Ok((trained.unwrap(), report(&FlexDevice)))
}

/// What a step writes over before anything else reads it, and all versions of that: moments.
fn moments(graph: &Graph) -> (Vec<ValueId>, Vec<bool>) {
    let over = |value: &ValueId| {
        let this = graph.value(*value);
        let first = this.readers.first().map(|&op| graph.op(op));
        let writes = first.is_some_and(|op| op.reuses.iter().any(|pair| pair.must && pair.input == *value));
        this.role.is_persistent() && this.producer.is_none() && this.size.0 >= 4096 && writes
    };
    let sources: Vec<ValueId> = graph.value_ids().filter(over).collect();
    let mut of: Vec<bool> = graph.value_ids().map(|value| sources.contains(&value)).collect();
    for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
        of[pair.output.index()] |= of[pair.input.index()];
    }
    (sources, of)
}

/// The step of the training, with moments of numbers.
fn recorded() -> Graph {
    run(Options { record: true, ..Options::default() }, None).unwrap();
    let graph = take_recorded(&FlexDevice).unwrap().graph;
    let of = moments(&graph).1;
    let is_numbers = |id: &str| {
        let number = id.strip_prefix('v').and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| of[number])
    };
    let printed = text::print(None, Some(&graph), None);
    let line = |line: &str| match line.trim_start().split_once(" = ") {
        Some((id, _)) if is_numbers(id) => format!("{} f32[]\n", line.trim_end_matches(" other[]")),
        _ => format!("{line}\n"),
    };
    text::parse(printed.lines().map(line).collect::<String>()).unwrap().graph.unwrap()
}

/// Files of a plan in the order of `graph`, with moments at home by `codec`, and how much of it there is.
fn planned(graph: &Graph, codec: Codec) -> (Saved, usize) {
    let form = Form::Encoded(codec);
    let (sources, of) = moments(graph);
    let mut actions = Vec::new();
    for op in graph.op_ids() {
        let this = graph.op(op);
        let used = this.reads.iter().filter(|value| of[value.index()]);
        actions.extend(used.map(|&value| Action::Load(value, form)));
        actions.push(Action::Run { op, algorithm: 0 });
        let made = this.reuses.iter().filter(|pair| pair.must && of[pair.output.index()]);
        actions.extend(made.map(|pair| Action::Store(pair.output, form)));
    }
    let parked = sources.iter().map(|&value| (value, form)).collect();
    let program = Schedule { actions, parked }.program(graph, InPlace::Must).unwrap();
    let allowed = Settings { codecs: vec![(codec, 1e9, 1e9)], ..Settings::new(Bytes(1 << 40)) };
    let plan = StepPlan::judge_unplaced(graph.clone(), &allowed, program).unwrap();
    let device = input::device("CPU").unwrap();
    (profile::save(&plan, (plan.verified().peak(), Bytes(512)), &device, ("by hand", 0)), sources.len())
}

#[test]
fn state_at_home_encoded_has_the_bits_of_plain_training() {
    let _alone = alone();
    let expected = plain(&training(), Where::Cpu, &mut |_| {});
    let graph = recorded();
    let options = Options { budget: Budget::of(1 << 40), mode: Mode::Planned, ..Options::default() };
    let guided = |report: &Report, homes: usize| {
        let (steps, engine) = (report.steps, report.engine);
        assert!(steps.guided >= 4 && steps.diverged == 0 && engine.lost == 0, "{report:?}");
        assert!(engine.encoded > Bytes::ZERO && homes >= 10, "{homes}: {report:?}");
    };
    let (saved, homes) = planned(&graph, Codec::Zvc);
    let (trained, report) = run(Options { lossless: &["zvc"], ..options }, Some(&saved)).unwrap();
    assert_eq!(trained, expected);
    guided(&report, homes);
    // In eight bits it is another training, the same each time, for those who name the codec.
    let (saved, homes) = planned(&graph, Codec::State8);
    let named = Options { lossy: &["state8"], ..options };
    let (trained, report) = run(named, Some(&saved)).unwrap();
    guided(&report, homes);
    assert_ne!(trained, expected);
    assert_eq!(run(named, Some(&saved)).unwrap().0, trained);
    let refused = run(options, Some(&saved)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("state8"), "{refused}");
}
