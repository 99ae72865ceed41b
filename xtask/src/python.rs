//! The Python half: its native module, a virtual environment of its own, made once, and the lint and the tests in it.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{WHAT, run};

/// Ignored by git; remove it to start afresh.
const VENV: &str = ".venv-test";
/// What the tests need: PyTorch as its users have it, models to capture, the test runner, and the lint.
const PACKAGES: &str = "python/tests/requirements.txt";
/// Those of the tests.
const VARIABLES: [(&str, &str); 2] = [("PYTHONPATH", "python"), ("PYTHONDONTWRITEBYTECODE", "1")];
/// Written last, with the list of packages that are installed.
const STAMP: &str = ".venv-test/installed.txt";

/// The interpreter of the environment, which is made if it isn't there. It may be asked for ahead of time, on another thread: who asks
/// meanwhile waits for that.
pub(crate) fn environment() -> Result<String> {
    static MADE: OnceLock<Result<String, String>> = OnceLock::new();
    MADE.get_or_init(|| make().map_err(|error| format!("{error:#}"))).clone().map_err(anyhow::Error::msg)
}

fn make() -> Result<String> {
    let python = format!("{VENV}/bin/python");
    let wanted = std::fs::read_to_string(PACKAGES)?;
    if std::fs::read_to_string(STAMP).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let names = ["python3.11", "python3", "python3.12", "python3.13", "python3.10"];
    let Some(base) = names.into_iter().find(|name| run::works(name, ["-m", "venv", "--help"])) else {
        bail!("no Python with `venv` found; hint: install Python 3.11, or leave it out with `--no-python`");
    };
    if !Path::new(&python).exists() {
        run::command(base, ["-m", "venv", VENV], &[])?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PACKAGES];
    run::command(&python, install, &[])?;
    std::fs::write(STAMP, wanted)?;
    Ok(python)
}

/// Builds the native module and puts it beside the Python half of the package, where git ignores it: `release`, or with the Rust tests,
/// of which it is a small part.
pub(crate) fn module(release: bool) -> Result<()> {
    let (what, folder) = if release {
        (vec!["--package", "memfit-py", "--release"], "release")
    } else {
        ([&WHAT[..], &["--lib", "--tests"]].concat(), "debug")
    };
    run::command("cargo", ["build"].into_iter().chain(what), &[])?;
    let metadata = run::output("cargo", ["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str().context("cargo names its target directory")?;
    let built = Path::new(target).join(folder).join(format!("{DLL_PREFIX}_memfit{DLL_SUFFIX}"));
    let name = if cfg!(windows) { "_memfit.pyd" } else { "_memfit.abi3.so" };
    let beside = Path::new("python/memfit").join(format!("{name}.tmp"));
    // Renamed, so that a Python that has the old one open keeps it.
    std::fs::copy(&built, &beside).with_context(|| format!("can't copy `{}`", built.display()))?;
    Ok(std::fs::rename(&beside, Path::new("python/memfit").join(name))?)
}

/// Makes a wheel for this machine's kind, with the `memfit` command in it, and checks its tag and its size.
pub(crate) fn wheel() -> Result<()> {
    let python = environment()?;
    let (folder, plain) = ("target/wheel", "target/wheel/plain");
    if Path::new(folder).exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let pip = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", plain, "."];
    run::command(&python, pip, &[])?;
    // Without Burn's trainings, which are two thirds of its size.
    let cargo = ["build", "--release", "--package", "memfit-cli", "--no-default-features"];
    run::command("cargo", cargo, &[("CARGO_PROFILE_RELEASE_STRIP", "symbols")])?;
    let made = std::fs::read_dir(plain)?.next().context("pip has made a wheel")??.path();
    let made = made.to_str().context("its name is text")?;
    run::command(&python, ["xtask/wheel.py", made, "target/release/memfit", folder], &[])
}

/// Lints everything that is written in Python, and checks the types of the package.
pub(crate) fn lint() -> Result<()> {
    let python = environment()?;
    let ruff =
        ["-m", "ruff", "check", "--no-cache", "--config", "python/ruff.toml", "python", "examples", "xtask"];
    run::command(&python, ruff, &[])?;
    run::command(&python, ["-m", "mypy", "--config-file", "python/mypy.ini", "python/memfit"], &[])
}

/// Builds the documentation as a site into `target/site`; a dead link is an error.
pub(crate) fn site() -> Result<()> {
    run::command(&environment()?, ["-m", "mkdocs", "build", "--strict", "--quiet"], &[])
}

/// Runs the Python tests.
pub(crate) fn test() -> Result<()> {
    module(false)?;
    let python = environment()?;
    // Each worker takes one to two GiB.
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(4).to_string();
    let args = ["-m", "pytest", "-q", "-n", &workers, "--dist", "worksteal", "python/tests"];
    run::command(&python, args, &VARIABLES)
}

/// What users install: a wheel is built, and works in an environment of its own.
pub(crate) fn package() -> Result<()> {
    module(true)?;
    let args = ["-m", "pytest", "-q", "python/tests/test_package.py"];
    run::command(&environment()?, args, &[&VARIABLES[..], &[("MEMFIT_ALL", "1")]].concat())
}
