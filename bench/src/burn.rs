//! `cargo xtask bench burn-…`: `memfit run` over the networks, with the budgets, and beside Burn's own checkpointing.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::markdown;

const MODELS: [&str; 12] = [
    "resnet18",
    "resnet50",
    "shufflenet",
    "unet",
    "gpt",
    "lstm",
    "spos",
    "vit",
    "convnext",
    "vae",
    "diffusion",
    "gru",
];
/// Rounds of a comparison of times; the middle one counts.
const ROUNDS: usize = 3;
/// Those of short steps, on which it weighs more what else the machine does.
const ROUNDS_OF_SHORT: usize = 11;
/// Processor time of a step, in milliseconds, below which it is short.
const SHORT: f64 = 500.0;

/// The object that `memfit run` prints, also where nothing fits.
fn object(words: &str) -> Result<Value> {
    let cargo = ["run", "--release", "--quiet", "--package", "memfit-cli", "--", "run"];
    let words = cargo.into_iter().chain(words.split_whitespace()).chain(["--json"]);
    let output = Command::new("cargo").args(words).output()?;
    let text = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).with_context(text)
}

/// The same of a run that compares; what differs is an error, and so is what doesn't fit.
fn memfit(words: &str) -> Result<Value> {
    fitting(words)?.with_context(|| format!("`memfit run {words}`: does not fit"))
}

/// As [`memfit()`]; `None` where nothing fits, or what fits is too slow.
fn fitting(words: &str) -> Result<Option<Value>> {
    let object = object(words)?;
    if object["status"] == "infeasible" {
        return Ok(None);
    }
    let same = |row: &Value| row["identical"] == true;
    if !same(&object) || !object["rows"].as_array().is_none_or(|rows| rows.iter().all(same)) {
        bail!("`memfit run {words}`: results differ");
    }
    Ok(Some(object))
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or(f64::NAN)
}

fn mib(object: &Value, key: &str) -> String {
    format!("{:.1}", number(object, key) / f64::from(1 << 20))
}

fn percent(one: f64, base: f64) -> String {
    format!("{:+.1} %", (one / base - 1.0) * 100.0)
}

/// All networks in four budgets each: everything that fits must be identical, and the budget be kept.
pub(crate) fn grid() -> Result<String> {
    let mut rows = Vec::new();
    for model in MODELS {
        for share in [80, 60, 50, 40] {
            let words = format!("{model} --budget floor+{share}% --steps 5 --gradients");
            let Some(run) = fitting(&words)? else {
                rows.push(vec![
                    model.to_owned(),
                    format!("floor+{share}%"),
                    "no room, or too slow".to_owned(),
                ]);
                continue;
            };
            if number(&run, "peak_bytes") > number(&run, "budget_bytes") {
                bail!("{model} at floor+{share}%: the tensors take more than the budget");
            }
            let rest = number(&run, "process_bytes") - number(&run, "table_bytes");
            if rest > f64::from(4 << 20) {
                bail!("{model} at floor+{share}%: {rest} bytes of the heap are nobody's");
            }
            let mut row = vec![model.to_owned(), format!("floor+{share}%")];
            let keys = ["budget_bytes", "peak_bytes", "temporaries_bytes", "process_bytes", "table_bytes"];
            row.extend(keys.map(|key| mib(&run, key)));
            row.extend(["measured_peak_bytes", "base_measured_peak_bytes"].map(|key| mib(&run, key)));
            row.push(percent(number(&run, "time_ns"), number(&run, "base_time_ns")));
            row.push(percent(number(&run, "processor_ns"), number(&run, "base_processor_ns")));
            row.push(run["recomputes"].to_string());
            note(&row);
            rows.push(row);
        }
    }
    let head = [
        "model",
        "budget",
        "MiB",
        "tensors",
        "op scratch",
        "process",
        "of it tables at most",
        "heap",
        "heap without memfit",
        "step",
        "processor time",
        "recomputed ops",
    ];
    Ok(markdown(&head, &rows)
        + "\nLosses, all gradients of each step and final parameters identical in every row that fits.\n")
}

/// What memfit takes where nothing is evicted.
pub(crate) fn overhead() -> Result<String> {
    let mut rows = Vec::new();
    for model in MODELS {
        let mut found: Vec<[f64; 4]> = Vec::new();
        let mut rounds = ROUNDS_OF_SHORT;
        while found.len() < rounds {
            let run = memfit(&format!("{model} --mode none --steps 8"))?;
            let (own, time) = (number(&run, "memfit_ns"), number(&run, "time_ns"));
            let (with, without) = (number(&run, "processor_ns"), number(&run, "base_processor_ns"));
            found.push([own / 1e6, own / (time - own), with / without - 1.0, without / 1e6]);
            if without / 1e6 > SHORT {
                rounds = ROUNDS;
            }
        }
        let mut row = vec![model.to_owned()];
        for at in 0..4 {
            let mut all: Vec<f64> = found.iter().map(|round| round[at]).collect();
            all.sort_by(f64::total_cmp);
            let middle = all[all.len() / 2];
            row.push(if at == 0 || at == 3 {
                format!("{middle:.2}")
            } else {
                format!("{:.2} %", middle * 100.0)
            });
        }
        note(&row);
        rows.push(row);
    }
    let head =
        ["model", "memfit itself, ms a step", "of the rest", "processor time against without", "without, ms"];
    Ok(markdown(&head, &rows))
}

