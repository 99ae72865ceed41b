//! Steps shared by ranks: what each holds is what the literature says, and every plan of one passes the judge and real bytes.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use memfit_formats::{graph_json, unpack};
use memfit_ir::{
    Bytes, Device, Dtype, Effect, Graph, GraphBuilder, InPlace, Limits, OpId, OpSpec, Phase, Plan, Program,
    Reuse, Role, ValueId, ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::place::{Problem, by_name};
use memfit_plan::shard::{Refused, Ring, STAGES, Sharded, Sharding, shard, stage};
use memfit_testkit::bytes::Truth;
use memfit_testkit::{
    Case, Rng, Verdict, cases, device, graph as any_graph, mutant, one_of, trained, try_plan,
};

const STATE: usize = 1;
const GRADIENTS: usize = 2;
const PARAMETERS: usize = 3;

fn at(ranks: u32, stage: usize) -> Sharding<'static> {
    Sharding { ranks, stage: STAGES[stage], ring: Ring::default(), buckets: false, units: &[] }
}

fn shared(graph: &Graph, ranks: u32, stage: usize) -> Sharded {
    shard(graph, &at(ranks, stage))
        .unwrap_or_else(|refused| panic!("{} {ranks} {stage}: {refused}", graph.name()))
}

fn refused(graph: &Graph, ranks: u32, stage: usize) -> Refused {
    match shard(graph, &at(ranks, stage)) {
        Err(refused) => refused,
        Ok(_) => panic!("{} {ranks} {stage} was not refused", graph.name()),
    }
}

/// The step as the graph has it, placed.
fn case(graph: &Arc<Graph>, device: &Device) -> Case {
    let order: Vec<OpId> = graph.op_ids().collect();
    let program = Program::in_order(graph, &order, InPlace::May);
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, device.align));
    let placement = by_name("dive").unwrap().place(&problem, &Context::new(device)).unwrap();
    let layout = Problem::layout(&placement.places, &item_of);
    let limits = Limits { replays_random: true, ..Limits::arena(placement.height, device.align) };
    Case { graph: Arc::clone(graph), limits, plan: Plan { graph: graph.digest(), program, layout } }
}

fn live_peak(graph: &Graph, device: &Device) -> Bytes {
    let order: Vec<OpId> = graph.op_ids().collect();
    Profile::of(&Program::in_order(graph, &order, InPlace::May), device.align).peak().0
}

/// Judge and real bytes over two steps, and what is left of wrong plans.
fn held_to_account(graph: Graph, mutants: usize, rng: &mut Rng, what: &str) {
    let graph = Arc::new(graph);
    let truth = Truth::of(&graph);
    let case = case(&graph, &device());
    let (verdict, _) = try_plan(&truth, &case);
    assert_eq!(verdict, Verdict::AcceptedRight, "{what}");
    for _ in 0..mutants {
        let Some((_, mutant)) = mutant(&case, rng) else { continue };
        assert_ne!(try_plan(&truth, &mutant).0, Verdict::AcceptedWrong, "{what}\n{}", mutant.replay());
    }
}

/// The corpus's steps with an optimizer; with `shrunk` values have 1/16384 of their elements, so that they are real bytes quickly.
fn corpus(shrunk: bool) -> Vec<Graph> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/graphs");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.to_str().unwrap().contains("-train-"));
    assert!(paths.len() >= 14, "{paths:?}");
    let mut graphs = Vec::new();
    for path in paths {
        let packed = std::fs::read(&path).unwrap();
        let bytes = unpack(&packed).unwrap();
        if !shrunk {
            graphs.push(graph_json::read(&bytes).unwrap());
            continue;
        }
        let mut file: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        for value in file["values"].as_array_mut().unwrap() {
            let one = value["dtype"].as_str().map_or(4, |name| Dtype::by_name(name).unwrap().bytes());
            let elements = value["bytes"].as_u64().unwrap().div_ceil(one);
            let elements = elements.div_ceil(16384).max(elements.min(64));
            value["bytes"] = (elements * one).into();
        }
        graphs.push(graph_json::read(&serde_json::to_vec(&file).unwrap()).unwrap());
    }
    graphs
}

