//! Every network of the zoo learns the same within a budget, step by step and bit by bit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;

use memfit::{Bytes, Floor, PORTFOLIO, StepPlanner};
use memfit_burn::zoo::{Model, Training, Where, plain, within};
use memfit_burn::{Budget, Disk, Mode, Options};

/// What a training takes without a limit: the floor of its second step, and its peak.
fn profile(training: &Training) -> (u64, u64) {
    let (floor, _, peak) = floors(training);
    (floor, peak)
}

/// The same with the floor where all that lasts may be elsewhere, in the middle.
fn floors(training: &Training) -> (u64, u64, u64) {
    let training = Training { steps: 2, gradients: false, ..*training };
    let options = Options { record: true, ..Options::default() };
    let (_, report, recorded) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
    let (graph, peak) = (recorded.unwrap().graph, report.engine.peak);
    let floor = |elsewhere: Bytes| Floor::below(&graph, Bytes(1), elsewhere).bytes.0;
    (floor(Bytes::ZERO), floor(peak), peak.0)
}

fn small(model: Model) -> Training {
    // Where the batch is small, gradients are most of what these networks have above their floor, or almost half, and those can't go.
    let batch = if matches!(model, Model::Vgg16 | Model::Vae | Model::Gru) { 16 } else { 3 };
    Training { batch, steps: 3, seed: 5, gradients: true, ..Training::new(model) }
}

/// Whether slow samples are run whole.
fn all() -> bool {
    std::env::var_os("MEMFIT_ALL").is_some()
}

/// Whether a plan's time is worth it here: others follow plans in the tests below.
fn is_planned(model: Model) -> bool {
    matches!(model, Model::Vgg16 | Model::Lstm) || all()
}

fn learns_the_same(model: Model) {
    // Those after the third follow the plan.
    let training = Training { steps: if is_planned(model) { 5 } else { 3 }, ..small(model) };
    let expected = plain(&training, Where::Cpu, &mut |_| {});
    assert_eq!(expected.losses.len(), training.steps);
    let (floor, peak) = profile(&training);
    let planned = is_planned(model).then_some((60, Mode::Planned));
    let ample = all().then_some((100, Mode::Online));
    let first = Training { steps: 1, ..training };
    for (percent, mode) in ample.into_iter().chain([(70, Mode::Online)]).chain(planned) {
        let budget = Budget::of(floor + (peak - floor) * percent / 100);
        let options = Options { budget, mode, ..Options::default() };
        let (trained, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
        assert_eq!(trained, expected, "{} at floor + {percent} %", model.name());
        assert!(report.engine.peak <= budget.bytes());
        // The past of a step goes with it, also where the first step leaves paths of the network out. In one step without a limit tables
        // would be smaller: where there is room its past goes before its end.
        if mode == Mode::Online {
            let (_, alone, _) = within(&first, Where::Cpu, options, &mut |_| {}).unwrap();
            let (one, tables) = (alone.tables, report.tables);
            assert!(2 * tables <= 3 * one, "{}: {tables} after {one}", model.name());
        }
        assert!(percent == 100 || report.engine.recomputes > 0);
        // Each step of SPOS is another.
        let follows = mode == Mode::Planned && model != Model::Spos;
        assert!(!follows || report.steps.guided > 0, "{}: {:?}", model.name(), report.steps);
        assert_eq!((report.tensors, report.engine.used.0), (0, 0), "all was given up");
        assert_eq!((report.host.unexpected, report.host.copies), (0, 0));
    }
}

/// There is one device: one test at a time.
static DEVICE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn networks_learn_the_same() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (model, _, _) in Model::ALL {
        // Others learn the same in the tests below, and some have the ops of a smaller one.
        let here = matches!(model, Model::Vgg16 | Model::Spos | Model::Vae);
        if !here && !all() {
            continue;
        }
        learns_the_same(model);
    }
}

