//! What no compiler checks.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use crate::{imports, run};

/// The most lines of a source file, its tests apart.
const LONGEST: usize = 600;
/// The most lines of code of the judge: no comments, no blank lines.
const JUDGE: usize = 600;
/// The most bytes of a tracked file.
const LARGEST: u64 = 300_000;
/// Files that may be larger, since tools write and read them.
const MAY_BE_LARGE: [&str; 1] = ["Cargo.lock"];

/// Runs every check and reports all that fail.
pub(crate) fn check() -> Result<()> {
    let listed = run::output("git", ["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let files: BTreeSet<&str> = listed.lines().filter(|file| Path::new(file).is_file()).collect();
    let mut faults: Vec<String> = Vec::new();
    let mut judge = 0;
    faults.extend(imports::faults(&files, |file| std::fs::read_to_string(file).unwrap_or_default()));
    for file in files {
        let bytes = std::fs::read(file)?;
        if bytes.len() as u64 > LARGEST && !MAY_BE_LARGE.contains(&file) {
            faults.push(format!("{file}: {} bytes, more than {LARGEST}", bytes.len()));
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        faults.extend(paths(file, &text));
        if !file.ends_with(".rs") && !file.ends_with(".py") {
            continue;
        }
        faults.extend(leftovers(file, &text));
        let lines = without_tests(&text).lines().count();
        if lines > LONGEST && !is_generated(&text) && !file.contains("/tests/") {
            faults.push(format!("{file}: {lines} lines, more than {LONGEST}: it holds more than one idea"));
        }
        if file.starts_with("crates/memfit-verify/src/") {
            judge += without_tests(&text).lines().filter(|line| is_code(line)).count();
        }
    }
    if judge > JUDGE {
        faults.push(format!(
            "crates/memfit-verify: {judge} lines of code, more than {JUDGE}: a judge must be read whole"
        ));
    }
    if faults.is_empty() {
        run::say("tidy: ok");
        return Ok(());
    }
    bail!("not tidy\n{}", faults.join("\n"))
}

/// The text up to the tests at the bottom of a file.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn is_generated(text: &str) -> bool {
    text.lines().take(10).any(|line| line.contains("@generated"))
}

/// Lines that name a place on somebody's machine.
fn paths(file: &str, text: &str) -> Vec<String> {
    if file == "Cargo.lock" {
        return Vec::new();
    }
    // In pieces, so that this file does not name them.
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if places.iter().any(|place| line.contains(place)) {
            faults.push(format!("{file}:{}: names a path of one machine", at + 1));
        }
    }
    faults
}

/// Stubs and notes to self.
fn leftovers(file: &str, text: &str) -> Vec<String> {
    let marks = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ig", "nore"),
        concat!("FIX", "ME"),
    ];
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if marks.iter().any(|mark| line.contains(mark)) {
            faults.push(format!("{file}:{}: something is left undone", at + 1));
        }
    }
    faults
}
