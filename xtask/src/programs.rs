//! Programs of the project with options of their own, which need its crates: xtask itself builds in seconds, and they when they are asked for.

use anyhow::Result;

use crate::{record, run};

/// Keeps the table that a program prints.
const RECORD: &str = "--record";

/// A bench. Its record is named after it, and says nothing of further options.
pub(crate) fn bench(options: &[String]) -> Result<()> {
    let name = options.iter().find(|option| !option.starts_with('-')).map_or("", String::as_str);
    start("memfit-bench", "memfit-bench", name, &format!("bench {name}"), options)
}

pub(crate) fn fuzz(options: &[String]) -> Result<()> {
    start("memfit-fuzz", "memfit-fuzz", "fuzz", &with_options("fuzz", options), options)
}

pub(crate) fn hammer(options: &[String]) -> Result<()> {
    start("memfit-fuzz", "hammer", "hammer", &with_options("hammer", options), options)
}

fn with_options(command: &str, options: &[String]) -> String {
    let asked = options.iter().map(String::as_str).filter(|option| *option != RECORD);
    std::iter::once(command).chain(asked).collect::<Vec<_>>().join(" ")
}

/// Runs `binary` of `package`, optimised. With `--record` among `options` its tables are kept as `record`, made by `command`.
fn start(package: &str, binary: &str, record: &str, command: &str, options: &[String]) -> Result<()> {
    let cargo = ["run", "--quiet", "--release", "--package", package, "--bin", binary, "--"];
    let asked = options.iter().map(String::as_str).filter(|option| *option != RECORD);
    let words = cargo.into_iter().chain(asked);
    if !options.iter().any(|option| option == RECORD) {
        return run::command("cargo", words, &[]);
    }
    let text = run::printed("cargo", words)?;
    run::say(&text);
    record::keep(record, &format!("cargo xtask {command} {RECORD}"), &text)
}
