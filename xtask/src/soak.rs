//! Long trainings whose shapes change, within a budget that something has to go for: does anything grow?

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{python, record, run};

/// By how much memory of the last quarter of the steps may be more than that of the second.
const GROWS: f64 = 0.02;
/// What is held to that.
const FLAT: [&str; 5] = ["resident_bytes", "heap_bytes", "live_bytes", "rows", "table_bytes"];
/// Rows and bytes that may come and go beside it, where there are few.
const SLACK: [(&str, f64); 5] = [
    ("resident_bytes", 4e6),
    ("heap_bytes", 64e3),
    ("live_bytes", 64e3),
    ("rows", 16.0),
    ("table_bytes", 64e3),
];

/// Trains so many steps with PyTorch and with Burn, in each way; `keep` also writes what was measured under `bench/record/`.
pub(crate) fn train(steps: u64, keep: bool) -> Result<()> {
    python::module(true)?;
    let python = python::environment()?;
    let steps = steps.to_string();
    let torch = run::output_with(
        &python,
        ["-W", "ignore", "python/tests/soak.py", &steps],
        &[("PYTHONPATH", "python"), ("PYTHONDONTWRITEBYTECODE", "1")],
    )?;
    let burn = ["run", "--quiet", "--release", "--package", "memfit-burn", "--example", "soak", "--", &steps];
    let burn = run::output("cargo", burn)?;
    let (mut table, mut faults) = (vec![HEAD.to_owned()], Vec::new());
    for (host, lines) in [("PyTorch", torch), ("Burn", burn)] {
        for line in lines.lines().filter(|line| line.starts_with('{')) {
            let told: Value = serde_json::from_str(line).with_context(|| format!("can't read `{line}`"))?;
            let way = format!("{host}, {}", told["kind"].as_str().unwrap_or_default());
            let found = rows(&way, &told);
            table.extend(found.0);
            faults.extend(found.1);
        }
    }
    let table = table.join("\n");
    run::say(&table);
    if keep {
        record::keep("soak", &format!("cargo xtask soak --steps {steps} --record"), &table)?;
    }
    if faults.is_empty() { Ok(()) } else { bail!("something grows\n{}", faults.join("\n")) }
}

const HEAD: &str = "| training | measured | second quarter | last quarter | change |\n|---|---|--:|--:|--:|";

/// Lines of the table for one training, and what has grown.
fn rows(way: &str, told: &Value) -> (Vec<String>, Vec<String>) {
    let (mut table, mut faults) = (Vec::new(), Vec::new());
    let number = |quarter: &str, name: &str| told[quarter][name].as_f64();
    for name in FLAT.into_iter().chain(["shapes", "seconds_per_step"]) {
        let (Some(before), Some(after)) = (number("second_quarter", name), number("last_quarter", name))
        else {
            continue;
        };
        let change = (after - before) / before.max(1e-9) * 100.0;
        let shown =
            |value: f64| if name.starts_with("sec") { format!("{value:.4}") } else { format!("{value:.0}") };
        table.push(format!("| {way} | {name} | {} | {} | {change:+.2} % |", shown(before), shown(after)));
        // All shapes have been met after a while, and not before; time depends on who else works here.
        let slack = SLACK.iter().find(|(of, _)| *of == name).map_or(f64::INFINITY, |&(_, slack)| slack);
        if after > before * (1.0 + GROWS) + slack {
            faults.push(format!("{way}: {name} {before:.0} -> {after:.0}"));
        }
    }
    for name in ["recomputed_ops", "stored_bytes", "guided_steps"] {
        if let Some(value) = told[name].as_u64() {
            table.push(format!("| {way} | {name} | | {value} | |"));
        }
    }
    if told["recomputed_ops"] == 0 {
        faults.push(format!("{way}: nothing had to go, so nothing is known"));
    }
    (table, faults)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_grows_is_found() {
        let of = |live: u64, ops: u64| {
            let second = json!({"live_bytes": 10_000_000, "seconds_per_step": 0.1});
            let last = json!({"live_bytes": live, "seconds_per_step": 9.9});
            rows("x", &json!({"recomputed_ops": ops, "second_quarter": second, "last_quarter": last}))
        };
        assert!(of(10_200_000, 5).1.is_empty());
        assert_eq!(of(10_300_000, 5).1, ["x: live_bytes 10000000 -> 10300000"]);
        assert_eq!(of(9_000_000, 0).1.len(), 1);
        assert_eq!(of(9_000_000, 5).0.len(), 3);
    }
}
