//! What commands say of values that move: bytes, links, stalls, and whether it helps.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use std::process::{Command, Output};

use serde_json::{Value, json};

use scratch::Scratch;

fn memfit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{}{error}", String::from_utf8_lossy(&output.stdout))
}

fn object(args: &[&str]) -> Value {
    let output = memfit(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Eight layers and their gradients: maps of 1 MiB, ops of 1 ms.
fn layers() -> String {
    let layers = 8;
    let value = |name: String, role: &str| json!({"name": name, "bytes": 1 << 20, "role": role});
    let op = |name: String, phase: &str, reads: &[usize], write: usize| json!({"name": name, "kind": "op", "phase": phase, "reads": reads, "writes": [write], "time_ns": 1_000_000});
    let mut values = vec![value("x".into(), "input")];
    let mut ops = Vec::new();
    for at in 0..layers {
        values.push(value(format!("map{at}"), "activation"));
        ops.push(op(format!("layer{at}"), "forward", &[at], at + 1));
    }
    values.push(value("loss".into(), "gradient"));
    ops.push(op("loss".into(), "backward", &[layers], layers + 1));
    for at in 0..layers {
        let gradient = layers + 1 + at;
        values.push(value(format!("gradient{at}"), "gradient"));
        ops.push(op(format!("back{at}"), "backward", &[gradient, layers - at], gradient + 1));
    }
    let results = [values.len() - 1];
    json!({"schema": "memfit-graph/1", "name": "layers", "values": values, "ops": ops, "results": results})
        .to_string()
}

const DISK: &str = r#"name = "with a disk"
memory = "1GiB"
align = 512
flops = { f32 = "1TFLOP/s" }
bandwidth = "100GB/s"
launch = "1us"
link = { out = "1GB/s", in = "2GB/s", latency = "1us" }
host_memory = "1GiB"
disk = { capacity = "1GiB", link = { out = "500MB/s", in = "1GB/s", latency = "10us" } }
"#;

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("`{key}` of {object:#}"))
}

#[test]
fn each_link_is_told_with_its_share_of_the_step() {
    let scratch = Scratch::new("links");
    let (graph, device) = (scratch.write("layers.json", layers()), scratch.write("device.toml", DISK));
    let args = ["plan", &graph, "--device", &device, "--budget", "floor+20%", "--no-recompute"];
    for (more, used, idle) in [
        (&["--host-budget", "1GiB", "--strategy", "offload:g10", "--disk-budget", "0"][..], 0, 1),
        (&["--strategy", "offload:flashneuron"], 1, 0),
    ] {
        let args = [&args[..], more].concat();
        let told = object(&args);
        let links = told["links"].as_array().unwrap();
        assert_eq!((&links[0]["tier"], &links[1]["tier"]), (&json!("host"), &json!("disk")));
        for (all, one) in [("link_out_ns", "out_ns"), ("link_in_ns", "in_ns")] {
            assert_eq!(number(&told, all), number(&links[0], one) + number(&links[1], one));
            assert!(number(&links[used], one) > 0 && number(&links[idle], one) == 0, "{told:#}");
        }
        let share = links[used]["out_busy"].as_f64().unwrap();
        assert_eq!(share, number(&links[used], "out_ns") as f64 / number(&told, "time_ns") as f64);
        assert!(share > 0.0 && share <= 1.0, "{told:#}");
        let peaks = [number(&told, "host_peak_bytes"), number(&told, "disk_peak_bytes")];
        assert!(peaks[used] > 0 && peaks[idle] == 0, "{told:#}");
        let shown = text(&memfit(&args));
        assert!(shown.contains(" moved") && shown.contains("its link busy"), "{shown}");
        assert!(shown.contains(["in host memory", "on disk"][used]), "{shown}");
        assert!(!shown.contains(["in host memory", "on disk"][idle]), "{shown}");
    }
}

/// At the floor an op holds the peak that nothing can be moved away from; where a map waits beside it, none does.
#[test]
fn who_can_not_be_helped_by_moving_is_told_so() {
    let scratch = Scratch::new("held");
    let graph = scratch.write("layers.json", layers());
    let args =
        |budget: &'static str| ["plan", &graph, "--host-budget", "1GiB", "--no-recompute", "-b", budget];
    let sentence = "moving more does not lower the peak: `";
    let floor = object(&args("floor+0%"));
    let by = floor["held_by"].as_str().unwrap();
    assert_eq!(floor["live_peak_bytes"], floor["lower_bound_bytes"]);
    assert!(text(&memfit(&args("floor+0%"))).contains(&format!("{sentence}{by}` holds it")));
    let loose = object(&args("floor+60%"));
    assert!(number(&loose, "live_peak_bytes") > number(&loose, "lower_bound_bytes"));
    assert_eq!(loose["held_by"], Value::Null);
    assert!(!text(&memfit(&args("floor+60%"))).contains(sentence));
    // Below the floor: in the hint, for those who have offered other memory.
    let below = memfit(&args("1MiB"));
    assert_eq!(below.status.code(), Some(1));
    assert!(text(&below).contains(sentence), "{}", text(&below));
    let without = memfit(&["plan", &graph, "--budget", "1MiB"]);
    assert!(without.status.code() == Some(1) && !text(&without).contains(sentence), "{}", text(&without));
    // As given, the whole forward pass is there at the peak; a step of one op has nothing else.
    assert_eq!(object(&["explain", &graph])["held_by"], Value::Null);
    let one = json!({"schema": "memfit-graph/1", "name": "one op", "results": [1],
        "values": [{"name": "x", "bytes": 1 << 20, "role": "input"}, {"name": "y", "bytes": 1 << 20, "role": "output"}],
        "ops": [{"name": "only", "kind": "op", "reads": [0], "writes": [1], "time_ns": 1000}]});
    let one = scratch.write("one.json", one.to_string());
    assert_eq!(object(&["explain", &one])["held_by"], "only");
    assert!(
        text(&memfit(&["explain", &one])).contains("moving more does not lower the peak: `only` holds it")
    );
}

