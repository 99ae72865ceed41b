//! The front door keeps its word: what it says of a plan, of a refusal, of a strategy and of the time is so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memfit::{
    Budget, Bytes, Failure, Goal, Graph, Infeasible, Nanos, Options, PlaceGoal, Planned, ReplayGoal,
    StepPlanner, Tools, compare, input, place, plan, recording, replay_recording,
};

fn corpus(name: &str) -> Vec<u8> {
    let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn read(bytes: &[u8]) -> Graph {
    input::graph(bytes, &input::Options::default()).unwrap()
}

fn goal(budget: &str) -> Goal {
    Goal::new(input::device("A100-80").unwrap(), budget.parse().unwrap())
}

fn with(options: Options, budget: &str) -> Goal {
    Goal { options, ..goal(budget) }
}

fn made(graph: &Graph, goal: &Goal) -> Planned {
    plan(graph, goal, &Tools::none()).unwrap_or_else(|failure| panic!("{failure}"))
}

fn infeasible(graph: &Graph, goal: &Goal) -> Infeasible {
    match plan(graph, goal, &Tools::none()) {
        Err(Failure::Infeasible(why)) => *why,
        other => panic!("{:?}", other.map(|planned| planned.summary)),
    }
}

#[test]
fn strategies_of_segments_fit_a_step_that_updates_its_parameters() {
    let graph = read(&corpus("resnet50-train-b32"));
    for name in ["chen-sqrt", "chen-greedy", "kusumoto", "chain", "sublinear"] {
        let goal = goal("floor+50%").with_strategy(&format!("recompute:{name}"));
        let summary = made(&graph, &goal).summary;
        assert!(summary.peak <= summary.budget && summary.recompute > Nanos::ZERO, "{name}: {summary:?}");
        assert!(summary.strategy.contains(name) && summary.instead.is_none(), "{name}: {summary:?}");
        // One more forward pass is a third of a step.
        assert!(summary.overhead() < 0.40, "{name}: {}", summary.overhead());
    }
    // All segments together hold about what the square root of their number does.
    let sqrt = goal("1.3GiB").with_strategy("recompute:chen-sqrt");
    assert!(made(&graph, &sqrt).summary.overhead() < 0.35);
}

#[test]
fn a_strategy_that_leaves_its_work_to_another_says_so() {
    let graph = read(&corpus("vgg16-train-b256"));
    let summary = made(&graph, &goal("floor+50%").with_strategy("recompute:checkmate")).summary;
    let instead = summary.instead.as_ref().unwrap();
    assert_eq!((&*instead.strategy, &*instead.used), ("recompute:checkmate", "recompute:best"));
    assert!(!instead.why.is_empty());
    assert!(summary.strategy.contains("recompute:best") && !summary.strategy.contains("checkmate"));
    let why = infeasible(&graph, &goal("floor+50%").with_strategy("recompute:checkmate-lp")).why;
    assert!(why.is_some_and(|why| why.starts_with("`recompute:checkmate-lp` did not do its work: ")));
}

/// A chain forward and back, whose ops take `time` ns each, and one of `long` ns.
fn chain(layers: usize, time: u64, long: u64) -> Graph {
    let mut text = "graph \"chain\"\n  v0 = input 4096\n".to_owned();
    for layer in 1..=layers {
        let time = if layer == layers / 2 { long } else { time };
        text += &format!(
            "  v{layer} = activation 4096\n  op{} = forward f(v{}) -> v{layer} time={time}\n",
            layer - 1,
            layer - 1
        );
    }
    for back in 1..=layers {
        let (value, before, saved) = (layers + back, layers + back - 1, layers - back);
        text += &format!("  v{value} = gradient 4096\n");
        text += &format!("  op{} = backward b(v{before}, v{saved}) -> v{value} time={time}\n", value - 1);
    }
    text += &format!("  result v{}\n", 2 * layers);
    read(text.as_bytes())
}

#[test]
fn every_time_is_the_clocks() {
    // The last is longer than any op can be, and counts as what the clock makes of it, everywhere.
    for long in [1, 1_000, 10_000_000_000_000, 10_000_000_000_000_000] {
        let graph = chain(40, 1_000, long);
        let planned = made(&graph, &goal("40%").with_strategy("recompute:chen-greedy"));
        let summary = &planned.summary;
        assert!(summary.recompute > Nanos::ZERO);
        assert_eq!(summary.time, planned.timeline.time);
        assert_eq!(summary.time.0, summary.base_time.0 + summary.recompute.0, "no codecs here");
        assert!(summary.time >= summary.time_bound && summary.time_bound >= summary.base_time, "{summary:?}");
    }
}

#[test]
fn the_least_budget_that_is_named_is_enough_and_nearly_the_least() {
    for (graph, budget) in [(chain(60, 1_000, 1_000), "floor+1%"), (read(&corpus("unet-train-b16")), "floor")]
    {
        let quick = |budget: &str| goal(budget).with_strategy("recompute:chen-greedy");
        let why = infeasible(&graph, &quick(budget));
        assert!(why.needed > why.budget);
        let with = |bytes: u64| plan(&graph, &quick(&bytes.to_string()), &Tools::none());
        let planned = with(why.needed.0);
        assert!(planned.is_ok(), "{}: {}", graph.name(), planned.unwrap_err());
        let less = why.needed.0 / 20 * 19;
        assert!(less <= why.floor.0 || with(less).is_err(), "{}: {less} B are enough", graph.name());
        // What people are told reads back as at least that much.
        let hint = Failure::Infeasible(Box::new(why.clone())).hint().unwrap();
        let said: Bytes = hint.split('`').nth(1).unwrap().trim_start_matches("--budget ").parse().unwrap();
        assert!(said >= why.needed && said.0 <= why.needed.0 + why.needed.0 / 500, "{hint}");
    }
}

#[test]
fn budget_and_need_are_told_apart() {
    let near = Infeasible::new(Bytes(42_197_123_072), Bytes(42_197_123_584), Bytes(1), "plan");
    let text = Failure::Infeasible(Box::new(near)).to_string();
    assert!(text.contains("42197123072 B") && text.contains("42197123584 B"), "{text}");
}

#[test]
fn what_the_time_was_not_enough_for_is_no_refusal() {
    let graph = read(&corpus("resnet50-train-b32"));
    let over = Tools { stop: &|| true, until: Some(0.0), ..Tools::none() };
    let limited = with(Options { effort: u32::MAX, ..Options::default() }, "floor+5%");
    let failure = plan(&graph, &limited, &over).unwrap_err();
    assert!(matches!(&failure, Failure::Timeout(Some(so_far)) if so_far.needed > so_far.budget), "{failure}");
    assert_eq!(failure.exit_code(), 5);
    // A proof needs no time.
    let below = with(Options { effort: u32::MAX, ..Options::default() }, "300MiB");
    assert!(matches!(plan(&graph, &below, &over), Err(Failure::Infeasible(why)) if why.proved));
    let rows = compare(&graph, &limited, &over).unwrap();
    assert!(rows.iter().all(|row| row.result == Err(Failure::Timeout(None))));
}

#[test]
fn each_row_has_its_share_of_the_time() {
    // A clock that goes on by a second with each look: every row is tried, however long the rows before it took.
    let graph = chain(12, 1_000, 1_000);
    let ticks = std::sync::atomic::AtomicU32::new(0);
    let now = || f64::from(ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let tools = Tools { now: &now, stop: &|| false, until: Some(2e3), ..Tools::none() };
    let rows =
        compare(&graph, &with(Options { effort: u32::MAX, ..Options::default() }, "60%"), &tools).unwrap();
    assert!(rows.iter().all(|row| row.result != Err(Failure::Timeout(None))));
}

#[test]
fn graphs_of_others_are_told_by_their_content() {
    let checkmate = br#"{"directed": true, "nodes": [{"id": 0, "cost_ram": 8, "cost_cpu": 1},
        {"id": 1, "cost_ram": 4, "cost_cpu": 2}], "links": [{"source": 0, "target": 1}]}"#;
    assert_eq!(read(checkmate).op_count(), 2);
    let g10 =
        br#"{"name": "n", "tensors": {"w": {"bytes": 4, "weight": true}, "x": {"bytes": 8, "weight": false}},
        "kernels": [{"id": 0, "op": "Conv_Forward", "ns": 5, "inputs": ["w"], "outputs": ["x"]}]}"#;
    assert_eq!(read(g10).op_count(), 1);
    for graph in [&checkmate[..], &g10[..]] {
        assert!(recording(graph, &Default::default(), &input::device("A100-80").unwrap()).is_ok());
    }
    let log = include_bytes!("../../../corpus/recorded/every-instruction.log");
    assert!(read(log).op_count() > 1);
    let torn = input::graph(&log[..log.len() / 2], &Default::default()).unwrap_err();
    assert!(matches!(torn, Failure::Input(_)), "{torn}");
    let neither = input::graph(br#"{"nodes": []}"#, &Default::default()).unwrap_err();
    assert!(neither.to_string().contains("schema"), "{neither}");
}

