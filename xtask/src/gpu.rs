//! What only a GPU can show, in slices; without one the same script runs dry.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::{python, run};

/// Slices, each of less than ten minutes on a GPU of 2022.
pub(crate) const SLICES: [&str; 9] =
    ["gpt", "resnet50", "swap", "models", "codecs", "compiled", "graphs", "doubts", "burn"];

/// Runs `slices` on `device` (`cuda` or `cpu`), with the interpreter `python` or that of the test environment; `record` also
/// writes what was measured under `bench/record/`.
pub(crate) fn measure(device: &str, slices: &[String], python: Option<&str>, record: bool) -> Result<()> {
    python::module(true)?;
    let python = python.map_or_else(python::environment, |python| Ok(python.to_owned()))?;
    let features: &[&str] = if device == "cuda" { &["--features", "cuda"] } else { &[] };
    run::command("cargo", [&["build", "--release", "--package", "memfit-cli"], features].concat(), &[])?;
    let date = run::output("date", ["+%F"])?;
    let mut faults = Vec::new();
    for slice in slices {
        let path = match record {
            true => format!("bench/record/{}-gpu-{slice}.json", date.trim()),
            false => format!("target/gpu-{slice}.json"),
        };
        let asked = ["-W", "ignore", "python/tests/gpu.py", "--device", device, "--slices", slice];
        let asked = [&asked[..], &["--out", &path, "--memfit", "target/release/memfit"]].concat();
        let environment = [("PYTHONPATH", "python"), ("PYTHONDONTWRITEBYTECODE", "1")];
        // A slice that fails leaves the others to be seen.
        if let Err(error) = run::command(&python, asked, &environment) {
            faults.push(format!("{slice}: {error}"));
        }
        let told: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        run::say(&format!(
            "{slice}: {} rows in {path}",
            told["rows"].as_array().map_or(0, |rows| rows.len().saturating_sub(1))
        ));
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}
