//! What codecs do for captured networks: docs/compression.md has the figures in a table.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::ir::{Codec, Content, Lifespan, Phase, Program, Role, Step};
use memfit::{Budget, Bytes, Device, Failure, Goal, Graph, Options, Planned, Tools, formats, input, plan};
use memfit_plan::schedule::compress::COMPRESSES;
use serde_json::{Value, json};

/// How dense what an op of a kind makes is, given the share of the network's ReLUs before it and the density of its first operand.
type Density = fn(&str, f64, f64) -> Option<f64>;

const RELU: &str = "aten.relu.default";
const POOL: &str = "aten.max_pool2d_with_indices.default";

/// A VGG-like net after 120 steps of SGD on photographs, as measured: from 0.34 behind the first ReLU to 0.15 behind the last. Of
/// four words a pool keeps zero if all are; taken as independent, which makes pools denser than they are.
const TRAINED: Density = |kind, depth, before| match kind {
    RELU => Some(0.34 - (0.34 - 0.15) * depth),
    POOL => Some(1.0 - (1.0 - before).powi(4)),
    _ => None,
};

/// As dense as makes maps 2.6 times smaller without their zeros: the average that Rhu et al. publish for cDMA (HPCA 2018).
const PUBLISHED: Density = |kind, _, before| match kind {
    RELU => Some(1.0 / 2.6 - 1.0 / 32.0),
    POOL => Some(before),
    _ => None,
};

/// Nothing is ever zero, as in transformers.
const DENSE: Density = |_, _, _| Some(1.0);

fn document(name: &str) -> Value {
    let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&formats::unpack(&std::fs::read(path).unwrap()).unwrap()).unwrap()
}

fn graph_of(document: &Value) -> Graph {
    input::graph(&serde_json::to_vec(document).unwrap(), &input::Options::default()).unwrap()
}

/// The place of operand `at` of `op`.
fn operand(op: &Value, list: &str, at: usize) -> Option<usize> {
    op[list][at].as_u64().map(|place| usize::try_from(place).unwrap())
}

/// `document` with what `density` says. Places within a pool's window are integers of eight bytes, of which the upper four are zero.
fn with_densities(mut document: Value, density: Density) -> Value {
    let ops = document["ops"].as_array().unwrap().clone();
    let kinds: Vec<&str> = ops.iter().map(|op| op["kind"].as_str().unwrap()).collect();
    let all = kinds.iter().filter(|kind| **kind == RELU).count();
    let mut relus = 0;
    for (op, kind) in ops.iter().zip(kinds) {
        let before = operand(op, "reads", 0).and_then(|value| document["values"][value]["density"].as_f64());
        let depth = f64::from(relus) / (all.max(2) - 1) as f64;
        let of = [density(kind, depth, before.unwrap_or(1.0)), (kind == POOL).then_some(0.5)];
        for (at, density) in of.into_iter().enumerate() {
            if let (Some(density), Some(made)) = (density, operand(op, "writes", at)) {
                document["values"][made]["density"] = json!(density);
            }
        }
        relus += u32::from(kind == RELU);
    }
    document
}

/// `document` without operands of which no more is read than their shape.
fn without_shapes(mut document: Value) -> Value {
    for op in document["ops"].as_array_mut().unwrap() {
        let Some(Value::Array(shapes)) = op.as_object_mut().unwrap().remove("shape") else { continue };
        let reads = op["reads"].as_array_mut().unwrap();
        for at in shapes.iter().rev() {
            reads.remove(usize::try_from(at.as_u64().unwrap()).unwrap());
        }
        assert!(op.get("sign").is_none(), "places of operands would be others");
    }
    document
}

/// `document` where the places within a pool's windows take `bits` each.
fn with_places(mut document: Value, bits: u64) -> Value {
    let ops = document["ops"].as_array().unwrap().clone();
    for op in ops.iter().filter(|op| op["kind"] == POOL) {
        let places = document["values"][operand(op, "writes", 1).unwrap()].as_object_mut().unwrap();
        let bytes = places["bytes"].as_u64().unwrap() / 8 * bits / 8;
        places.retain(|key, _| key != "shape" && key != "dtype");
        places["bytes"] = json!(bytes.max(1));
    }
    document
}

fn device() -> Device {
    input::device("A100-80").unwrap()
}

/// All codecs that lose something.
fn all_lossy() -> Vec<Codec> {
    Codec::ALL.iter().map(|row| row.0).filter(|codec| codec.is_lossy()).collect()
}