/// A step in mixed precision of one parameter of `elements` elements: 2 bytes each for parameter and gradient, 12 for the optimizer,
/// which reads the norm of all gradients first. Nothing else is of a size.
fn mixed(parameters: &[u64]) -> Graph {
    let mut b = GraphBuilder::new("mixed precision");
    let mut value = |name: String, elements: u64, dtype: Dtype, role: Role| {
        let size = Bytes(elements * dtype.bytes());
        b.value(ValueSpec { name, size, dtype, role, ..ValueSpec::default() }).unwrap()
    };
    let x = value("x".into(), 1, Dtype::Bf16, Role::Input);
    let mut layers = Vec::new();
    for (at, &n) in parameters.iter().enumerate() {
        let weight = value(format!("w{at}"), n, Dtype::Bf16, Role::Parameter);
        let gradient = value(format!("g{at}"), n, Dtype::Bf16, Role::Gradient);
        let updated = value(format!("w{at}'"), n, Dtype::Bf16, Role::Parameter);
        let mut pair = |name: &str| {
            [1, 2].map(|version| value(format!("{name}{at}.{version}"), n, Dtype::F32, Role::State))
        };
        let states = ["master", "mean", "variance"].map(&mut pair);
        let hidden = [1, 2].map(|pass| value(format!("h{at}.{pass}"), 1, Dtype::Bf16, Role::Activation));
        layers.push((weight, gradient, updated, states, hidden));
    }
    let norm = value("norm".into(), 1, Dtype::F32, Role::Activation);
    let mut op =
        |name: &str, phase: Phase, reads: &[ValueId], writes: &[ValueId], must: &[(ValueId, ValueId)]| {
            let reuses = must.iter().map(|&(input, output)| Reuse { input, output, must: true }).collect();
            let (reads, writes) = (reads.to_vec(), writes.to_vec());
            b.op(OpSpec {
                name: name.into(),
                kind: name.into(),
                phase,
                reads,
                writes,
                reuses,
                ..OpSpec::default()
            })
            .unwrap();
        };
    let mut now = x;
    for (weight, .., hidden) in &layers {
        op("linear", Phase::Forward, &[now, *weight], &[hidden[0]], &[]);
        now = hidden[0];
    }
    for (weight, gradient, .., hidden) in layers.iter().rev() {
        op("backward", Phase::Backward, &[now, *weight], &[hidden[1], *gradient], &[]);
        now = hidden[1];
    }
    let gradients: Vec<ValueId> = layers.iter().map(|layer| layer.1).collect();
    op("norm", Phase::Update, &gradients, &[norm], &[]);
    for (weight, gradient, updated, states, _) in &layers {
        let (before, after) = (states.map(|pair| pair[0]), states.map(|pair| pair[1]));
        let pairs: Vec<_> = before.into_iter().zip(after).collect();
        let reads = [&before[..], &[*gradient, norm]].concat();
        op("adam", Phase::Update, &reads, &after, &pairs);
        op("cast", Phase::Update, &[after[0], *weight], &[*updated], &[(*weight, *updated)]);
    }
    b.finish().unwrap()
}

/// Model states in bytes for `elements` parameters: table 1 and figure 1 of arXiv:1910.02054.
fn paper(elements: u64, ranks: u64, stage: usize) -> u64 {
    match stage {
        0 => 16 * elements,
        STATE => 4 * elements + 12 * elements / ranks,
        GRADIENTS => 2 * elements + 14 * elements / ranks,
        _ => 16 * elements / ranks,
    }
}

#[test]
fn model_states_are_those_of_the_paper() {
    // Whatever is divisible by the ranks comes out to the byte, by the sum over roles and by the peak of a plan.
    for sizes in [&[7_500_000_000_u64][..], &[64_000, 128, 640_000_000]] {
        let (graph, elements) = (mixed(sizes), sizes.iter().sum::<u64>());
        for ranks in [2, 4, 8, 64] {
            for stage in 0..STAGES.len() {
                let made = shared(&graph, ranks, stage);
                let said = paper(elements, u64::from(ranks), stage);
                assert_eq!(made.holdings.model().0, said, "{ranks} {stage}");
                let device = Device { align: Bytes(1), ..device() };
                // Updates wait for the norm of all gradients here. What is whole for a while comes on top: a gradient, and from stage 3 on
                // its parameter.
                let peak = live_peak(&made.graph, &device).0;
                let whole = 2 * (stage.max(1) as u64 - 1) * sizes.iter().max().unwrap();
                assert!(peak >= said && peak <= said + whole + 64, "{ranks} {stage}: {peak}, {said}");
            }
        }
    }
    // What is not divisible is padded by less than one element of each value on each rank.
    let odd = mixed(&[1001, 77, 5]);
    for ranks in [2, 3, 7, 64, 1000] {
        for stage in 0..STAGES.len() {
            let held = shared(&odd, ranks, stage).holdings.model().0;
            let least = paper(1083, u64::from(ranks), stage);
            assert!(held >= least && held <= least + 3 * 16, "{ranks} {stage}: {held}, {least}");
        }
    }
}

