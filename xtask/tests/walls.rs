//! The walls of the house: which crate may import which. Cargo knows the edges, this says which are allowed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Each crate with the memfit crates it may depend on, tests apart. The table of ARCHITECTURE.md.
const WALLS: &[(&str, &[&str])] = &[
    ("memfit-ir", &[]),
    ("memfit-verify", &["memfit-ir"]),
    ("memfit-sim", &["memfit-ir"]),
    ("memfit-codec", &[]),
    ("memfit-checkpoint", &["memfit-codec"]),
    ("memfit-engine", &["memfit-ir", "memfit-sim", "memfit-verify"]),
    ("memfit-plan", &["memfit-ir", "memfit-sim", "memfit-engine"]),
    ("memfit-formats", &["memfit-ir"]),
    ("memfit-tiers", &["memfit-codec", "memfit-ir", "memfit-engine"]),
    (
        "memfit",
        &[
            "memfit-codec",
            "memfit-tiers",
            "memfit-ir",
            "memfit-verify",
            "memfit-sim",
            "memfit-engine",
            "memfit-plan",
            "memfit-formats",
            "memfit-checkpoint",
        ],
    ),
    ("memfit-burn", &["memfit"]),
    ("memfit-cli", &["memfit", "memfit-burn"]),
    ("memfit-py", &["memfit"]),
    ("memfit-testkit", &["memfit-ir", "memfit-sim", "memfit-verify"]),
];

/// Only these may be seen by tools of the project, and nobody depends on them but tests.
const DEVELOPMENT: &[&str] = &["memfit-testkit", "memfit-fuzz", "memfit-bench", "xtask"];

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn no_crate_looks_through_a_wall() {
    let walls: BTreeMap<&str, &[&str]> = WALLS.iter().copied().collect();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if ["xtask", "memfit-fuzz", "memfit-bench"].contains(&name) {
            continue; // Tools of the project may see all of it.
        }
        let allowed = walls.get(name).unwrap_or_else(|| panic!("`{name}` has no line in the table of walls"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let ours = on == "xtask" || on == "memfit" || on.starts_with("memfit-");
            if !ours {
                continue;
            }
            if dependency["kind"] == "dev" {
                continue;
            }
            assert!(allowed.contains(&on), "`{name}` must not depend on `{on}`");
            assert!(!DEVELOPMENT.contains(&on), "`{name}` must not depend on `{on}`");
        }
    }
}

#[test]
fn the_judge_shares_nothing_but_the_nouns() {
    for package in packages() {
        if package["name"] == "memfit-verify" {
            let on: Vec<&str> = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .map(|d| d["name"].as_str().unwrap())
                .collect();
            assert!(on.iter().all(|&name| name == "memfit-ir" || name == "memfit-testkit"), "{on:?}");
            return;
        }
    }
    panic!("there is no judge");
}