fn planned(
    (graph, device): (&Graph, &Device),
    strategies: &[&str],
    lossy: &[Codec],
    budget: Budget,
) -> Result<Planned, Failure> {
    let strategies = strategies.iter().map(|&name| name.to_owned()).collect();
    let options = Options { strategies, lossy: lossy.to_vec(), ..Options::default() };
    plan(graph, &Goal { options, ..Goal::new(device.clone(), budget) }, &Tools::none())
}

/// Nobody who allows lossy codecs gets one where a plan without fits: networks of the corpus, with budgets near the floor and further
/// from it, as dense as they are trained and without a word of it. `MEMFIT_CASES=1` takes all that are planned within seconds.
#[test]
fn nothing_is_lost_where_a_lossless_plan_fits() {
    let some = [("vgg16-train-b256", 50), ("vgg16-train-b256", 10), ("unet-train-b16", 10)];
    let dense = [("resnet50-train-b256", 10), ("bert-base-train-b16-s512", 10), ("gpt2-infer-b8-s1024", 50)];
    let more = [
        "resnet50-train-b32",
        "resnet50-train-b256",
        "inception-v3-train-b64",
        "densenet121-train-b64",
        "mobilenet-v2-train-b256",
        "shufflenet-v2-train-b256",
        "vit-b16-train-b64",
        "gpt2-train-b8-s1024",
    ];
    let is_all = std::env::var_os("MEMFIT_CASES").is_some();
    let more = more.into_iter().filter(|_| is_all).flat_map(|name| [(name, 50), (name, 10)]);
    let sparse = some.into_iter().chain(more.clone()).map(|(name, part)| (name, part, Some(TRAINED)));
    let dense = some.into_iter().chain(dense).chain(more).map(|(name, part)| (name, part, None));
    let device = device();
    for (name, part, density) in sparse.chain(dense) {
        let document = document(name);
        let graph = graph_of(&match density {
            Some(density) => with_densities(document, density),
            None => document,
        });
        let found =
            planned((&graph, &device), &[], &all_lossy(), Budget::AboveFloor(f64::from(part) / 100.0));
        let found = found.unwrap_or_else(|failure| panic!("{name}, {part} %: {failure}"));
        assert_eq!(found.summary.lossy, [], "{name}, {part} %");
        assert_eq!(found.verified.plan().program.lossy(), [], "{name}, {part} %");
        println!("{name}, floor + {part} %: {}", found.summary.strategy);
    }
}

/// Where none fits, those that are allowed are used, and no others.
#[test]
fn where_no_lossless_plan_fits_what_is_allowed_is_used() {
    let graph = graph_of(&document("resnet50-infer-b32"));
    let (on, budget) = ((&graph, &device()), Budget::AboveFloor(0.5));
    let refused = planned(on, &[], &[], budget).unwrap_err();
    assert!(matches!(refused, Failure::Infeasible(_)), "{refused}");
    for lossy in [Codec::CastBf16, Codec::Int8] {
        let found = planned(on, &[], &[lossy], budget).unwrap();
        assert_eq!(found.summary.lossy, [lossy]);
        assert_eq!(found.limits.lossy, [lossy]);
    }
}

/// Of `program`: the bytes of all maps that wait for the backward pass, none of which shares room with another, and the most
/// that all else takes at once. That is the baseline by which Jain et al. tell what each encoding is worth (Gist, ISCA 2018, figure 10);
/// parameters and what is kept of their gradients for the optimizer don't count there.
fn footprint(graph: &Graph, program: &Program) -> u64 {
    let backward =
        |step: &Step| matches!(step, Step::Compute(run) if graph.op(run.op).phase != Phase::Forward);
    let turn = program.steps.iter().position(backward).unwrap();
    let lasting = graph.lasting();
    let counts = |content: Content| {
        content.value().is_none_or(|id| {
            let value = graph.value(id);
            let updates = value.readers.iter().any(|&op| graph.op(op).phase == Phase::Update);
            !(lasting[id.index()] || value.role == Role::Gradient && updates)
        })
    };
    let mut changes = vec![(0, 0); program.steps.len() + 1];
    let mut stashed = 0;
    for (buffer, Lifespan { from, until }) in program.buffers.iter().zip(program.lifespans()) {
        if !counts(buffer.content) {
            continue;
        }
        if from < turn && until > turn {
            stashed += buffer.size.0;
        } else {
            changes[from].0 += buffer.size.0;
            changes[until].1 += buffer.size.0;
        }
    }
    let (mut now, mut most) = (0, 0);
    for (more, less) in changes {
        now = now + more - less;
        most = most.max(now);
    }
    stashed + most
}

