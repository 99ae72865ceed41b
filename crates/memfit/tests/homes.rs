//! Real training steps below the floor: parameters and state at home in host memory, verified, and read back from a file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memfit::formats::plan_json;
use memfit::{Bytes, Failure, Floor, Goal, Graph, Options, Planned, Tools, check, input, plan};
use memfit_testkit::one_of;

fn read(name: &str) -> Graph {
    let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
    input::graph(&std::fs::read(path).unwrap(), &input::Options::default()).unwrap()
}

fn goal(budget: &str, strategy: &str, host: u64) -> Goal {
    let options = Options { host_budget: Some(Bytes(host)), ..Options::default() };
    let goal = Goal::new(input::device("A100-80").unwrap(), budget.parse().unwrap());
    Goal { options, ..goal }.with_strategy(strategy)
}

fn made(graph: &Graph, goal: &Goal) -> Planned {
    plan(graph, goal, &Tools::none()).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_step_with_its_state_at_home_elsewhere_fits_below_the_floor() {
    let all = [
        ("gpt2-train-b8-s1024", "5.9GiB", "offload:optimizer-state"),
        ("decoder-7b-train-b1-s2048", "24GiB", "offload:optimizer-state"),
        ("gpt2-train-b8-s1024", "5.9GiB", "offload:zero-offload"),
    ];
    // The second takes most of the time: `MEMFIT_ALL=1`.
    for (name, budget, strategy) in all.into_iter().step_by(one_of(2)) {
        let graph = read(name);
        let goal = goal(budget, strategy, 64 << 30);
        let floor = Floor::of(&graph, goal.device.align);
        let planned = made(&graph, &goal);
        let summary = &planned.summary;
        let what = format!("{name}, {strategy}: {summary:?}");
        assert!(summary.budget < floor.bytes && summary.peak <= summary.budget, "{what}");
        assert!(summary.lower_bound < floor.bytes && summary.lower_bound <= summary.peak, "{what}");
        assert_eq!(summary.floor, floor.bytes, "{what}");
        assert!(summary.parked > Bytes::ZERO && summary.parked <= summary.host_peak, "{what}");
        assert!(summary.strategy.contains(strategy), "{what}");
        let file = planned.file(&graph, &goal);
        let checked = check(&plan_json::write(&file), &graph, None, &[]);
        let (read, verified) = checked.unwrap_or_else(|failure| panic!("{what}: {failure}"));
        let peak = verified.peak().round_up(goal.device.align);
        assert_eq!((read.plan, peak), (file.plan, summary.peak), "{what}");
    }
}

/// `floor+0%` is what it was, with memory elsewhere or without; what is proved not to fit takes that memory into account.
#[test]
fn the_floor_is_what_it_was_and_the_proof_is_of_what_is_allowed() {
    let graph = read("bert-base-train-b16-s512");
    let align = input::device("A100-80").unwrap().align;
    let floor = Floor::of(&graph, align);
    let below = |host: u64| Floor::below(&graph, align, Bytes(host));
    assert_eq!(below(0), floor);
    assert!(below(256 << 20).bytes < floor.bytes && below(1 << 40).bytes < below(256 << 20).bytes);
    let refused = |budget: Bytes, host: u64| {
        let goal = goal(&budget.0.to_string(), "offload:zero-offload", host);
        match plan(&graph, &goal, &Tools::none()) {
            Err(Failure::Infeasible(why)) => *why,
            other => panic!("{:?}", other.map(|planned| planned.summary)),
        }
    };
    let least = below(1 << 40).bytes;
    let why = refused(Bytes(least.0 - 1), 1 << 40);
    assert!(why.proved && why.least == least && why.floor == floor.bytes, "{why:?}");
    assert!(why.needed < floor.bytes, "less than the floor is enough: {why:?}");
    // Where the host has no room for it, what does not fit there stays.
    let some = below(256 << 20).bytes;
    let why = refused(Bytes(some.0 - 1), 256 << 20);
    assert!(why.proved && why.least == some && some > least, "{why:?}");
}