/// `graph` as `fully_shard` would split it.
fn in_units(graph: &Graph, ranks: u32, units: &[&str]) -> Result<Sharded, Refused> {
    let units: Vec<String> = units.iter().map(|&unit| unit.to_owned()).collect();
    shard(graph, &Sharding { units: &units, ..at(ranks, PARAMETERS) })
}

#[test]
fn units_are_gathered_together_and_one_ahead() {
    let mut rng = Rng::new(3);
    let graph = &corpus(true)[3];
    assert_eq!(graph.name(), "gpt2");
    for ranks in [2, 4, 8, 64] {
        let made = in_units(graph, ranks, &["transformer.h.*"]).unwrap();
        let kinds = |kind: &str| made.graph.op_ids().filter(|&op| made.graph.op(op).kind == kind).count();
        // Twelve layers forward and backward; the root, which has the embeddings and the last norm, once.
        assert_eq!((kinds("memfit.all_gather"), kinds("memfit.copy_out")), (25, 25));
        let alone = shared(graph, ranks, PARAMETERS);
        assert_eq!(made.holdings, alone.holdings);
        assert!(made.traffic.count < alone.traffic.count);
        // While the first layer of the backward pass runs, the next one is there, too.
        let order: Vec<&str> = made
            .graph
            .op_ids()
            .map(|op| made.graph.op(op))
            .filter(|op| {
                op.phase == Phase::Backward && ["memfit.all_gather", "memfit.copy_out"].contains(&op.kind)
            })
            .map(|op| op.name)
            .take(4)
            .collect();
        assert!(
            order[0].starts_with("all_gather:transformer.h.11.") && order[1] == "copy_out:transformer.h.11",
            "{order:?}"
        );
        assert!(
            order[2].starts_with("all_gather:transformer.h.10.") && order[3] == "copy_out:transformer.h.10",
            "{order:?}"
        );
        held_to_account(made.graph, 8, &mut rng, &format!("units on {ranks}"));
    }
    let error = in_units(graph, 2, &["transformer.h.*", "encoder.*"]).unwrap_err();
    assert!(error.usage && error.message.contains("`encoder.*`"), "{error}");
    let units = ["transformer.h.*".to_owned()];
    assert!(shard(graph, &Sharding { units: &units, ..at(2, GRADIENTS) }).unwrap_err().usage);
    // Random steps whose parameters are of three modules, used in any order, and updated while others are gathered ahead.
    let mut made = 0;
    for seed in 0..cases(100) {
        let graph = trained(2 + usize::try_from(seed).unwrap() % 8, 4, seed);
        let mut file: serde_json::Value = serde_json::from_slice(&graph_json::write(&graph)).unwrap();
        for (at, value) in file["values"].as_array_mut().unwrap().iter_mut().enumerate() {
            value["name"] = format!("m{}.{at}", at % 3).into();
        }
        let graph = graph_json::read(&serde_json::to_vec(&file).unwrap()).unwrap();
        for units in [&["*"][..], &["m0"], &["m1", "m2"]] {
            if let Ok(one) = in_units(&graph, 3, units) {
                held_to_account(one.graph, 2, &mut rng, &format!("units {units:?}, seed {seed}"));
                made += 1;
            }
        }
    }
    println!("{made} random steps in units");
    assert!(made > 100);
}

#[test]
fn buckets_last_for_the_whole_step() {
    let mut rng = Rng::new(5);
    let graph = mixed(&[640, 64]);
    for (stage, lasting) in [(0, 16 * 704), (STATE, 4 * 704 + 12 * 704 / 4)] {
        let made = shard(&graph, &Sharding { buckets: true, ..at(4, stage) }).unwrap();
        assert_eq!(made.holdings.persistent().0, lasting);
        assert_eq!(made.holdings.model(), shared(&graph, 4, stage).holdings.model());
        let lasts = made.graph.value_ids().filter(|&id| {
            made.graph.value(id).producer.is_none() && made.graph.value(id).role.is_persistent()
        });
        assert_eq!(lasts.map(|id| made.graph.value(id).size.0).sum::<u64>(), lasting);
        held_to_account(made.graph, 8, &mut rng, &format!("buckets, stage {stage}"));
    }
    for stage in [GRADIENTS, PARAMETERS] {
        assert!(shard(&graph, &Sharding { buckets: true, ..at(4, stage) }).unwrap_err().usage);
    }
}