/// As Gist's own graphs are: pools keep no places without Binarize (cuDNN finds them again from input and output), and with it places of
/// 4 bits and no maps.
#[test]
fn gist_has_the_published_factor_of_signs_with_its_own_pools() {
    let (device, captured) = (device(), document("vgg16-train-b256"));
    let footprint = |document: Value, strategies: &[&str], budget| {
        let graph = graph_of(&document);
        let found = planned((&graph, &device), strategies, &[], budget).unwrap();
        footprint(&graph, &found.verified.plan().program) as f64
    };
    let before = footprint(with_places(captured.clone(), 0), &["order:given"], Budget::Bytes(Bytes(1 << 40)));
    let after = without_shapes(with_places(captured, 4));
    let after = footprint(after, &["order:given", "compress:gist-lossless"], Budget::OfPeak(0.95));
    let factor = before / after;
    println!("footprint {:.2} GB, {:.2} GB: {factor:.3}", before / 1e9, after / 1e9);
    assert!((factor / 1.34 - 1.0).abs() <= 0.05, "{factor}");
}

/// Gist on VGG-16: its factors with Binarize, with sparse storage too, and with reduced precision, and the step time that it takes.
#[test]
fn gist_has_the_published_factors_on_vgg() {
    let device = device();
    let captured = document("vgg16-train-b256");
    let factor = |document: &Value, strategy: &str, lossy: &[Codec]| {
        let graph = graph_of(document);
        let on = (&graph, &device);
        let plain = planned(on, &["order:given"], &[], Budget::Bytes(Bytes(1 << 40))).unwrap();
        let encoded = planned(on, &["order:given", strategy], lossy, Budget::OfPeak(0.9)).unwrap();
        let [before, after] =
            [&plain, &encoded].map(|planned| footprint(&graph, &planned.verified.plan().program));
        let factor = before as f64 / after as f64;
        let peaks = [&plain, &encoded].map(|planned| planned.summary.live_peak);
        println!(
            "{strategy} {}: footprint {:.2} GB, {:.2} GB: {factor:.3}; live peak {}, {}: {:.3}; time {:+.2} %",
            lossy.iter().map(|codec| codec.name()).collect::<Vec<_>>().join(","),
            before as f64 / 1e9,
            after as f64 / 1e9,
            peaks[0],
            peaks[1],
            peaks[0].ratio(peaks[1]),
            100.0 * encoded.summary.overhead()
        );
        assert!(encoded.summary.overhead() <= 0.04, "{}", encoded.summary.overhead());
        factor
    };
    let near = |found: f64, published: f64| (found / published - 1.0).abs() <= 0.05;
    // Where nothing is said of densities all there is are signs. A pool's backward pass of PyTorch's is given its input for the shape
    // alone, so that this has been decoded one op earlier than Gist, whose pools keep places and no maps.
    let as_captured = factor(&captured, "compress:gist-lossless", &[]);
    let binarize = factor(&without_shapes(captured.clone()), "compress:gist-lossless", &[]);
    assert!(binarize > as_captured && as_captured > 1.25, "{as_captured}");
    assert!(near(binarize, 1.34), "{binarize}");
    let sparse = with_densities(captured, TRAINED);
    let both = factor(&sparse, "compress:gist-lossless", &[]);
    assert!(near(both, 1.65), "{both}");
    for lossy in [[Codec::ZvcF16, Codec::CastF16], [Codec::ZvcFp8, Codec::CastFp8]] {
        let reduced = factor(&sparse, "compress:gist", &lossy);
        assert!(reduced >= 1.8, "{lossy:?}: {reduced}");
    }
}

/// A100 with the link of the papers' machines.
fn at_12_gigabytes() -> Device {
    let mut device = device();
    let link = device.link.as_mut().unwrap();
    (link.out_bandwidth, link.in_bandwidth) = (12e9, 12e9);
    device
}

