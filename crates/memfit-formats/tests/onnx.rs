//! ONNX models: real ones read with the shapes that onnx infers, damaged ones are refused with the message that
//! stands in `corpus/onnx/damaged/messages.txt`, and no bytes make the reader panic.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::Random;
use memfit_formats::onnx::{OnnxOptions, read};
use memfit_ir::{Bytes, Effect, Graph, Role, ValueId};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/onnx")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    zstd::Decoder::new(file(name).as_slice()).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn dims(dims: &[(&str, u64)]) -> OnnxOptions {
    OnnxOptions { dims: dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect() }
}

fn names(graph: &Graph, values: &[ValueId]) -> Vec<String> {
    values.iter().map(|&value| graph.value(value).name.to_owned()).collect()
}

/// The model called `name`; the transformers for two sequences of 16 tokens.
fn model(name: &str) -> Graph {
    let options =
        if name.starts_with("encoder") { dims(&[("batch", 2), ("seq", 16)]) } else { OnnxOptions::default() };
    read(&file(name), &options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `(ops, values, bytes of persistent values, GFLOPs)`. Bytes are those that a script sums up over the files'
/// weights; AlexNet's 60,965,224 parameters and ResNet-50's 4.1 G multiply-adds are in the literature. Besides its
/// 116,964 parameters, an encoder has a few scalars.
const MODELS: [(&str, usize, usize, u64, f64); 12] = [
    ("light_bvlc_alexnet.onnx.zst", 21, 38, 243_860_896, 1.3),
    ("light_densenet121.onnx.zst", 668, 1517, 32_584_608, 5.7),
    ("light_inception_v1.onnx.zst", 141, 258, 27_994_208, 2.9),
    ("light_inception_v2.onnx.zst", 370, 856, 44_939_168, 4.1),
    ("light_resnet50.onnx.zst", 175, 443, 102_440_608, 8.2),
    ("light_shufflenet.onnx.zst", 170, 419, 5_680_608, 0.3),
    ("light_squeezenet.onnx.zst", 65, 118, 4_941_984, 0.7),
    ("light_vgg19.onnx.zst", 43, 82, 574_668_960, 39.3),
    ("light_zfnet512.onnx.zst", 21, 38, 349_002_144, 3.0),
    ("encoder_dynamo.onnx.zst", 61, 95, 4 * 116_964 + 284, 0.0),
    ("encoder_dynamo_plain.onnx.zst", 68, 105, 4 * 116_964 + 296, 0.0),
    ("encoder_legacy.onnx.zst", 61, 98, 4 * 116_964 + 296, 0.0),
];

#[test]
fn models_have_their_sizes() {
    let mut found = Vec::new();
    for (name, ..) in MODELS {
        let graph = model(name);
        let persistent =
            graph.value_ids().map(|id| graph.value(id)).filter(|value| value.role.is_persistent());
        let bytes = persistent.map(|value| value.size).sum::<Bytes>().0;
        let flops = graph.op_ids().map(|id| graph.op(id).flops).sum::<f64>();
        found.push((name, graph.op_count(), graph.value_count(), bytes, (flops / 1e8).round() / 10.0));
    }
    assert_eq!(found, MODELS);
}

/// Every value has the type and shape that `onnx.shape_inference` gives it. Views and folded constants are no
/// values here, and some values have no known shape there, but most must be in both.
#[test]
fn shapes_are_those_of_onnx() {
    let expected = String::from_utf8(unpacked("shapes.tsv.zst")).unwrap();
    let dtypes = BTreeMap::from([("1", "f32"), ("6", "i32"), ("7", "i64"), ("9", "bool")]);
    for (name, ops, ..) in MODELS {
        let graph = model(name);
        let ours: BTreeMap<&str, ValueId> = graph.value_ids().map(|id| (graph.value(id).name, id)).collect();
        let mut compared = 0;
        for line in expected.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let &[model, value, elem, shape] = columns.as_slice() else { panic!("{line}") };
            let Some(&id) = ours.get(value).filter(|_| model == name) else { continue };
            let value = graph.value(id);
            let text: Vec<String> = value.shape.iter().map(u64::to_string).collect();
            assert_eq!((value.dtype.name(), text.join("x").as_str()), (dtypes[elem], shape), "{line}");
            compared += usize::from(value.producer.is_some());
        }
        assert!(2 * compared > ops, "{name}: {compared} of {ops}");
    }
}

/// Both exporters and both settings describe one model.
#[test]
fn the_exporters_agree() {
    let graphs: Vec<Graph> = MODELS[9..].iter().map(|(name, ..)| model(name)).collect();
    for graph in &graphs {
        let output = graph.value(*graph.results().last().unwrap());
        assert_eq!((output.role, output.shape), (Role::Output, &[2, 16, 100][..]));
        let products =
            graph.op_ids().map(|id| graph.op(id)).filter(|op| ["MatMul", "Gemm"].contains(&op.kind));
        // Per layer: three projections and one, two products of attention, two of the feed-forward part; the head.
        let (tokens, pairs) = (2 * 16, 2 * 16 * 16);
        let layer = tokens * (64 * 192 + 64 * 64 + 2 * 64 * 256) + 2 * pairs * 64;
        let expected = 2 * (2 * layer + tokens * 64 * 100);
        assert_eq!(products.map(|op| op.flops).sum::<f64>(), f64::from(expected));
    }
    let modules: Vec<&str> = graphs[0].op_ids().map(|id| graphs[0].op(id).module).collect();
    assert!(modules.contains(&"encoder.layers.1.self_attn"), "{modules:?}");
}

#[test]
fn symbolic_dimensions_take_their_bounds() {
    let name = "encoder_dynamo.onnx.zst";
    let wide = read(&file(name), &dims(&[("batch", 8), ("seq", 32)])).unwrap();
    assert_eq!(wide.value(*wide.results().last().unwrap()).shape, [8, 32, 100]);
    let error = read(&file(name), &dims(&[("batch", 8)])).unwrap_err();
    assert_eq!(error.to_string(), "the dimension `seq` of the inputs has no number");
    assert_eq!(error.hint.unwrap(), "choose them: `--dim seq=8`");
    let error = read(&file(name), &dims(&[])).unwrap_err();
    assert_eq!(error.to_string(), "the dimensions `batch`, `seq` of the inputs have no number");
    assert_eq!(error.hint.unwrap(), "choose them: `--dim batch=8 --dim seq=8`");
    let error = read(&file(name), &dims(&[("batch", 8), ("sequence", 8)])).unwrap_err();
    assert_eq!(error.to_string(), "no dimension of this model is called `sequence`");
    assert_eq!(error.hint.unwrap(), "its inputs have `batch`, `seq`");
    let error = read(&file(name), &dims(&[("batch", u64::MAX), ("seq", 1)])).unwrap_err();
    assert_eq!(error.to_string(), "input `ids`: dimension `18446744073709551615` of `ids` overflows 63 bits");
    let unnamed = read(&file("damaged/unnamed_dimension.onnx"), &dims(&[("x[1]", 5)])).unwrap();
    assert_eq!(unnamed.value(ValueId(0)).shape, [2, 5]);
    // As Paddle writes open dimensions: `-1`, and a name that is none.
    let paddle = read(&file("damaged/open_as_paddle.onnx"), &dims(&[("x[0]", 3), ("x[1]", 5)])).unwrap();
    assert_eq!(paddle.value(ValueId(0)).shape, [3, 5]);
}

#[test]
fn functions_are_inlined_and_views_are_no_values() {
    let graph = read(&file("functions.onnx"), &dims(&[("batch", 4)])).unwrap();
    let ops: Vec<_> = graph.op_ids().map(|id| (graph.op(id).name, graph.op(id).kind)).collect();
    assert_eq!(ops, [("first/product", "Gemm"), ("first/again/sum", "Add"), ("second/sum", "Add")]);
    // `same` is `y` under another name.
    assert_eq!(names(&graph, graph.results()), ["w", "y"]);
    assert_eq!(graph.op(graph.op_ids().next().unwrap()).flops, 2.0 * 4.0 * 8.0 * 16.0);
}

#[test]
fn random_ops_are_seeded_and_element_wise_ones_work_in_place() {
    let graph = model("random.onnx");
    let mut seen = String::new();
    for op in graph.op_ids().map(|id| graph.op(id)) {
        let reuses = op.reuses.iter().map(|pair| graph.value(pair.input).name).collect::<Vec<_>>();
        let (reads, writes) = (names(&graph, op.reads), names(&graph, op.writes));
        let seeded = op.effect == Effect::Seeded;
        writeln!(seen, "{} {reads:?} {writes:?} over {reuses:?} seeded {seeded}", op.name).unwrap();
        assert!(op.reuses.iter().all(|pair| !pair.must));
    }
    insta::assert_snapshot!(seen, @r#"
    noise [] ["n"] over [] seeded true
    noisy ["x", "n"] ["h"] over ["x", "n"] seeded false
    dropout ["h"] ["d", "mask"] over ["h"] seeded true
    turn ["d"] ["t"] over [] seeded false
    scale ["t", "t"] ["y"] over ["t"] seeded false
    "#);
}

#[test]
fn every_damaged_model_is_refused_as_expected() {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder().join("damaged")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut messages = String::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "onnx")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let error = read(&std::fs::read(path).unwrap(), &OnnxOptions::default()).expect_err(name);
        writeln!(messages, "{name}\n  error: {error}").unwrap();
        if let Some(hint) = error.hint {
            writeln!(messages, "  hint: {hint}").unwrap();
        }
    }
    let path = folder().join("damaged/messages.txt");
    if std::env::var_os("MEMFIT_UPDATE_CORPUS").is_some() {
        std::fs::write(&path, &messages).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(paths.len() > 30, "{}", paths.len());
    assert!(messages == expected, "`MEMFIT_UPDATE_CORPUS=1` accepts these:\n{messages}");
}

#[test]
fn other_files_are_no_models() {
    for bytes in
        [&b""[..], b"{\"memfit\": 1}", b"\x89PNG\r\n\x1a\n", b"\x28\xb5\x2f\xfd....", &[0; 64], &[0xff; 64]]
    {
        let error = read(bytes, &OnnxOptions::default()).unwrap_err().to_string();
        assert!(error.contains("not an ONNX model") || error.contains("damaged"), "{error}");
    }
}

#[test]
fn no_flip_cut_or_splice_makes_it_panic() {
    let options = dims(&[("batch", 4)]);
    common::survives_every_flip_and_cut(&file("functions.onnx"), |bytes| {
        // A flip may rename the dimension.
        read(bytes, &options).or_else(|_| read(bytes, &OnnxOptions::default()))
    });
    common::survives_every_flip_and_cut(&file("random.onnx"), |bytes| read(bytes, &OnnxOptions::default()));
    let options = dims(&[("batch", 2), ("seq", 16)]);
    common::survives_random_damage(&unpacked("encoder_legacy.onnx.zst"), 1, |bytes| read(bytes, &options));
    common::survives_random_damage(&unpacked("light_shufflenet.onnx.zst"), 2, |bytes| {
        read(bytes, &OnnxOptions::default())
    });
}

/// Numbers in the wire format changed to what breaks shape arithmetic, at places where numbers stand.
#[test]
fn no_number_makes_it_panic() {
    let good = unpacked("encoder_dynamo_plain.onnx.zst");
    let options = dims(&[("batch", 2), ("seq", 16)]);
    let mut random = Random(3);
    let started = Instant::now();
    let mut read_again = 0;
    while started.elapsed().as_secs() < 2 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() - 8);
            let number = [i64::MAX, i64::MIN, -1, 0, 1, 1 << 40, 65, 4][random.below(8)];
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        read_again += usize::from(read(&bytes, &options).is_ok());
    }
    assert!(read_again > 0);
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(4);
    for round in 0..20_000 {
        // Starts like a model's graph now and then.
        let mut bytes: Vec<u8> =
            (0..random.below(200)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        if round % 2 == 0 {
            let inner = u8::try_from(bytes.len().min(127)).unwrap();
            bytes.truncate(127);
            bytes.splice(0..0, [0x3a, inner]);
        }
        drop(read(&bytes, &OnnxOptions::default()));
    }
}

