//! `memfit report`, `--report` and what `memfit export` writes for viewers, from the command line.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use std::path::Path;
use std::process::{Command, Output};

use memfit::formats::report::MAX_PAGE;
use memfit::formats::snapshot;
use serde_json::Value;

use scratch::Scratch;

const GRAPH: &str = "corpus/graphs/unet-train-b16.json.zst";

fn memfit(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).current_dir(root).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

impl Scratch {
    fn page(&self, name: &str) -> String {
        let page = std::fs::read_to_string(self.file(name)).unwrap();
        assert!(
            page.len() <= MAX_PAGE && page.starts_with("<!doctype html>"),
            "{name}: {} bytes",
            page.len()
        );
        page
    }
}

fn good(args: &[&str]) -> Output {
    let output = memfit(args);
    assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    output
}

#[test]
fn every_kind_of_file_becomes_a_page() {
    let scratch = Scratch::new("kinds");
    let (plan, page) = (scratch.file("plan.json.zst"), scratch.file("planned.html"));
    let told = good(&["plan", GRAPH, "--budget", "floor+50%", "-o", &plan, "--report", &page]);
    assert!(String::from_utf8(told.stdout).unwrap().contains("report written to"));
    let planned = scratch.page("planned.html");
    // The plan's own page is the same, but for what only its file knows.
    good(&["report", &plan, GRAPH, "--quick", "-o", &scratch.file("plan.html")]);
    assert_eq!(scratch.page("plan.html"), planned);
    good(&["report", &plan, "-o", &scratch.file("bare.html")]);
    assert!(scratch.page("bare.html").len() < planned.len());
    good(&["report", GRAPH, "--quick", "-o", &scratch.file("graph.html")]);
    scratch.page("graph.html");
    let snapshot = "corpus/snapshots/decoder-oom.pickle.zst";
    let output = good(&["report", snapshot, "-o", &scratch.file("snapshot.html"), "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["command"], &object["kind"]), (&"report".into(), &"snapshot".into()));
    assert!(object["title"].as_str().unwrap().starts_with("decoder-oom.pickle.zst"));
    scratch.page("snapshot.html");
    let run = scratch.file("run.json");
    std::fs::write(&run, r#"{"schema": "memfit-result/1", "command": "run", "losses": [1.0]}"#).unwrap();
    good(&["report", &run, "-o", &scratch.file("run.html")]);
    scratch.page("run.html");
    let output = good(&["report", &run, "-o", "-"]);
    assert!(output.stdout.starts_with(b"<!doctype html>"));
}

#[test]
fn what_can_not_be_shown_ends_as_everywhere() {
    let scratch = Scratch::new("refused");
    let page = scratch.file("none.html");
    let plan = scratch.file("plan.json");
    good(&["plan", GRAPH, "-o", &plan]);
    for (args, expected) in [
        (&["report", "README.md", "-o", &page][..], 3),
        (&["report", "no-such-file", "-o", &page], 3),
        (&["report", GRAPH, "--budget", "1KiB", "-o", &page], 1),
        (&["report", &plan, "corpus/graphs/vgg16-train-b256.json.zst", "-o", &page], 4),
        (&["report", GRAPH, "--front", "--quick"], 2),
        (&["report", &plan, GRAPH, "--device", "no-such", "-o", &page], 2),
        (&["export", &plan, GRAPH, "--to", "perfetto", "--device", "no-such"], 2),
    ] {
        let output = memfit(args);
        assert_eq!(code(&output), expected, "{args:?}: {}", stderr(&output));
        assert!(!Path::new(&page).exists(), "{args:?}");
    }
    // A plan that names what does not exist is shown to nobody, unless its judge says where.
    let spoilt =
        std::fs::read_to_string(&plan).unwrap().replacen("\"resident\": [0", "\"resident\": [99999", 1);
    assert!(spoilt.contains("99999"));
    std::fs::write(&plan, &spoilt).unwrap();
    assert_eq!(code(&memfit(&["report", &plan, "-o", &page])), 2);
    assert_eq!(code(&memfit(&["report", &plan, GRAPH, "-o", &page])), 6);
}

#[test]
fn plans_are_exported_for_viewers() {
    let scratch = Scratch::new("exported");
    let plan = scratch.file("plan.json");
    good(&["plan", GRAPH, "--budget", "floor+50%", "--strategy", "offload:best", "-o", &plan]);
    let trace = good(&["export", &plan, GRAPH, "--to", "chrome-trace"]);
    let trace: Value = serde_json::from_slice(&trace.stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["cat"] == "copy out"));
    let perfetto = scratch.file("plan.pftrace");
    good(&["export", &plan, GRAPH, "--to", "perfetto", "-o", &perfetto]);
    let bytes = std::fs::read(&perfetto).unwrap();
    assert_eq!(bytes[0], 0x0a, "a packet is field 1, length-delimited");
    assert_eq!(good(&["export", &plan, GRAPH, "--to", "perfetto"]).stdout, bytes);
    let pickle = scratch.file("plan.pickle");
    good(&["export", &plan, GRAPH, "--to", "memory-viz", "-o", &pickle]);
    assert_eq!(snapshot::read(&std::fs::read(&pickle).unwrap()).unwrap().segments.len(), 1);
    // It is a snapshot like any other.
    good(&["explain", &pickle]);
    good(&["report", &pickle, "-o", &scratch.file("again.html")]);
    scratch.page("again.html");
}
