//! `memfit shard`: what it prints, writes and refuses.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const GRAPH: &str = "corpus/graphs/gpt2-train-b8-s1024.json.zst";

fn memfit(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn object(args: &[&str]) -> Value {
    let output = memfit(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memfit-shard-{}-{name}", std::process::id()))
}

#[test]
fn the_step_of_one_rank_is_planned_like_any_other() {
    let mut peaks = Vec::new();
    for stage in ["--state", "--gradients", "--parameters"] {
        let path = file(&format!("{stage}.json.zst"));
        let at = path.to_str().unwrap();
        let said = object(&["shard", GRAPH, "--ranks", "4", stage, "-o", at, "--json"]);
        let bytes = |rank: &str, key: &str| {
            said[rank][key].as_u64().unwrap_or_else(|| panic!("{rank} {key}: {said}"))
        };
        assert_eq!((&said["schema"], &said["status"]), (&"memfit-result/1".into(), &"done".into()));
        assert_eq!(said["stage"].as_str(), stage.strip_prefix("--"));
        assert!(bytes("after", "persistent_bytes") < bytes("before", "persistent_bytes"));
        assert!(bytes("after", "lower_bound_bytes") <= bytes("after", "live_peak_bytes"));
        // Parameters of GPT-2 in 32 bits, padded by less than an element of each.
        let (whole, parts) = (bytes("before", "state_bytes"), bytes("after", "state_bytes"));
        assert!(parts * 4 >= whole && parts * 4 < whole + 592 * 16, "{parts} of {whole}");
        // Every key is in the manual.
        let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sharding.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        let keys = said.as_object().unwrap().keys().chain(said["after"].as_object().unwrap().keys());
        for key in keys.filter(|key| *key != "schema") {
            assert!(manual.contains(&format!("`{key}`")), "docs/sharding.md lacks `{key}`");
        }
        let plan = object(&["plan", at, "--budget", "100%", "--json"]);
        std::fs::remove_file(path).unwrap();
        assert_eq!((&plan["verified"], &plan["graph_digest"]), (&true.into(), &said["graph_digest"]));
        let peak = plan["peak_bytes"].as_u64().unwrap();
        assert!(peak <= bytes("after", "live_peak_bytes") * 101 / 100, "{peak}");
        assert!(plan["lower_bound_bytes"].as_u64().unwrap() <= peak);
        peaks.push(peak);
    }
    assert!(peaks.is_sorted_by(|before, after| before >= after), "{peaks:?}");
}

#[test]
fn tables_say_what_was_assumed_and_files_go_to_standard_output() {
    let output = memfit(&["shard", GRAPH, "--ranks", "64", "--parameters", "--link", "100 GB/s"]);
    let said = text(&output.stdout);
    for part in
        ["64 ranks", "A100-80 (assumed", "100 GB/s between ranks, 5 µs a round", "optimizer state", "-98 %"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let output = memfit(&["shard", GRAPH, "--ranks", "2", "--state", "-o", "-"]);
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(graph["schema"], "memfit-graph/1");
    let once = object(&["shard", GRAPH, "--ranks", "2", "--state", "--link", "1GB/s", "--json"]);
    let twice =
        object(&["shard", GRAPH, "--ranks", "2", "--state", "--link", "2GB/s", "--latency", "0", "--json"]);
    assert_eq!(once["after"]["sent_bytes"], twice["after"]["sent_bytes"]);
    let time = |object: &Value| object["after"]["collective_ns"].as_u64().unwrap();
    assert!(time(&once) > 2 * time(&twice));
}

#[test]
fn refusals_name_what_is_missing() {
    let infer = "corpus/graphs/gpt2-infer-b8-s1024.json.zst";
    let lstm = "corpus/graphs/lstm-train-b20-s64.json.zst";
    for (args, code, said) in [
        (&[GRAPH, "--ranks", "2"][..], 2, "nothing is to be shared"),
        (&[GRAPH, "--state"], 2, "--ranks <N>"),
        (&[GRAPH, "--ranks", "0", "--state"], 2, "`0` ranks have nothing to share"),
        (&[GRAPH, "--ranks", "1", "--parameters"], 2, "`1` ranks have nothing to share"),
        (&[GRAPH, "--ranks", "4000000000", "--state"], 2, "more than the `38597376` elements"),
        (&[GRAPH, "--ranks", "5000000000", "--state"], 2, "--ranks <N>"),
        (&[GRAPH, "--ranks", "2", "--state", "--link", "fast"], 2, "`fast` is not a rate"),
        (&[GRAPH, "--ranks", "2", "--state", "--link", "0"], 2, "`0` is not a rate"),
        (&[infer, "--ranks", "2", "--state"], 3, "no op has the phase `update`"),
        (&[lstm, "--ranks", "2", "--state"], 3, "there is no optimizer state to share"),
        (&["nowhere.json", "--ranks", "2", "--state"], 3, "can't read `nowhere.json`"),
    ] {
        let output = memfit(&[&["shard"], args].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
        assert!(output.stdout.is_empty());
    }
    assert!(memfit(&["shard", lstm, "--ranks", "2", "--gradients", "-q"]).status.success());
    // A graph of one rank is no graph to share again.
    let path = file("twice.json");
    let at = path.to_str().unwrap();
    assert!(memfit(&["shard", GRAPH, "--ranks", "2", "--parameters", "-o", at]).status.success());
    let output = memfit(&["shard", at, "--ranks", "2", "--parameters", "--json"]);
    std::fs::remove_file(&path).unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &said["command"]), (Some(3), &"shard".into()));
    assert!(said["error"].as_str().unwrap().contains("is of a step that is shared already"), "{said}");
}