#[test]
fn what_is_often_taken_for_a_graph_is_named() {
    for (bytes, part) in [
        (&b""[..], "the file is empty"),
        (b"PK\x03\x04\x00\x00archive/data.pkl", "zip archive"),
        (b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00}\x94.", "pickle"),
        (b"# Read me\n\nThis is a project.\n", "this is text"),
    ] {
        let failure = input::graph(bytes, &Default::default()).unwrap_err();
        assert!(failure.to_string().contains(part), "{failure}");
        assert!(failure.hint().is_some_and(|hint| !hint.is_empty()), "{failure}");
        assert_eq!(failure.exit_code(), 3);
    }
}

#[test]
fn a_graph_says_whether_masks_can_be_drawn_again() {
    let graph = |line: &str| {
        let mut text = format!("graph \"masks\"\n{line}  v0 = input 4096\n");
        for layer in 1..=12 {
            text += &format!(
                "  v{layer} = activation 4096\n  op{0} = forward d(v{0}) -> v{layer} seeded time=1000\n",
                layer - 1
            );
        }
        for back in 1..=12 {
            let (value, before, saved) = (12 + back, 11 + back, 12 - back);
            text += &format!("  v{value} = gradient 4096\n");
            text += &format!("  op{before} = backward b(v{before}, v{saved}) -> v{value} time=1000\n");
        }
        read((text + "  result v24\n").as_bytes())
    };
    let (replays, not) = (graph("  replays-random\n"), graph(""));
    assert!(replays.replays_random() && !not.replays_random());
    assert_eq!(replays.digest(), not.digest(), "a plan says it of itself");
    let tight = goal("60%");
    let planned = made(&replays, &tight);
    assert!(planned.limits.replays_random && planned.summary.recompute > Nanos::ZERO);
    assert!(!infeasible(&not, &tight).proved);
    let may = |replays_random| with(Options { replays_random, ..Options::default() }, "60%");
    assert!(made(&not, &may(Some(true))).limits.replays_random);
    infeasible(&replays, &may(Some(false)));
    let written = memfit::formats::graph_json::write(&replays);
    assert!(read(&written).replays_random());
    assert!(read(&corpus("bert-base-train-b16-s512")).replays_random());
}