#[test]
fn tables_have_what_is_moved_and_sweep_has_a_curve_for_each_amount_of_host_memory() {
    let scratch = Scratch::new("tables");
    let graph = scratch.write("layers.json", layers());
    let keys = ["offload_bytes", "host_peak_bytes", "disk_peak_bytes", "stall_ns", "links", "held_by"];
    let compare = ["compare", &graph, "--budget", "floor+30%", "--host-budget", "1GiB"];
    let rows = object(&compare)["rows"].as_array().unwrap().clone();
    let moving = rows.iter().find(|row| row["name"] == "offload:best").unwrap();
    assert!(number(moving, "offload_bytes") > 0);
    assert!(
        rows.iter()
            .filter(|row| row["status"] == "fits")
            .all(|row| keys.iter().all(|key| row.get(key).is_some()))
    );
    let shown = text(&memfit(&compare));
    assert!(shown.lines().any(|line| line.contains("moved") && line.contains("host link")), "{shown}");
    let svg = scratch.0.join("curves.svg");
    let sweep = ["sweep", &graph, "--points", "2", "--no-recompute", "--svg", svg.to_str().unwrap()];
    let amounts = [0, 2 << 20, 1 << 30];
    let told = object(&[&sweep[..], &["--host-budgets", "0,2MiB,1GiB"]].concat());
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(number(row, "host_budget_bytes"), amounts[at / 3]);
        if row["status"] == "fits" {
            assert!(number(row, "host_peak_bytes") <= amounts[at / 3], "{row:#}");
        }
    }
    // The floor needs host memory, and little of it does not do.
    let fits = |at: usize| rows[at]["status"] == "fits";
    assert!(fits(0) && !fits(2) && fits(8), "{told:#}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for name in ["no host memory", "2 MiB of host memory", "1 GiB of host memory"] {
        assert!(drawn.contains(name), "{name}: {drawn}");
    }
    // With one amount: nothing, a quarter, all.
    let told = object(&[&sweep[..], &["--host-budget", "8MiB"]].concat());
    let hosts: Vec<u64> =
        told["rows"].as_array().unwrap().iter().map(|row| number(row, "host_budget_bytes")).collect();
    assert_eq!(hosts, [0, 0, 0, 2 << 20, 2 << 20, 2 << 20, 8 << 20, 8 << 20, 8 << 20]);
    let shown = text(&memfit(&[&sweep[..], &["--host-budget", "8MiB"]].concat()));
    assert!(shown.contains("host budget"), "{shown}");
    let plain = object(&["sweep", &graph, "--points", "1"]);
    assert!(plain["rows"][0].get("host_budget_bytes").is_none());
}

/// What is measured is written as a device file has it, and nothing is left on the disk.
#[test]
fn doctor_measures_links_in_the_words_of_a_device_file() {
    let scratch = Scratch::new("doctor");
    let spill = scratch.0.join("spill");
    std::fs::create_dir(&spill).unwrap();
    let told = object(&["doctor", "--spill", spill.to_str().unwrap()]);
    assert_eq!(std::fs::read_dir(&spill).unwrap().count(), 0);
    for link in [&told["memory_link"], &told["disk"]["link"]] {
        for rate in ["out_bytes_per_second", "in_bytes_per_second"] {
            assert!(link[rate].as_f64().unwrap() > 0.0, "{told:#}");
        }
    }
    let size = number(&told["disk"], "written_bytes");
    assert!(size <= 256 << 20 && size <= number(&told["disk"], "free_bytes"));
    let lines: Vec<&str> =
        told["device_lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let without = DISK.lines().filter(|line| !line.starts_with("link") && !line.starts_with("disk"));
    let device = scratch.write("measured.toml", without.chain(lines).collect::<Vec<_>>().join("\n"));
    let graph = scratch.write("layers.json", layers());
    let args = ["plan", &graph, "--device", &device, "--strategy", "offload:lru", "-b", "floor+50%"];
    assert!(number(&object(&args), "offload_bytes") > 0);
    assert_eq!(object(&["doctor"])["disk"], Value::Null);
    let nowhere = memfit(&["doctor", "--spill", spill.join("none").to_str().unwrap()]);
    assert_eq!(nowhere.status.code(), Some(5), "{}", text(&nowhere));
}
