//! What not every build of ours covers: the oldest Rust that is promised, and the solver that needs a C++ toolchain.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{python, run};

/// Where the solver is built, and what is checked with the oldest Rust: apart, so that neither makes the other build anew.
const APART: [&str; 2] = ["target/highs", "target/oldest"];

/// The oldest Rust that is promised, `rust-version`, compiles what others build on: the library and the Python module. Where it is the
/// one that everything is built with there is nothing more to do, and where it is not installed that is said.
pub(crate) fn oldest() -> Result<()> {
    let metadata = run::output("cargo", ["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo lists packages")?;
    let promised =
        packages.iter().map(|package| package["rust_version"].as_str()).collect::<Option<Vec<_>>>();
    let promised = promised.context("every crate says `rust-version.workspace = true`")?;
    let oldest = *promised.iter().max().context("there are crates")?;
    let here = run::output("rustc", ["--version"])?;
    if here.starts_with(&format!("rustc {oldest}.")) {
        run::say(&format!("rust-version: {oldest} is what everything is built with"));
        return Ok(());
    }
    let with = [oldest.to_owned(), format!("{oldest}.0")].map(|version| format!("+{version}"));
    let Some(with) = with.iter().find(|with| run::works("cargo", [with.as_str(), "--version"])) else {
        run::say(&format!("SKIPPED: Rust {oldest}, the oldest that is promised, is not installed"));
        return Ok(());
    };
    let check = [with, "check", "--package", "memfit", "--package", "memfit-py", "--target-dir", APART[1]];
    run::command("cargo", check, &[])
}

/// The larger solver compiles, and what it proves is true: optima against brute force, as with the one that is compiled in otherwise.
/// CMake and libclang come from the Python environment.
pub(crate) fn solver() -> Result<()> {
    let python = python::environment()?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "cmake", "libclang"];
    run::command(&python, install, &[])?;
    let libclang = run::output(
        &python,
        ["-c", "import clang, pathlib; print(pathlib.Path(clang.__path__[0]).absolute() / 'native')"],
    )?;
    let tools = std::path::Path::new(&python).parent().context("an interpreter is in a folder")?;
    let tools = std::path::absolute(tools)?;
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let test = ["test", "--package", "memfit-plan", "--features", "highs", "--target-dir", APART[0]];
    let tests = ["--test", "recompute_exact"];
    let variables = [("LIBCLANG_PATH", libclang.trim()), ("PATH", path.as_str())];
    run::command("cargo", test.into_iter().chain(tests), &variables)
}
