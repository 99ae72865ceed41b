//! What reads files of strangers, each with good files to begin with.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fmt, fs};

use memfit::checkpoint::{self, Reader as CheckpointReader, Safetensors, digest};
use memfit::formats::onnx::OnnxOptions;
use memfit::formats::tflite::{self, TfliteOptions};
use memfit::formats::{
    checkmate_json, compress, csv, device_toml, g10_json, graph_json, is_packed, onnx, plan_json, simrd,
    snapshot, tensors, unpack, xla,
};
use memfit::{Budget, Bytes, Goal, Graph, Tools, check, explain_snapshot, input};
use memfit_codec::bounded::{self, Predictor};
use memfit_codec::by_name;
use memfit_codec::delta::{self, Number};
use memfit_codec::shuffle;
use memfit_codec::split::{self, Float};
use memfit_ir::text;
use memfit_verify::verify;

use crate::hammer;
use crate::mutate::MOST;

/// Something that reads bytes.
pub struct Reader {
    /// What it is called by.
    pub name: &'static str,
    /// Good files, and those of the corpus that once were not.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Whether the bytes were taken.
    pub read: fn(&[u8]) -> bool,
    /// Whether the memory it takes is in proportion to its input; what unpacks has a limit of its own.
    pub is_linear: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The decoder of a codec.
macro_rules! codec {
    ($name:literal) => {
        Reader {
            name: $name,
            seeds: || encoded($name),
            read: |bytes| decoded($name, bytes),
            // What comes out is as large as the caller says.
            is_linear: true,
        }
    };
}

/// Every reader.
pub const READERS: [Reader; 39] = [
    Reader { name: "graph", seeds: graphs, read: |bytes| graph_json::read(bytes).is_ok(), is_linear: true },
    Reader { name: "plan", seeds: plans, read: plan, is_linear: true },
    Reader { name: "text", seeds: texts, read: text, is_linear: true },
    Reader { name: "onnx", seeds: models, read: model, is_linear: true },
    Reader { name: "tflite", seeds: lite_models, read: lite_model, is_linear: true },
    Reader { name: "snapshot", seeds: snapshots, read: pickle, is_linear: true },
    Reader { name: "csv", seeds: lists, read: |bytes| csv::read(bytes).is_ok(), is_linear: true },
    Reader { name: "device", seeds: devices, read: device, is_linear: true },
    Reader { name: "log", seeds: logs, read: |bytes| simrd::read(bytes).is_ok(), is_linear: true },
    Reader {
        name: "checkmate",
        seeds: strangers,
        read: |b| checkmate_json::read(b).is_ok(),
        is_linear: true,
    },
    Reader { name: "g10", seeds: strangers, read: |bytes| g10_json::read(bytes).is_ok(), is_linear: true },
    Reader { name: "zstd", seeds: packed, read: |bytes| unpack(bytes).is_ok(), is_linear: false },
    Reader { name: "xla", seeds: dumps, read: |bytes| xla::read(bytes, None).is_ok(), is_linear: true },
    Reader { name: "strategies", seeds: graphs, read: strategies, is_linear: false },
    Reader { name: "size", seeds: sizes, read: size, is_linear: true },
    Reader { name: "tensors", seeds: arrays, read: |bytes| tensors::read(bytes).is_ok(), is_linear: true },
    codec!("zvc"),
    codec!("csr"),
    codec!("zvc+bf16"),
    codec!("zvc+f16"),
    codec!("zvc+fp8"),
    codec!("binarize"),
    codec!("cast-bf16"),
    codec!("cast-f16"),
    codec!("cast-fp8"),
    codec!("int8"),
    codec!("int4"),
    codec!("int2"),
    codec!("int8+mask"),
    codec!("int4+mask"),
    codec!("int2+mask"),
    codec!("state8"),
    codec!("state8-unsigned"),
    Reader { name: "bounded", seeds: bounded_ones, read: bounded_one, is_linear: false },
    Reader { name: "shuffle", seeds: shuffled, read: shuffled_one, is_linear: false },
    Reader { name: "split", seeds: split_ones, read: split_one, is_linear: false },
    Reader { name: "delta", seeds: deltas, read: delta_one, is_linear: true },
    Reader { name: "safetensors", seeds: tensors, read: safetensors_one, is_linear: true },
    Reader { name: "checkpoint", seeds: checkpoints, read: checkpoint_one, is_linear: false },
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

/// Files of `folder` of the corpus that end with `ending`, unpacked, none longer than an input may be.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(corpus().join(folder)) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let named = paths.iter().filter(|path| path.to_string_lossy().contains(ending));
    let read = named.filter_map(|path| {
        let bytes = fs::read(path).ok()?;
        let unpacked = unpack(&bytes).map(|unpacked| unpacked.into_owned());
        Some(unpacked.unwrap_or(bytes)).filter(|bytes| bytes.len() <= MOST)
    });
    read.collect()
}

fn graphs() -> Vec<Vec<u8>> {
    let made = (0..40).map(|seed| graph_json::write(&memfit_testkit::graph(seed)));
    made.chain(files("malformed/graph", ".json")).collect()
}

/// Ops and bytes of values of the largest graph that runs on real bytes.
const COMPUTED: (usize, u64) = (24, 1 << 20);

/// A graph that is planned by a few strategies of each family. What they make, and mutants of it, must be verified or not as
/// real bytes say.
fn strategies(bytes: &[u8]) -> bool {
    let Ok(graph) = graph_json::read(bytes) else { return false };
    let values = graph.value_ids().try_fold(0u64, |sum, value| sum.checked_add(graph.value(value).size.0));
    if graph.op_ids().len() > COMPUTED.0 || values.is_none_or(|bytes| bytes > COMPUTED.1) {
        return false;
    }
    let report = hammer::on_graph(&Arc::new(graph), sum(bytes));
    assert!(report.verdict().is_ok(), "{report}");
    true
}

/// FNV-1a.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What XLA wrote of a module, both dumps in one file.
fn dumps() -> Vec<Vec<u8>> {
    let read = |name| fs::read(corpus().join("../examples/place").join(name)).unwrap_or_default();
    let (dump, ranges) = (read("xla-buffer-assignment.txt"), read("xla-live-range.txt"));
    vec![[dump.as_slice(), b"\n", &ranges].concat()]
}

/// The graph of the plans.
static PLANNED: LazyLock<Graph> = LazyLock::new(|| memfit_testkit::graph(1));

/// Good ones at several budgets, then what the corpus keeps.
fn plans() -> Vec<Vec<u8>> {
    let budgets = [Budget::Device, Budget::AboveFloor(1.0), Budget::AboveFloor(0.6)];
    let made = budgets.into_iter().filter_map(|budget| {
        let goal = Goal::new(input::device("P100").ok()?, budget);
        let planned = memfit::plan(&PLANNED, &goal, &Tools::none()).ok()?;
        Some(plan_json::write(&planned.file(&PLANNED, &goal)))
    });
    made.chain(files("malformed/plan", ".json")).collect()
}

/// Also before the judge. Compressed ones are the reader of `zstd`'s.
fn plan(bytes: &[u8]) -> bool {
    !is_packed(bytes) && check(bytes, &PLANNED, None, &[]).is_ok()
}

fn texts() -> Vec<Vec<u8>> {
    [files("accepted", ".mf"), files("rejected", ".mf")].concat()
}

/// Also before the judge.
fn text(bytes: &[u8]) -> bool {
    let Ok(document) = text::parse(bytes) else { return false };
    let (Some(graph), Some(limits), Some(plan)) = (document.graph, document.limits, document.plan) else {
        return true;
    };
    verify(&graph, &limits, plan).is_ok()
}

fn models() -> Vec<Vec<u8>> {
    [files("onnx", ".onnx"), files("onnx/damaged", ".onnx")].concat()
}

fn model(bytes: &[u8]) -> bool {
    let dims = ["batch", "seq", "x[0]", "x[1]"].map(|name| (name.to_owned(), 4));
    onnx::read(bytes, &OnnxOptions::default()).is_ok()
        || onnx::read(bytes, &OnnxOptions { dims: dims.into() }).is_ok()
}

fn lite_models() -> Vec<Vec<u8>> {
    [files("tflite", ".tflite"), files("tflite/damaged", ".tflite")].concat()
}

/// Also as a list of buffers, and with offsets put into it and read back.
fn lite_model(bytes: &[u8]) -> bool {
    let options = TfliteOptions { dims: [("x[0]".to_owned(), 1)].into() };
    let read = |options| tflite::read(bytes, options).map(|model| model.tensors.len());
    let Ok(count) = read(&TfliteOptions::default()).or_else(|_| read(&options)) else { return false };
    let _ = tflite::buffers(bytes, &options);
    tflite::with_offsets(bytes, &vec![0; count]).is_ok_and(|written| tflite::offsets_in(&written).is_ok())
}

fn snapshots() -> Vec<Vec<u8>> {
    let made = files("snapshots", ".pickle").into_iter();
    made.chain(files("malformed/snapshot", ".pickle")).collect()
}

fn pickle(bytes: &[u8]) -> bool {
    snapshot::read(bytes).is_ok() && explain_snapshot(bytes, None, 10, &Tools::none()).is_ok()
}

fn lists() -> Vec<Vec<u8>> {
    let good = "id,lower,upper,size,alignment,offset\n0,0,3,1024,64,0\n1,1,4,2048,1,1024\nx,2,5,0,8,0\n";
    let mut lists = files("malformed/csv", ".csv");
    lists.push(good.into());
    lists
}

fn devices() -> Vec<Vec<u8>> {
    let presets = include_str!("../../crates/memfit-formats/data/devices.toml");
    let good = presets.split("[[device]]").skip(1).map(|device| device.as_bytes().to_vec());
    good.chain(files("malformed/device", ".toml")).collect()
}

fn device(bytes: &[u8]) -> bool {
    device_toml::read(&String::from_utf8_lossy(bytes)).is_ok()
}

fn logs() -> Vec<Vec<u8>> {
    files("recorded", ".log")
}

/// As Checkmate and G10 write graphs.
fn strangers() -> Vec<Vec<u8>> {
    files("recorded", ".json")
}

fn packed() -> Vec<Vec<u8>> {
    graphs().iter().take(20).map(|graph| compress(graph)).collect()
}

fn sizes() -> Vec<Vec<u8>> {
    ["8GiB", "60%", "floor+60%", "12 kB", "1.5TiB", "0", "5m", "18446744073709551615", "1e9GiB", " 7 B "]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

fn size(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.parse::<Budget>().is_ok() | text.parse::<Bytes>().is_ok()
}

/// What a codec made of some words, after a byte that says of how many.
fn encoded(name: &str) -> Vec<Vec<u8>> {
    let Some(coder) = by_name(name) else { return Vec::new() };
    // Some zeros, some that aren't, now and then a NaN or an infinity.
    let word = |at: u32| match at % 400 {
        7 => f32::NAN,
        8 => f32::INFINITY,
        _ if at.is_multiple_of(3) => (at as f32 - 500.0) / 16.0,
        _ => 0.0,
    };
    let made = [0, 1, 3, 64, 255].into_iter().filter_map(|tens: u8| {
        let data: Vec<u8> = (0..u32::from(tens) * 10).flat_map(|at| word(at).to_ne_bytes()).collect();
        Some([vec![tens], coder.encode(&data, usize::MAX, 1)?].concat())
    });
    made.collect()
}

/// The first byte says how much there should be.
fn decoded(name: &str, bytes: &[u8]) -> bool {
    let Some((tens, packed)) = bytes.split_first() else { return false };
    by_name(name).is_some_and(|coder| coder.decode(packed, usize::from(*tens) * 40).is_ok())
}

/// As NumPy and safetensors write them.
fn arrays() -> Vec<Vec<u8>> {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    let npy = [&b"\x93NUMPY\x01\0"[..], &[header.len().to_le_bytes()[0], 0], header.as_bytes(), &[1; 24]];
    let names = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"i":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}"#;
    let length = (names.len() as u64).to_le_bytes();
    vec![npy.concat(), [&length[..], names.as_bytes(), &[1; 32]].concat()]
}

/// Numbers of `f32`, most of them alike.
fn numbers() -> Vec<u8> {
    (0..600u16).flat_map(|at| (f32::from(at % 37) * 0.01 + f32::from(at)).to_le_bytes()).collect()
}

/// What the first byte asks for, and the bytes after it.
fn sized(bytes: &[u8]) -> (usize, &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return (0, bytes) };
    (usize::from(first) * 100, rest)
}