#[test]
fn the_table_of_the_manual_is_what_comes_out() {
    let graph = mixed(&[7_500_000_000]);
    let gigabytes = |bytes: Bytes| format!("{:.1}", bytes.0 as f64 / 1e9);
    let alone = gigabytes(shared(&graph, 2, 0).holdings.model());
    let mut rows = vec![format!("| 1 | {alone} | {alone} | {alone} |")];
    for ranks in [2, 4, 8, 64] {
        let cells: Vec<String> = (STATE..=PARAMETERS)
            .map(|stage| gigabytes(shared(&graph, ranks, stage).holdings.model()))
            .collect();
        rows.push(format!("| {ranks} | {} |", cells.join(" | ")));
    }
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sharding.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let table = rows.join("\n");
    assert!(manual.contains(&table), "docs/sharding.md lacks\n{table}");
    // What the paper has for 64 ranks.
    assert!(rows[4] == "| 64 | 31.4 | 16.6 | 1.9 |", "{}", rows[4]);
}

#[test]
fn what_is_sent_is_two_or_three_times_the_parameters() {
    let graph = mixed(&[6400, 64]);
    let bytes = 2 * 6464;
    for ranks in [2u64, 4, 64] {
        let part = bytes * (ranks - 1) / ranks;
        let sent = |stage| shared(&graph, u32::try_from(ranks).unwrap(), stage).traffic;
        // The norm of the gradients is one number more: 4 bytes, twice, each way round.
        let norm = 4 * 2 * (ranks - 1);
        assert_eq!(sent(0).sent.0, 2 * part);
        assert_eq!(sent(STATE).sent.0, 3 * part + norm);
        assert_eq!(sent(GRADIENTS).sent.0, 2 * part + norm);
        assert_eq!(sent(PARAMETERS).sent.0, 3 * part + norm);
        let made = shared(&graph, u32::try_from(ranks).unwrap(), PARAMETERS);
        let ops = made.graph.op_ids().map(|op| made.graph.op(op));
        let times: Vec<u64> =
            ops.filter(|op| op.effect == Effect::Collective).map(|op| op.time.unwrap().0).collect();
        assert_eq!(times.len() as u64, made.traffic.count);
        assert_eq!(times.iter().sum::<u64>(), made.traffic.time.0);
    }
}

#[test]
fn the_peak_of_real_steps_falls_from_stage_to_stage() {
    let device = Device { align: Bytes(512), ..device() };
    for graph in corpus(false) {
        for ranks in [2, 4, 8, 64] {
            let mut before = Bytes::MAX;
            for stage in 0..STAGES.len() {
                // Plain SGD has no state to share.
                if stage == STATE && graph.name().contains("lstm") {
                    let said = refused(&graph, ranks, stage).message;
                    assert!(said.contains("there is no optimizer state"), "{said}");
                    continue;
                }
                let made = shared(&graph, ranks, stage);
                let peak = live_peak(&made.graph, &device);
                // A share that is scattered waits beside the whole gradient, where a sum is made in place.
                let largest = made.graph.value_ids().map(|id| made.graph.value(id));
                let largest =
                    largest.filter(|value| value.role == Role::Gradient && value.name.contains('/'));
                let share = largest.map(|value| value.size).max().unwrap_or_default();
                let rises = stage == GRADIENTS && ["decoder-7b", "vgg16"].contains(&graph.name());
                let most = if rises { before + share } else { before };
                assert!(peak <= most, "{} {ranks} {stage}: {peak} after {before}", graph.name());
                before = peak;
                let read = graph_json::read(&graph_json::write(&made.graph)).unwrap();
                assert_eq!(read.digest(), made.graph.digest());
            }
        }
    }
}

#[test]
fn plans_of_real_steps_pass_the_judge_and_real_bytes() {
    let mut rng = Rng::new(7);
    // A sixth of the cells, of each graph others; `MEMFIT_ALL=1` takes all.
    let part = one_of(6);
    for (at_graph, graph) in corpus(true).into_iter().enumerate() {
        let large = graph.op_count() > 2000;
        for (at_ranks, ranks) in [2, 4, 8, 64].into_iter().enumerate() {
            for stage in STATE..=PARAMETERS {
                // The large ones once: they take seconds each.
                let chosen = (ranks, stage) == (4, PARAMETERS);
                let turn = (at_graph + at_ranks + stage).is_multiple_of(part);
                if !chosen && (large || !turn) {
                    continue;
                }
                let what = format!("{} {ranks} {stage}", graph.name());
                match shard(&graph, &at(ranks, stage)) {
                    Ok(made) => {
                        held_to_account(made.graph, 4 * usize::from(chosen && !large), &mut rng, &what)
                    }
                    Err(_) => assert!(graph.name().contains("lstm") && stage == STATE, "{what}"),
                }
            }
        }
    }
}