/// What ops are told decides what they compute: equal texts, kinds and operands have equal outputs; permutations and views are in it.
#[test]
fn ops_say_what_they_are_told() {
    let (mut told, mut turned, mut digests) = (0, 0, 0);
    for (name, ..) in MODELS {
        let graph = model(name);
        let mut seen: BTreeMap<(&str, &str, Vec<ValueId>), Vec<Bytes>> = BTreeMap::new();
        for id in graph.op_ids() {
            let op = graph.op(id);
            let Some(text) = op.attributes else { continue };
            told += 1;
            turned += usize::from(op.kind == "Transpose" && text.contains(";perm="));
            digests += usize::from(text.starts_with("blake3:"));
            assert!(
                text.starts_with("blake3:") || (text.contains(";out0=") && text.contains(";opset=")),
                "{text}"
            );
            assert!(text.len() <= 400, "{text}");
            assert!(op.kind != "Transpose" || text.contains(";perm="), "{name}: {text}");
            let sizes: Vec<Bytes> = op.writes.iter().map(|&value| graph.value(value).size).collect();
            let same = seen.entry((op.kind, text, op.reads.to_vec())).or_insert_with(|| sizes.clone());
            assert_eq!(*same, sizes, "{name}: {text}");
        }
    }
    assert!(told > 1500 && turned > 10 && digests < told / 10, "{told} {turned} {digests}");
}