#[test]
fn a_network_that_stays_the_same_follows_its_plan() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let training = Training { steps: 5, batch: 8, gradients: false, ..small(Model::UNet) };
    let (floor, peak) = profile(&training);
    let budget = Budget::of(floor + (peak - floor) * 60 / 100);
    let options = Options { budget, mode: Mode::Planned, ..Options::default() };
    let (_, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
    // The first two steps make the optimizer's state what it stays; the third is recorded; two follow.
    assert_eq!((report.steps.planned, report.steps.guided, report.steps.diverged), (1, 2, 0));
}

#[test]
fn what_is_moved_to_host_memory_comes_back_with_the_same_bits() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut moved = Bytes::ZERO;
    // The LSTM's tensors are too small to be worth a transfer, and each step of SPOS is another. A plan of the last two takes long.
    let models = [Model::UNet, Model::Gpt, Model::ResNet18, Model::ShuffleNet];
    let ours = ["offload:best", "compress:best", "hybrid:best"];
    let named = StepPlanner::strategies().into_iter().filter(|name| name.contains(':') && *name != PORTFOLIO);
    let published = named.filter(|name| !ours.contains(name));
    // `MEMFIT_ALL=1`: each model has ours, and its share of the published ones. Otherwise the first two have a fifth of them and ours,
    // in turn.
    let all: Vec<(&str, Model)> = if all() {
        let shared = published.zip(models.into_iter().cycle());
        ours.into_iter().flat_map(|name| models.map(|model| (name, model))).chain(shared).collect()
    } else {
        ours.into_iter().chain(published.step_by(5)).zip(models.into_iter().take(2).cycle()).collect()
    };
    // What a network comes to without memfit is found once: it takes as long as a run within.
    let asked = models.into_iter().filter(|model| all.iter().any(|(_, asked)| asked == model));
    let known = asked.map(|model| {
        let training = Training { steps: 5, ..small(model) };
        (model, plain(&training, Where::Cpu, &mut |_| {}), profile(&training))
    });
    let known: Vec<_> = known.collect();
    for (strategy, model) in all {
        let training = Training { steps: 5, ..small(model) };
        let (_, expected, (floor, peak)) = known.iter().find(|(known, ..)| *known == model).unwrap();
        let (floor, peak) = (*floor, *peak);
        // The first steps are decided op by op, which needs more room than a plan.
        let (budget, host) = (Budget::of(floor + (peak - floor) * 60 / 100), Budget::of(peak));
        let options =
            Options { budget, host: Some(host), mode: Mode::Planned, strategy, ..Options::default() };
        let (trained, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
        assert_eq!(trained, *expected, "{} by {strategy}", model.name());
        assert!(report.engine.peak <= budget.bytes(), "{} by {strategy}", model.name());
        let [copies, disk] = report.engine.tier_peaks;
        assert!(copies <= host.bytes() && disk == Bytes::ZERO, "{}", model.name());
        assert_eq!((report.tensors, report.engine.used.0), (0, 0), "all was given up");
        moved += report.engine.stored;
    }
    // Which steps move something is a matter of measured times: to run one again as it ran may be cheaper.
    println!("{moved} were moved in all");
}

