//! The Python half: a virtual environment of its own, made once, and the tests in it.

use std::path::Path;

use anyhow::{Result, bail};

use crate::run;

/// Ignored by git; remove it to start afresh.
const VENV: &str = ".venv-test";
/// What the tests need: PyTorch as its users have it, models to capture, and the test runner.
const PACKAGES: &str = "python/tests/requirements.txt";
/// Written last, with the list of packages that are installed.
const STAMP: &str = ".venv-test/installed.txt";

/// The interpreter of the environment, which is made if it isn't there.
pub(crate) fn environment() -> Result<String> {
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

/// Runs the Python tests.
pub(crate) fn test() -> Result<()> {
    let python = environment()?;
    let args = ["-m", "pytest", "-q", "python/tests"];
    run::command(&python, args, &[("PYTHONPATH", "python"), ("PYTHONDONTWRITEBYTECODE", "1")])
}