/// cDMA is vDNN with less to carry: on VGG-16 it is faster than each of vDNN's policies, and carries less.
#[test]
fn cdma_is_faster_than_vdnn_on_vgg() {
    let device = at_12_gigabytes();
    for (density, name) in [(TRAINED, "trained"), (PUBLISHED, "published")] {
        let graph = graph_of(&with_densities(document("vgg16-train-b256"), density));
        let row = |strategy: &str| {
            let found = planned((&graph, &device), &[strategy], &[], Budget::AboveFloor(0.85)).unwrap();
            let summary = found.summary;
            println!(
                "{name}, {strategy}: {}, {} carried, {:+.1} %",
                summary.peak,
                summary.offloaded,
                100.0 * summary.overhead()
            );
            summary
        };
        let ours = row("compress:cdma");
        assert!(ours.encoded > Bytes::ZERO && ours.lossy.is_empty());
        let all = row("offload:vdnn-all");
        assert!(2.0 * ours.offloaded.0 as f64 <= all.offloaded.0 as f64);
        for other in ["offload:vdnn-all", "offload:vdnn-conv", "offload:vdnn-dyn", "offload:vdnn++"] {
            let other = row(other);
            assert!(ours.time < other.time && ours.peak <= other.peak, "{name}: {}", other.strategy);
        }
    }
}

/// On links that are faster than the codec what moves goes as it is, so cDMA is never slower than vDNN, which moves the same maps.
#[test]
fn cdma_is_never_slower_than_vdnn() {
    let graph = graph_of(&with_densities(document("vgg16-train-b256"), TRAINED));
    let (mut all, mut none) = (0, 0);
    for link in [3e9, 12e9, 25e9, 64e9, 300e9] {
        for codec in [None, Some(400e9), Some(100e9), Some(20e9), Some(5e9), Some(1e9)] {
            let mut device = device();
            let path = device.link.as_mut().unwrap();
            (path.out_bandwidth, path.in_bandwidth, path.duplex_cap) = (link, link, f64::INFINITY);
            device.codecs = codec.map(|rate| (Codec::Zvc, rate, rate)).into_iter().collect();
            let of = |strategy: &str| {
                planned((&graph, &device), &[strategy], &[], Budget::AboveFloor(0.85)).unwrap().summary
            };
            let (ours, plain) = (of("compress:cdma"), of("offload:vdnn-all"));
            println!(
                "{:.0} GB/s, codec {codec:?}: {:+.1} %, {} encoded; vdnn-all {:+.1} %",
                link / 1e9,
                100.0 * ours.overhead(),
                ours.encoded,
                100.0 * plain.overhead()
            );
            assert!(ours.time <= plain.time, "{link} {codec:?}");
            all += usize::from(ours.encoded > Bytes::ZERO);
            none += usize::from(ours.encoded == Bytes::ZERO);
        }
    }
    assert!(all > 5 && none > 5, "{all} {none}");
}

/// Nothing of a transformer is encoded, on a link or elsewhere: with a density of 1 it would take more.
#[test]
fn dense_values_are_never_encoded() {
    let device = at_12_gigabytes();
    let graph = graph_of(&with_densities(document("gpt2-train-b8-s1024"), DENSE));
    let on = (&graph, &device);
    for strategy in COMPRESSES {
        let name = format!("compress:{}", strategy.info().name);
        let refused = planned(on, &[&name], &[], Budget::AboveFloor(0.5)).unwrap_err();
        let told = refused.to_string();
        assert!(told.contains("sparse") || told.contains("allowed"), "{name}: {told}");
    }
    for strategies in [&[][..], &["compress:cdma", "offload:vdnn-all"]] {
        let found = planned(on, strategies, &[], Budget::AboveFloor(0.1)).unwrap();
        assert_eq!(found.summary.encoded, Bytes::ZERO, "{strategies:?}");
        assert!(!found.summary.strategy.contains("compress"), "{}", found.summary.strategy);
    }
}