/// Burn's `BalancedCheckpointing`, and memfit in as many bytes: once of tensors, once of the heap.
pub(crate) fn balanced() -> Result<String> {
    let mut rows = Vec::new();
    for model in MODELS {
        for equal in ["tensors", "heap"] {
            let counts = if equal == "heap" { "--scratch" } else { "" };
            let free = memfit(&format!("{model} --mode none --compare --steps 2 {counts}"))?;
            let peer = find(&free, "balanced").with_context(|| format!("{model}: no row `balanced`"))?;
            let budget = if equal == "heap" {
                // What memfit's process takes beside what it counts has to fit as well.
                number(&peer, "measured_peak_bytes") - number(&free, "process_bytes")
            } else {
                number(&peer, "peak_bytes")
            };
            let words = format!("{model} --compare --steps 9 --budget {budget} {counts}");
            let mut row =
                vec![model.to_owned(), equal.to_owned(), format!("{:.1}", budget / f64::from(1 << 20))];
            match fitting(&words)? {
                Some(both) => row.extend(compared(&both)),
                None => row.push("no room, or too slow".to_owned()),
            }
            note(&row);
            rows.push(row);
        }
    }
    let head = [
        "model",
        "equal",
        "budget, MiB",
        "heap, balanced",
        "online",
        "planned",
        "processor time, balanced",
        "online",
        "planned",
        "step, balanced",
        "online",
        "planned",
    ];
    Ok(markdown(&head, &rows))
}

fn find(object: &Value, name: &str) -> Option<Value> {
    object["rows"].as_array()?.iter().find(|row| row["strategy"] == name).cloned()
}

/// Heap, processor time and time of the three.
fn compared(both: &Value) -> Vec<String> {
    let found = ["balanced", "online", "planned"].map(|name| find(both, name));
    let show = |of: &dyn Fn(&Value) -> String| {
        found.each_ref().map(|row| row.as_ref().map_or_else(|| "too slow".to_owned(), of))
    };
    let base = number(both, "base_processor_ns");
    let mut row = show(&|row| mib(row, "measured_peak_bytes")).to_vec();
    row.extend(show(&|row| percent(number(row, "processor_ns"), base)));
    row.extend(show(&|row| percent(number(row, "time_ns"), number(both, "base_time_ns"))));
    row
}

/// Says a row before the others are there.
fn note(row: &[String]) {
    eprintln!("{}", row.join(" | "));
}

/// What `auto` plans with host memory to move tensors to, executed: the bits, and the step beside its prediction.
pub(crate) fn executed() -> Result<String> {
    let mut rows = Vec::new();
    for model in MODELS {
        let words = "--mode planned --budget floor+50% --host-budget 2GiB --steps 14 --gradients";
        let run = memfit(&format!("{model} {words}"))?;
        if number(&run, "peak_bytes") > number(&run, "budget_bytes") {
            bail!("{model}: the tensors take more than the budget");
        }
        let milliseconds =
            |ns: f64| if ns.is_nan() { "–".to_owned() } else { format!("{:.1} ms", ns / 1e6) };
        let (planned, predicted) = (number(&run, "planned_time_ns"), number(&run, "predicted_time_ns"));
        let followed = !planned.is_nan();
        // A network that goes another way in each step follows no plan, so nothing was predicted for its steps.
        let (predicted, measured) =
            if followed { (predicted, planned) } else { (f64::NAN, number(&run, "time_ns")) };
        let mut row = vec![model.to_owned(), format!("{} MiB", mib(&run, "budget_bytes"))];
        row.extend([number(&run, "base_time_ns"), predicted, measured].map(milliseconds));
        row.push(if followed { percent(planned, predicted) } else { "–".to_owned() });
        row.push(format!("{} of 14", run["guided_steps"]));
        let why = run["off_prediction"].as_str().unwrap_or(if followed { "" } else { "decided op by op" });
        row.push(why.to_owned());
        note(&row);
        rows.push(row);
    }
    let head = ["model", "budget", "plain", "predicted", "measured", "off", "steps by the plan", "why"];
    Ok(markdown(&head, &rows)
        + "\nLosses, all gradients of each step and final parameters identical in every row.\n")
}

/// The largest batches in what a batch of 8 takes without memfit.
pub(crate) fn batch() -> Result<String> {
    let mut rows = Vec::new();
    for model in MODELS {
        let run = object(&format!("{model} --max-batch"))?;
        let each = |time: &str, batch: &str| number(&run, time) / number(&run, batch);
        rows.push(vec![
            model.to_owned(),
            mib(&run, "budget_bytes"),
            run["base_max_batch"].to_string(),
            run["max_batch"].to_string(),
            format!("{:.2}", number(&run, "ratio")),
            mib(&run, "peak_bytes"),
            mib(&run, "measured_peak_bytes"),
            percent(each("time_ns", "max_batch"), each("base_time_ns", "base_max_batch")),
        ]);
    }
    let head =
        ["model", "budget, MiB", "without", "with memfit", "times", "tensors", "heap", "time for an example"];
    Ok(markdown(&head, &rows))
}