#[test]
fn several_lanes_and_recomputation_by_name_exclude_each_other() {
    let graph = chain(8, 1_000, 1_000);
    let lanes = with(Options { lanes: 2, ..Options::default() }, "100%");
    made(&graph, &lanes);
    let named = lanes.with_strategy("recompute:best");
    assert_eq!(plan(&graph, &named, &Tools::none()).unwrap_err().exit_code(), 2);
}

#[test]
fn buffers_without_bytes_go_over_lanes() {
    let text = "graph \"empty\"\n  v0 = input 0\n  v1 = input 4096\n  v2 = activation 0\n  v3 = activation 4096\n\
        op0 = forward f(v0) -> v2 MUST=v0>v2\n  op1 = forward g(v1, v2) -> v3\n  v4 = activation 4096\n\
        op2 = forward h(v3, v2) -> v4\n  result v4\n";
    for pair in ["must", "may"] {
        let graph = read(text.replace("MUST", pair).as_bytes());
        for lanes in 1..4 {
            let goal = with(Options { lanes, ..Options::default() }, "100%");
            let summary = made(&graph, &goal).summary;
            assert!(summary.time >= summary.base_time);
        }
    }
}

#[test]
fn lanes_that_nothing_runs_on_take_no_memory() {
    let graph = chain(4, 1_000, 1_000);
    let file = |goal: &Goal| {
        let planned = made(&graph, goal);
        String::from_utf8(memfit::formats::plan_json::write(&planned.file(&graph, goal))).unwrap()
    };
    let plan = file(&goal("100%"));
    assert!(plan.contains("\"lanes\": 1"), "{plan}");
    let many = plan.replacen("\"lanes\": 1", "\"lanes\": 65535", 1);
    assert!(memfit::check(many.as_bytes(), &graph, None, &[]).is_ok());
    // Steps on lanes that are out of all bounds are refused.
    let spread = file(&with(Options { lanes: 2, ..Options::default() }, "100%")).replacen(
        "\"lanes\": 2",
        "\"lanes\": 65535",
        1,
    );
    assert!(memfit::check(spread.as_bytes(), &graph, None, &[]).is_ok());
}