#[test]
fn any_training_step_is_shared_right_or_refused_with_a_reason() {
    let mut rng = Rng::new(11);
    let (mut made, mut no) = (0, 0);
    for seed in 0..cases(150) {
        let layers = 1 + usize::try_from(seed).unwrap() % 9;
        for graph in [trained(layers, 4, seed), trained(layers, 1, seed), any_graph(seed)] {
            let alone = live_peak(&graph, &device());
            let parameters: u64 = graph
                .value_ids()
                .filter(|&id| graph.value(id).producer.is_none() && graph.value(id).role == Role::Parameter)
                .map(|id| graph.value(id).size.0.next_multiple_of(16))
                .sum();
            for stage in 0..STAGES.len() {
                let ranks = 2 + u32::try_from(rng.below(70)).unwrap();
                match shard(&graph, &at(ranks, stage)) {
                    Ok(one) => {
                        let what = format!("seed {seed}, {ranks} ranks, stage {stage}");
                        let peak = live_peak(&one.graph, &device());
                        // Beside what there was: a sum or a share of each gradient, shares of gathered parameters, scratch memory.
                        let values = one.graph.value_count() as u64;
                        let most = alone.0 + 2 * parameters + 16 * (values + 1) + 8 * u64::from(ranks);
                        assert!(peak.0 <= most, "{what}: {peak} of {}", Bytes(most));
                        held_to_account(one.graph, 3, &mut rng, &what);
                        made += 1;
                    }
                    Err(refused) => {
                        assert!(!refused.message.is_empty() && !refused.hint.is_empty());
                        no += 1;
                    }
                }
            }
        }
    }
    println!("{made} steps shared, {no} refused");
    assert!(made > no / 2 && no > 0);
}

#[test]
fn what_can_not_be_shared_is_refused_by_name() {
    let graph = mixed(&[640]);
    for ranks in [0, 1] {
        let error = refused(&graph, ranks, STATE);
        assert!(error.usage && error.message == format!("`{ranks}` ranks have nothing to share"), "{error}");
    }
    for ranks in [641, u32::MAX] {
        let error = refused(&graph, ranks, PARAMETERS);
        assert!(
            error.usage && error.message.ends_with("more than the `640` elements of the largest parameter")
        );
    }
    shared(&graph, 640, PARAMETERS);
    let twice = refused(&shared(&graph, 4, GRADIENTS).graph, 4, GRADIENTS);
    assert!(twice.message.contains("shared already") && !twice.usage, "{twice}");
    let file = String::from_utf8(graph_json::write(&graph)).unwrap();
    for (from, to, said) in [
        ("\"role\":\"parameter\"", "\"role\":\"constant\"", "no value has the role `parameter`"),
        ("\"phase\":\"update\"", "\"phase\":\"backward\"", "no op has the phase `update`"),
        (
            "\"role\":\"gradient\"",
            "\"role\":\"activation\"",
            "update `norm` reads `g0`, which op `backward` makes",
        ),
        ("\"must\":[[2,4]]", "\"may\":[[2,4]]", "overwrites a parameter"),
        // All sizes together stay below 2^62, and are not any more with what is gathered.
        ("\"bytes\":1280", "\"bytes\":1200000000000000000", "all sizes together reach 2^62 bytes"),
    ] {
        let changed = file.replace(from, to).replace(
            "\"must\":[[1,3]]",
            if to.contains("may") { "\"may\":[[1,3]]" } else { "\"must\":[[1,3]]" },
        );
        assert_ne!(changed, file, "{from}\n{file}");
        let changed = graph_json::read(changed.as_bytes()).unwrap_or_else(|error| panic!("{from}: {error}"));
        let error = refused(&changed, 2, PARAMETERS);
        assert!(error.message.contains(said), "{from}: {error}");
    }
}

#[test]
fn stages_are_known_by_name_and_say_where_they_are_from() {
    let names: Vec<&str> = STAGES.iter().map(|stage| stage.info().name).collect();
    assert_eq!(names, ["replicas", "state", "gradients", "parameters"]);
    for name in names {
        assert_eq!(stage(name).unwrap().info().name, name);
        assert!(!stage(name).unwrap().info().source.is_empty());
    }
    assert!(stage("everything").is_none());
    // Each shares all that the one before does.
    for pair in STAGES.windows(2) {
        let (less, more) = (pair[0].shares(), pair[1].shares());
        assert!(less.state <= more.state && less.gradients <= more.gradients);
        assert!(less.parameters <= more.parameters && less != more);
    }
}