/// `packed` behind a byte that asks for 2400 bytes, which is what [`numbers`] has.
fn asked(packed: Vec<u8>) -> Vec<u8> {
    [vec![24], packed].concat()
}

fn bounded_ones() -> Vec<Vec<u8>> {
    let encode = |predictor| bounded::encode(&numbers(), 1e-3, predictor).unwrap_or_default();
    [Predictor::None, Predictor::Lorenzo].map(encode).map(asked).into()
}

fn bounded_one(bytes: &[u8]) -> bool {
    let (size, bytes) = sized(bytes);
    bounded::decode(bytes, size).is_ok_and(|data| data.len() == size)
}

fn shuffled() -> Vec<Vec<u8>> {
    vec![asked(shuffle::encode(&numbers(), 4)), asked(shuffle::encode(&[0; 2400], 4))]
}

fn shuffled_one(bytes: &[u8]) -> bool {
    let (size, bytes) = sized(bytes);
    shuffle::decode(bytes, size, 4).is_ok_and(|data| data.len() == size)
}

fn split_ones() -> Vec<Vec<u8>> {
    [Float::F32, Float::Bf16].map(|float| asked(split::encode(&numbers(), float).unwrap_or_default())).into()
}

fn split_one(bytes: &[u8]) -> bool {
    let (size, bytes) = sized(bytes);
    [Float::F32, Float::Bf16].into_iter().any(|float| split::decode(bytes, size, float).is_ok())
}