#[test]
fn a_plan_for_live_bytes_checks_as_it_was_written() {
    let graph = read(&corpus("vgg16-train-b256"));
    let live = goal("100%").with_strategy("place:refcount").with_strategy("budget:live");
    let planned = made(&graph, &live);
    assert!(
        planned.summary.live_peak <= planned.summary.budget && planned.summary.peak > planned.summary.budget
    );
    let file = memfit::formats::plan_json::write(&planned.file(&graph, &live));
    assert!(memfit::check(&file, &graph, None, &[]).is_ok());
}

#[test]
fn a_replay_has_room_enough_by_default() {
    let device = input::device("A100-80").unwrap();
    for name in ["resnet50-infer-b32", "gpt2-infer-b8-s1024", "resnet50-train-b32"] {
        let recording = recording(&corpus(name), &Default::default(), &device).unwrap();
        let goal = ReplayGoal {
            budget: None,
            planned: false,
            evictor: "best".into(),
            sieve: memfit::engine::evict::Sieve::default(),
            exponents: [1.0; 3],
            allocator: None,
            dealloc: None,
            as_simulator: false,
            limit: 1.0,
            seed: 0,
        };
        let replayed = replay_recording(&recording, &goal, &device, None, &mut StepPlanner::new(1)).unwrap();
        assert_eq!(replayed.report.outcome, memfit::engine::replay::Outcome::Done, "{name}");
        assert_eq!(replayed.report.stats.evictions, 0, "{name}");
        assert!(replayed.budget.ratio(replayed.base.peak) < 1.5, "{name}: {}", replayed.budget);
    }
}

#[test]
fn alignments_beyond_all_memory_are_refused() {
    let buffers = memfit::formats::csv::read(b"id,lower,upper,size\na,0,3,4\nb,1,9,4\n").unwrap();
    for align in [u64::MAX, 1 << 63, 1 << 41] {
        let goal =
            PlaceGoal { capacity: None, align: Bytes(align), placer: "bfc".into(), seed: 0, effort: 1 };
        assert_eq!(place(&buffers, &goal, &Tools::none()).unwrap_err().exit_code(), 2);
    }
}

#[test]
fn what_is_proved_is_said_of_the_means_at_hand() {
    let graph = read(&corpus("resnet50-train-b32"));
    let why = infeasible(&graph, &goal("300MiB").with_strategy("recompute:chen-greedy"));
    let hint = Failure::Infeasible(Box::new(why)).hint().unwrap();
    assert!(hint.contains("no plan that keeps parameters and state on the device fits below"), "{hint}");
    assert_eq!(goal("60%").budget, Budget::OfPeak(0.6));
}
