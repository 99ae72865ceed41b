//! What becomes of each method of Burn's backend traits is in `docs/burn-methods.md`, and a method that is new in Burn is
//! missed there. Made with `MEMFIT_UPDATE_METHODS=1`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Methods of Burn's traits of ops, whether each has a default.
type Methods = BTreeMap<String, Vec<(String, bool)>>;

/// Where the source of the package `name` lies on this machine.
fn source(name: &str) -> PathBuf {
    let args = ["metadata", "--format-version", "1", "--locked"];
    let output =
        Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == name).unwrap();
    Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src")
}

fn files(folder: &Path, list: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, list);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            list.push(path);
        }
    }
}

/// The name after `word` at the start of `line`.
fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix(word)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The methods of the traits of ops that a backend has. The source is formatted: a trait ends with a brace in the first column, and its methods
/// are indented by four.
fn methods(name: &str) -> Methods {
    let mut list = Vec::new();
    files(&source(name), &mut list);
    let mut methods = Methods::new();
    for file in list {
        let text = std::fs::read_to_string(file).unwrap();
        let mut of: Option<&str> = None;
        let mut open: Option<&str> = None;
        for line in text.lines() {
            if let Some(name) = after(line, "pub trait ").filter(|_| line.ends_with("Ops<B: Backend> {")) {
                of = Some(name);
            } else if line == "}" {
                of = None;
            }
            let Some(of) = of else { continue };
            if let Some(name) = after(line, "    fn ").or_else(|| after(line, "    async fn ")) {
                open = Some(name);
            }
            if let Some(name) = open
                && let Some(end) = line.split("//").next().unwrap().trim_end().chars().last()
                && (end == '{' || end == ';' || end == '}')
            {
                methods.entry(of.to_owned()).or_default().push((name.to_owned(), end != ';'));
                open = None;
            }
        }
    }
    methods
}

/// What each method that we have is: from the tables in our source, a line each.
fn ours() -> BTreeMap<String, &'static str> {
    let own = include_str!("../src/v021/own.rs");
    let decorator = include_str!("../src/v021/decorator.rs");
    let mut ours = BTreeMap::new();
    let mut what = "";
    for line in own.lines().chain(decorator.lines()) {
        match line.trim() {
            "forward! {" | "forward_records! {" => what = "recorded by the router",
            "weight_gradients! {" => {
                what = "recorded by the router, or default where that keeps a larger tensor"
            }
            line if line.ends_with("=> { $to! {") => what = "recorded as one op of ours",
            line if line.starts_with('}') => what = "",
            line if what.is_empty() => {
                if let Some(name) = after(line, "async fn ").filter(|name| name.ends_with("_data")) {
                    ours.insert(name.to_owned(), "read as it is");
                } else if let Some(name) = after(line, "fn ").filter(|name| name.starts_with("q_")) {
                    ours.insert(name.to_owned(), "handed over as it is");
                }
            }
            line => {
                // An entry may take several lines; the arguments of one are indented further.
                let indented = line.find(['(', ':']).and_then(|at| after(line, "").map(|name| (name, at)));
                if let Some((name, at)) = indented
                    && name.len() == at
                {
                    ours.insert(name.to_owned(), what);
                }
            }
        }
    }
    ours
}

#[test]
fn each_method_of_burn_is_accounted_for() {
    let ours = ours();
    let burn = methods("burn-backend");
    let mut text = "# What becomes of each method of Burn's backend traits\n\n\
        Made by `MEMFIT_UPDATE_METHODS=1 cargo nextest run -p memfit-burn --test methods`. A method without an entry of ours has \
        Burn's default, which is made of other methods.\n"
        .to_owned();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, methods) in &burn {
        write!(text, "\n## `{name}`\n\n| Method | Here |\n| --- | --- |\n").unwrap();
        for (method, has_default) in methods {
            let what = ours.get(method).copied();
            assert!(what.is_some() || *has_default, "`{name}::{method}` has no default");
            let what = what.unwrap_or("default");
            *kinds.entry(what).or_default() += 1;
            writeln!(text, "| `{method}` | {what} |").unwrap();
        }
    }
    let known = |method: &String| burn.values().flatten().any(|(name, _)| name == method);
    let unknown: Vec<&String> = ours.keys().filter(|method| !known(method)).collect();
    assert!(unknown.is_empty(), "no methods of Burn's: {unknown:?}");
    assert!(kinds["recorded as one op of ours"] > 55 && kinds["recorded by the router"] > 200, "{kinds:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/burn-methods.md");
    if std::env::var_os("MEMFIT_UPDATE_METHODS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/burn-methods.md is not of this version: make it again as its head says");
}