fn deltas() -> Vec<Vec<u8>> {
    vec![numbers(), numbers()[..99].to_vec()]
}

/// Any bytes are a difference to as many.
fn delta_one(bytes: &[u8]) -> bool {
    let base = vec![0x3f; bytes.len() / 4 * 4];
    Number::ALL.into_iter().all(|number| delta::decode(bytes, &base, number).is_ok())
}

fn tensors() -> Vec<Vec<u8>> {
    files("checkpoints", ".safetensors")
}

fn safetensors_one(bytes: &[u8]) -> bool {
    Safetensors::open(Cursor::new(bytes)).is_ok_and(|mut file| digest(&mut file).is_ok())
}

fn checkpoints() -> Vec<Vec<u8>> {
    files("checkpoints", ".mfc")
}

/// Behind digests that are right, so that it's read to the end.
fn checkpoint_one(bytes: &[u8]) -> bool {
    static BASE: LazyLock<Vec<u8>> =
        LazyLock::new(|| fs::read(corpus().join("checkpoints/base.safetensors")).unwrap_or_default());
    let mut bytes = bytes.to_vec();
    // Without a list it is refused as it is.
    let _ = seal(&mut bytes);
    let Ok(base) = Safetensors::open(Cursor::new(&BASE[..])) else { return false };
    let Ok(mut reader) = CheckpointReader::open(Cursor::new(&bytes), Some(Box::new(base))) else {
        return false;
    };
    checkpoint::unpack(&mut reader, &mut std::io::sink(), &mut |_| ()).is_ok()
}

/// Puts the digest of the list right, where there is a list.
fn seal(bytes: &mut [u8]) -> Option<()> {
    let end = bytes.len().checked_sub(48)?;
    let (length, _) = bytes.get(end + 32..)?.split_first_chunk::<8>()?;
    let start = end.checked_sub(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let head = bytes.get(..16)?;
    let digest = checkpoint::Sum::of(&[head, &bytes[start..end]].concat());
    bytes[end..end + 32].copy_from_slice(&digest.0);
    Some(())
}

#[cfg(test)]
mod tests {
    use memfit_codec::CODERS;

    use super::*;

    #[test]
    fn every_codec_has_a_reader() {
        for coder in CODERS {
            assert!(READERS.iter().any(|reader| reader.name == coder.name()), "{}", coder.name());
        }
    }
}
