//! `memfit plan --max-batch`: the largest batch that fits, from two captures or from an open dimension.
#![allow(clippy::unwrap_used, reason = "a test")]

mod scratch;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use scratch::Scratch;

fn memfit(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).current_dir(root).output().unwrap()
}

const LAYERS: u64 = 8;
/// Bytes of a row of a map, and of all parameters.
const ROW: u64 = 1 << 16;
const PARAMETERS: u64 = 1 << 20;

/// Layers and their gradients, whose maps have `rows` rows, with one parameter that is in memory throughout.
fn layers(rows: u64) -> String {
    let map = |name: String, role: &str| json!({"name": name, "bytes": rows * ROW, "shape": [rows, ROW], "role": role});
    let mut values = vec![map("x".to_owned(), "input")];
    values.extend((0..LAYERS).map(|at| map(format!("map{at}"), "activation")));
    values.push(map("loss".to_owned(), "gradient"));
    values.extend((0..LAYERS).map(|at| map(format!("gradient{at}"), "gradient")));
    values.push(json!({"name": "w", "bytes": PARAMETERS, "shape": [PARAMETERS], "role": "parameter"}));
    let w = values.len() as u64 - 1;
    let op = |name: String, phase: &str, reads: Vec<u64>, write: u64| json!({"name": name, "kind": "op", "phase": phase, "reads": reads, "writes": [write], "time_ns": 100_000 * rows});
    let mut ops: Vec<Value> =
        (0..LAYERS).map(|at| op(format!("layer{at}"), "forward", vec![at, w], at + 1)).collect();
    ops.push(op("loss".to_owned(), "backward", vec![LAYERS], LAYERS + 1));
    ops.extend((0..LAYERS).map(|at| {
        let gradient = LAYERS + 1 + at;
        op(format!("back{at}"), "backward", vec![gradient, LAYERS - at, w], gradient + 1)
    }));
    let results = [w - 1];
    json!({"schema": "memfit-graph/1", "name": "layers", "values": values, "ops": ops, "results": results})
        .to_string()
}

#[test]
fn two_captures_tell_the_largest_batch() {
    let scratch = Scratch::new("two");
    let one = scratch.write("8.json", layers(8));
    let two = scratch.write("24.json", layers(24));
    let found = |args: &[&str]| -> Value {
        let all = ["plan", one.as_str(), "--max-batch", two.as_str(), "--json", "--budget"];
        let output = memfit(&[&all[..], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let number = |told: &Value, key: &str| told[key].as_u64().unwrap();
    let told = found(&["64MiB"]);
    let (without, within) = (number(&told, "base_max_batch"), number(&told, "max_batch"));
    // All maps of the forward pass, and two gradients or so, are live at once: what memory is left is for whole rows.
    let most = (64 * (1 << 20) - PARAMETERS) / ROW / (LAYERS + 1);
    assert!(without <= most && without + 30 > most, "{without} of {most}");
    assert!(within > without, "{told}");
    let tried = told["tried"].as_array().unwrap();
    let last = tried.iter().find(|tried| tried["rows"] == within).unwrap();
    assert!(number(last, "peak_bytes") <= 64 << 20 && last["overhead"].as_f64().unwrap() <= 0.25, "{last}");
    assert!(number(last, "base_live_peak_bytes") > 64 << 20, "{last}");
    // The next one up is known to be too large, or within two hundredths of it.
    let next = tried.iter().find(|tried| number(tried, "rows") > within).unwrap();
    let slow = next["overhead"].as_f64().is_none_or(|overhead| overhead > 0.25);
    assert!(slow && number(next, "rows") - within <= 1 + within / 50, "{next}");
    // The same step planned as a file of its own comes to the same.
    let alone = scratch.write("alone.json", layers(within));
    let output = memfit(&["plan", &alone, "--budget", "64MiB", "--json"]);
    let planned: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&planned["time_ns"], &planned["peak_bytes"]), (&last["time_ns"], &last["peak_bytes"]));
    // Who may wait less gets a smaller batch, who has more memory a larger one.
    let quick = found(&["64MiB", "--max-overhead", "2%"]);
    assert!(number(&quick, "max_batch") < within && number(&quick, "max_batch") >= without, "{quick}");
    let more = found(&["128MiB"]);
    assert!(
        number(&more, "max_batch") > 2 * within - within / 25
            && number(&more, "base_max_batch") >= 2 * without
    );
    // A share is one of the step as given: all of it is enough for that batch.
    assert_eq!(number(&found(&["100%"]), "base_max_batch"), 8);
    // What people read says the same.
    let output = memfit(&["plan", &one, "--max-batch", &two, "--budget", "64MiB"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("largest batch: {without} without a plan, {within} with one")), "{text}");
}

#[test]
fn an_open_dimension_is_a_batch() {
    let model = "corpus/onnx/encoder_dynamo.onnx.zst";
    let args =
        ["plan", model, "--dim", "batch=2", "--dim", "seq=16", "--max-batch", "batch", "--budget", "8MiB"];
    let output = memfit(&[&args[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["rows"], 2);
    let largest = told["max_batch"].as_u64().unwrap();
    assert!(largest > 2, "{told}");
    let dim = format!("batch={largest}");
    let output = memfit(&["plan", model, "--dim", &dim, "--dim", "seq=16", "--budget", "8MiB", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_makes_no_sense_is_told() {
    let scratch = Scratch::new("wrong");
    let one = scratch.write("8.json", layers(8));
    let two = scratch.write("16.json", layers(16));
    let other = "crates/memfit-cli/src/commands/doctor.json";
    for (args, code, said) in [
        (&["plan", one.as_str(), "--max-batch", other][..], 2, "not one step with two batches"),
        (&["plan", &one, "--max-batch", &one], 2, "don't say which batch"),
        (&["plan", &one, "--max-batch", "no-such-file.json"], 3, "can't read `no-such-file.json`"),
        (&["plan", &one, "--max-batch", &two, "--budget", "100KiB"], 1, ""),
        (&["plan", &one, "--max-overhead", "5%"], 2, "--max-batch"),
        (&["plan", &one, "--max-batch", &two, "--max-overhead", "five"], 2, "is not a percentage"),
        (&["plan", &one, "--max-batch", &two, "--simplify"], 2, "--simplify"),
    ] {
        let output = memfit(args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(said), "{args:?}: {told}");
    }
}
