//! `--evictor`, `--sample`, `--ignore-below` and `--exponents`: who chooses online what goes, and among whom.
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

/// Each of `sizes` is made of one source, the first first; then something as large as the last, and the last is read again.
fn fan(sizes: &[u64]) -> String {
    let value = |name: String, bytes: u64, role: &str| json!({"name": name, "bytes": bytes, "shape": [bytes], "role": role});
    let mut values = vec![value("x".to_owned(), 64, "input")];
    values.extend(sizes.iter().enumerate().map(|(at, &size)| value(format!("v{at}"), size, "activation")));
    let (last, count) = (sizes[sizes.len() - 1], sizes.len());
    values.push(value("more".to_owned(), last, "activation"));
    values.push(value("sum".to_owned(), 8, "gradient"));
    let op = |name: String, reads: Vec<usize>, write: usize| json!({"name": name, "kind": "op", "phase": "forward", "reads": reads, "writes": [write], "time_ns": 1000});
    let mut ops: Vec<Value> = (0..count).map(|at| op(format!("make{at}"), vec![0], at + 1)).collect();
    ops.push(op("more".to_owned(), vec![0], count + 1));
    // All are wanted to the end.
    for at in 0..count {
        let name = format!("use{at}");
        values.push(value(name.clone(), 8, "gradient"));
        ops.push(op(name, vec![at + 1], count + 3 + at));
    }
    ops.push(op("sum".to_owned(), vec![count + 1], count + 2));
    json!({"schema": "memfit-graph/1", "name": "fan", "values": values, "ops": ops, "results": [count + 2]})
        .to_string()
}

fn replay(graph: &str, budget: u64, more: &[&str]) -> Value {
    let budget = format!("{budget}B");
    let common = ["replay", graph, "--json", "--allocator", "ideal", "--budget", &budget];
    let output = memfit(&[&common[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key} in {of}"))
}

#[test]
fn sampling_looks_at_about_the_square_root_of_the_candidates() {
    let scratch = Scratch::new("sample");
    let graph = scratch.write("equal.json", fan(&[1024; 400]));
    let evaluations = |more: &[&str]| {
        let all = replay(&graph, 400 * 1024 + 512, &[&["--evictor", "lru"], more].concat());
        assert!(number(&all, "evictions") > 0, "{all}");
        number(&all, "evaluations") as f64 / number(&all, "evictions") as f64
    };
    let (all, sampled) = (evaluations(&["--sample", "all"]), evaluations(&["--sample", "sqrt"]));
    assert!(all > 100.0, "{all}");
    assert!(sampled > 2.0 && sampled < 45.0, "{sampled} of {all}");
    for count in ["1", "7", "20"] {
        let counted = evaluations(&["--sample", count]);
        assert!(counted > 0.0 && counted <= count.parse().unwrap(), "{counted} with {count}");
    }
    assert_eq!(evaluations(&["--sample", "100000"]), all);
}

#[test]
fn what_is_small_is_no_victim_while_others_are() {
    let scratch = Scratch::new("small");
    // The small ones are the oldest, so they would go first.
    let sizes = [&[8u64; 40][..], &[65_536; 8]].concat();
    let graph = scratch.write("mixed.json", fan(&sizes));
    let budget = sizes.iter().sum::<u64>() + 1024;
    let evictions =
        |more: &[&str]| number(&replay(&graph, budget, &[&["--evictor", "lru"], more].concat()), "evictions");
    let plain = evictions(&[]);
    assert!(plain > 40, "{plain}");
    for small in ["1%", "1KiB"] {
        let sieved = evictions(&["--ignore-below", small]);
        assert!(sieved < 20, "{small}: {sieved} of {plain}");
    }
    assert_eq!(evictions(&["--ignore-below", "0%"]), plain);
}

#[test]
fn exponents_are_those_of_megengine() {
    let scratch = Scratch::new("exponents");
    // By bytes the large one goes, by staleness the old ones.
    let sizes = [&[4096u64; 16][..], &[32_768, 4096]].concat();
    let graph = scratch.write("sizes.json", fan(&sizes));
    let budget = sizes.iter().sum::<u64>() + 512;
    let run = |exponents: &str| {
        replay(&graph, budget, &["--evictor", "megengine", "--exponents", exponents])["recompute_ns"].clone()
    };
    assert_eq!(run("1,1,1"), replay(&graph, budget, &["--evictor", "megengine"])["recompute_ns"]);
    assert_ne!(run("0,9,0"), run("0,0,9"));
}

#[test]
fn wrong_ones_are_refused() {
    let graph = "crates/memfit-cli/src/commands/doctor.json";
    for wrong in [
        ["--sample", "half"],
        ["--sample", "0"],
        ["--sample", "-1"],
        ["--sample", "1.5"],
        ["--sample", "99999999999999999999999"],
        ["--ignore-below", "101%"],
        ["--ignore-below", "-1%"],
        ["--ignore-below", "NaN%"],
        ["--ignore-below", "much"],
        ["--exponents", "1,1"],
        ["--exponents", "1,1,1,1"],
        ["--exponents", "a,b,c"],
        ["--evictor", "magic"],
    ] {
        let output = memfit(&["replay", graph, wrong[0], wrong[1]]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
}
