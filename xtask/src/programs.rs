//! Programs of the project with options of their own, which need its crates: xtask itself builds in seconds, and they when they are asked for.

use anyhow::{Result, ensure};

use crate::{record, run};

/// Keeps the table that a program prints.
const RECORD: &str = "--record";

/// A bench. Its record is named after it, and says nothing of further options.
pub(crate) fn bench(options: &[String]) -> Result<()> {
    let (keep, asked) = split(options);
    let name = asked.first().copied().unwrap_or_default();
    ensure!(
        !keep || !name.is_empty() && !name.starts_with('-'),
        "name the bench first: so is its record named"
    );
    start(["memfit-bench", "memfit-bench"], &asked, keep.then_some((name, &["bench", name])))
}

pub(crate) fn fuzz(options: &[String]) -> Result<()> {
    with_options(["memfit-fuzz", "memfit-fuzz"], "fuzz", options)
}

pub(crate) fn hammer(options: &[String]) -> Result<()> {
    with_options(["memfit-fuzz", "hammer"], "hammer", options)
}

/// A program whose record says all of its options.
fn with_options(program: [&str; 2], name: &str, options: &[String]) -> Result<()> {
    let (keep, asked) = split(options);
    let words = [&[name], &asked[..]].concat();
    start(program, &asked, keep.then_some((name, &words)))
}

/// Whether what is printed is kept, and the options of the program.
fn split(options: &[String]) -> (bool, Vec<&str>) {
    let asked: Vec<_> = options.iter().map(String::as_str).filter(|option| *option != RECORD).collect();
    (asked.len() < options.len(), asked)
}

/// Runs a binary of a package, optimised. Its tables are kept under the name of `record`, made by its words.
fn start([package, binary]: [&str; 2], asked: &[&str], record: Option<(&str, &[&str])>) -> Result<()> {
    let cargo = ["run", "--quiet", "--release", "--package", package, "--bin", binary, "--"];
    let words = cargo.iter().chain(asked);
    let Some((name, made)) = record else { return run::command("cargo", words, &[]) };
    let text = run::printed("cargo", words)?;
    run::say(&text);
    record::keep(name, &format!("cargo xtask {} {RECORD}", made.join(" ")), &text)
}