#[test]
fn what_goes_for_room_may_be_stored_in_memory_and_on_disk() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory: &'static Path = Box::leak(std::env::temp_dir().into_boxed_path());
    let mut moved = [Bytes::ZERO; 2];
    for (at, model) in Model::ALL.into_iter().map(|(model, ..)| model).enumerate() {
        // One op by op and one by a plan, of those that are quick.
        if !matches!(model, Model::ShuffleNet | Model::Lstm) && !all() {
            continue;
        }
        let training = Training { steps: 4, ..small(model) };
        let expected = plain(&training, Where::Cpu, &mut |_| {});
        let (floor, peak) = profile(&training);
        let budget = Budget::of(floor + (peak - floor) * 60 / 100);
        let host = (at % 2 == 0).then_some(Budget::of(peak / 16));
        let disk = Some(Disk { budget: Budget::of(peak), directory });
        let mode = if at % 3 == 0 { Mode::Planned } else { Mode::Online };
        let strategy = "offload:best";
        let options = Options { budget, host, disk, mode, strategy, recompute: false, ..Options::default() };
        let (trained, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
        assert_eq!(trained, expected, "{}", model.name());
        assert!(report.engine.peak <= budget.bytes(), "{}", model.name());
        let [copies, disk] = report.engine.tier_peaks;
        assert!(copies <= Bytes(peak / 16) && disk <= Bytes(peak), "{}", model.name());
        assert!(report.engine.stored > Bytes::ZERO, "{}", model.name());
        moved = [moved[0] + copies, moved[1] + disk];
    }
    assert!(moved.iter().all(|&bytes| bytes > Bytes::ZERO), "{moved:?}");
    let nowhere = Disk { budget: Budget::mib(1), directory: Path::new("there/is/none") };
    let options = Options { disk: Some(nowhere), ..Options::default() };
    let refused = within(&small(Model::Gpt), Where::Cpu, options, &mut |_| {}).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("copies can't be written to `there/is/none`"), "{refused}");
}

/// Parameters and state are at home in other memory, and come for the ops that use them.
#[test]
fn training_below_the_floor_learns_the_same() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory: &'static Path = Box::leak(std::env::temp_dir().into_boxed_path());
    let quick = [(Model::Gpt, true, Mode::Planned), (Model::ShuffleNet, false, Mode::Online)];
    let slow = [
        (Model::Gpt, false, Mode::Planned),
        (Model::ResNet18, true, Mode::Planned),
        (Model::UNet, true, Mode::Online),
        (Model::Lstm, true, Mode::Online),
    ];
    for (model, in_host, mode) in quick.into_iter().chain(slow.into_iter().filter(|_| all())) {
        let training = Training { steps: 6, ..small(model) };
        let expected = plain(&training, Where::Cpu, &mut |_| {});
        let (floor, bound, peak) = floors(&training);
        let (budget, all) = (Budget::of(bound + (floor - bound) * 70 / 100), Budget::of(2 * peak));
        let (host, disk) = match in_host {
            true => (Some(all), None),
            false => (None, Some(Disk { budget: all, directory })),
        };
        let options = Options { budget, host, disk, mode, strategy: "offload:best", ..Options::default() };
        let (trained, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
        println!("{} {mode:?}: floor {floor}, bound {bound}, {budget:?}: {:?}", model.name(), report.steps);
        assert_eq!(trained, expected, "{}", model.name());
        assert!(
            report.engine.peak <= budget.bytes() && report.engine.stored > Bytes::ZERO,
            "{}",
            model.name()
        );
        assert!(report.engine.tier_peaks.iter().all(|&peak| peak <= all.bytes()), "{}", model.name());
        assert!(mode == Mode::Online || report.steps.guided > 0, "{}: {:?}", model.name(), report.steps);
    }
}

#[test]
fn what_is_sparse_waits_without_its_zeros() {
    let _alone = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let training = Training { batch: 8, steps: 5, gradients: false, ..small(Model::ResNet18) };
    let expected = plain(&training, Where::Cpu, &mut |_| {});
    let (floor, peak) = profile(&training);
    let budget = Budget::of(floor + (peak - floor) * 95 / 100);
    let strategy = "compress:best";
    let options = Options { budget, mode: Mode::Planned, strategy, ..Options::default() };
    let (trained, report, _) = within(&training, Where::Cpu, options, &mut |_| {}).unwrap();
    assert_eq!(trained, expected);
    assert!(report.engine.peak <= budget.bytes());
    assert_eq!(report.steps.diverged, 0);
    // To run the step again as it ran may be cheaper: that is a matter of measured times.
    println!("{} were encoded, {} copies did not fit", report.engine.encoded, report.engine.lost);
}