/// AdamW's state of GPT-2 in eight bits, by name only: a quarter of it is left.
#[test]
fn a_quarter_is_left_of_state_in_eight_bits() {
    let device = device();
    let graph = graph_of(&document("gpt2-train-b8-s1024"));
    let on = (&graph, &device);
    let strategy = &["order:given", "compress:quantised-state"];
    let refused = planned(on, strategy, &[], Budget::OfPeak(0.9)).unwrap_err();
    assert!(refused.to_string().contains("`state8` is not allowed"), "{refused}");
    // Where nobody asks for it, it is not used, whatever is allowed.
    let auto = planned(on, &[], &[Codec::State8], Budget::AboveFloor(0.1)).unwrap();
    assert_eq!(auto.summary.lossy, []);
    let all = planned(on, &["order:given"], &[], Budget::OfPeak(1.0)).unwrap().summary;
    let found = planned(on, strategy, &[Codec::State8], Budget::OfPeak(0.98)).unwrap().summary;
    let state = graph.value_ids().map(|id| graph.value(id));
    let state: Bytes = state
        .filter(|value| value.role == Role::State && value.producer.is_none())
        .map(|value| value.size)
        .sum();
    let saved = all.live_peak.saturating_sub(found.live_peak);
    println!(
        "state {state}, saved {saved} ({:.3}), live peak {} of {}, time {:+.2} %",
        saved.ratio(state),
        found.live_peak,
        all.live_peak,
        100.0 * found.overhead()
    );
    assert_eq!(found.lossy, [Codec::State8]);
    // Four bytes become one and a 512th.
    assert!((saved.ratio(state) - 0.75).abs() < 0.01, "{}", saved.ratio(state));
}

/// Eight maps of 1 MiB that wait for the backward pass. Gradients are a thousand times as sensitive to the first two as to the others,
/// if that is said at all.
fn with_sensitivities(said: bool) -> Graph {
    let mut values = vec![json!({"name": "x", "bytes": 1 << 20, "role": "input"})];
    let mut ops = Vec::new();
    for at in 1..=8 {
        values.push(json!({"name": format!("map{at}"), "bytes": 1 << 20}));
        if said {
            values[at]["sensitivity"] = json!(if at <= 2 { 1000.0 } else { 1.0 });
        }
        ops.push(json!({"kind": "tanh", "flops": 1e6, "reads": [at - 1], "writes": [at]}));
    }
    for at in (1..=8).rev() {
        values.push(json!({"name": format!("gradient{at}"), "bytes": 1 << 20, "role": "gradient"}));
        let before = if at == 8 { vec![at] } else { vec![values.len() - 2, at] };
        let made = values.len() - 1;
        let op = json!({"kind": "tanh_backward", "phase": "backward", "flops": 1e6, "reads": before, "writes": [made]});
        ops.push(op);
    }
    let last = values.len() - 1;
    graph_of(&json!({
        "schema": "memfit-graph/1",
        "name": "maps",
        "replays_random": true,
        "values": values,
        "ops": ops,
        "results": [last],
    }))
}

/// GACT (ICML 2022): within the same bytes, bits by sensitivity have less error than as many for all (Σ C·2^(−2b)).
#[test]
fn bits_go_where_gradients_are_sensitive() {
    let device = device();
    let few = [Codec::Int8, Codec::Int4, Codec::Int2];
    let bits = |codec: Codec| few.iter().position(|&one| one == codec).map(|at| 8 >> at);
    let mut differ = 0;
    for kib in [4000, 4400, 4700, 5000, 5400] {
        let [uniform, sensed] = [false, true].map(|said| {
            let graph = with_sensitivities(said);
            let strategies = ["order:given", "compress:gact"];
            let found = planned((&graph, &device), &strategies, &few, Budget::Bytes(Bytes(kib << 10)));
            let found = found.unwrap_or_else(|failure| panic!("{kib} KiB, {said}: {failure}"));
            let mut maps: Vec<(u32, i32)> = Vec::new();
            for buffer in &found.verified.plan().program.buffers {
                if let Content::Encoded(value, codec) = buffer.content {
                    maps.extend(bits(codec).map(|bits| (value.0, bits)));
                }
            }
            maps
        });
        let error = |maps: &[(u32, i32)]| -> f64 {
            let weight = |value: u32| if value <= 2 { 1000.0 } else { 1.0 };
            maps.iter().map(|&(value, bits)| weight(value) * 2f64.powi(-2 * bits)).sum()
        };
        println!("{kib} KiB: {:.2e} by {uniform:?}, {:.2e} by {sensed:?}", error(&uniform), error(&sensed));
        assert!(error(&sensed) <= error(&uniform), "{kib} KiB");
        assert!(uniform.iter().all(|map| map.1 == uniform[0].1) && !sensed.is_empty(), "{uniform:?}");
        differ += usize::from(error(&sensed) < 0.5 * error(&uniform));
        // Who is less sensitive never has more bits.
        let least = sensed.iter().filter(|map| map.0 <= 2).map(|map| map.1).min().unwrap_or(32);
        let most = sensed.iter().filter(|map| map.0 > 2).map(|map| map.1).max().unwrap_or(0);
        assert!(least >= most, "{sensed:?}");
    }
    assert!(differ >= 2, "{differ}");
}
