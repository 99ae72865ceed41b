//! Lossy codecs are used by those who name them, and a plan that has another is refused by its name.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use std::process::{Command, Output};

use serde_json::{Value, json};

use scratch::Scratch;

fn memfit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).arg("--json").output().unwrap()
}

fn object(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Six layers and their gradients; of how dense maps are nothing is said.
fn layers() -> String {
    let layers = 6;
    let mut values = vec![json!({"name": "x", "bytes": 1 << 20, "role": "input"})];
    let mut ops = Vec::new();
    for at in 0..layers {
        values.push(json!({"name": format!("map{at}"), "bytes": 1 << 20}));
        ops.push(json!({"name": format!("layer{at}"), "kind": "mm", "reads": [at], "writes": [at + 1], "time_ns": 1_000_000}));
    }
    for at in 0..=layers {
        values.push(json!({"name": format!("gradient{at}"), "bytes": 1 << 20, "role": "gradient"}));
        let reads = if at == 0 { vec![layers] } else { vec![layers + at, layers + 1 - at] };
        let writes = [layers + 1 + at];
        ops.push(json!({"name": format!("back{at}"), "kind": "back", "phase": "backward", "reads": reads, "writes": writes, "time_ns": 1_000_000}));
    }
    let results = [values.len() - 1];
    json!({"schema": "memfit-graph/1", "name": "layers", "values": values, "ops": ops, "results": results})
        .to_string()
}

#[test]
fn a_lossy_codec_that_was_not_allowed_is_refused_by_its_name() {
    let scratch = Scratch::new("lossy");
    let (graph, file) = (scratch.file("graph.json"), scratch.file("plan.json"));
    std::fs::write(&graph, layers()).unwrap();
    let plan = |more: &[&str]| memfit(&[&["plan", &graph, "--budget", "floor+60%"], more].concat());

    // No strategy takes what nobody allowed, and `auto` takes nothing while a plan fits that loses nothing.
    for strategy in ["compress:gist", "compress:actnn"] {
        let refused = plan(&["--strategy", strategy]);
        assert_eq!(refused.status.code(), Some(1), "{strategy}");
        assert!(object(&refused).to_string().contains("is allowed"), "{}", object(&refused));
    }
    let auto = object(&plan(&["--lossy", "int8,cast-bf16"]));
    assert_eq!(
        (&auto["lossy"], &auto["lossy_allowed"]),
        (&json!([]), &json!(["int8", "cast-bf16"])),
        "{auto}"
    );

    let named = object(&plan(&["--lossy", "int8", "--strategy", "compress:gist", "-o", &file]));
    assert_eq!((&named["lossy"], &named["lossy_allowed"]), (&json!(["int8"]), &json!(["int8"])), "{named}");

    // The file says that `int8` was allowed; who checks it has to say so too.
    for lossy in [&[][..], &["--lossy", "int4"]] {
        let refused = memfit(&[&["check", &file, &graph], lossy].concat());
        assert_eq!(refused.status.code(), Some(6), "{lossy:?}");
        let told = object(&refused);
        let all = told["violations"].as_array().unwrap();
        assert!(!all.is_empty() && told["verified"] == false, "{told}");
        for violation in all {
            assert_eq!(violation["rule"], "R10", "{told}");
            assert!(
                violation["message"].as_str().unwrap().contains("`int8` is lossy and not allowed"),
                "{told}"
            );
        }
    }
    let accepted = memfit(&["check", &file, &graph, "--lossy", "int8"]);
    assert_eq!(accepted.status.code(), Some(0));
    assert_eq!(object(&accepted)["lossy"], json!(["int8"]));
}
