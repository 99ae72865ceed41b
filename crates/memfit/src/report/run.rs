//! The JSON object of a training as a report: its figures, and the losses of its steps.

use memfit_formats::FormatError;
use memfit_formats::report::{Curve, Figure, Kind, Report, Table, Unit};
use memfit_ir::{Bytes, Nanos};
use serde_json::Value;

use crate::Failure;
use crate::objects::SCHEMA;

/// Whether a file is the object that `memfit run --json` prints, or what it says of a training that does not fit.
#[must_use]
pub fn is_run(bytes: &[u8]) -> bool {
    let may_be = bytes.len() <= LARGEST && bytes.windows(SCHEMA.len()).any(|part| part == SCHEMA.as_bytes());
    may_be
        && serde_json::from_slice::<Value>(bytes)
            .is_ok_and(|object| object["schema"] == SCHEMA && object["command"] == "run")
}

/// No training has that much to tell: 16 MiB.
const LARGEST: usize = 16 << 20;

/// Rows of the table: what they are called, the key of the figure, that of the same without memfit, and its unit.
const ROWS: [(&str, &str, &str, Unit); 15] = [
    ("heap at the peak, measured", "measured_peak_bytes", "base_measured_peak_bytes", Unit::Bytes),
    ("tensors at the peak", "peak_bytes", "unconstrained_peak_bytes", Unit::Bytes),
    ("the same, predicted", "predicted_peak_bytes", "", Unit::Bytes),
    ("scratch of ops", "temporaries_bytes", "", Unit::Bytes),
    ("time of a step, measured", "time_ns", "base_time_ns", Unit::Nanos),
    ("the same, predicted", "predicted_time_ns", "", Unit::Nanos),
    ("time on processors", "processor_ns", "base_processor_ns", Unit::Nanos),
    ("memfit's own", "memfit_ns", "", Unit::Nanos),
    ("ops that ran again", "recompute_ns", "", Unit::Nanos),
    ("runs of those", "recomputes", "", Unit::Count),
    ("evictions", "evictions", "", Unit::Count),
    ("carried to other memory", "offload_bytes", "", Unit::Bytes),
    ("most in host memory", "host_peak_bytes", "", Unit::Bytes),
    ("encoded", "encoded_bytes", "", Unit::Bytes),
    ("waiting for copies and codecs", "stall_ns", "", Unit::Nanos),
];

/// The report of a file that holds that object.
///
/// # Errors
///
/// [`Failure::Input`] for what is no JSON.
pub fn of_run(bytes: &[u8]) -> Result<Report, Failure> {
    let object: Value = serde_json::from_slice(bytes)
        .map_err(|error| FormatError::new("", format!("not the JSON of a training: {error}")))?;
    Ok(of_training(&object, None))
}

/// The report of that object, with the memory and the timeline of a step that ran, as [`super::of_program`] gives them.
#[must_use]
pub fn of_training(object: &Value, step: Option<Report>) -> Report {
    let figures = figures(object);
    let Some(step) = step else { return figures };
    let Report { axis, instants, times, names, stays, lanes, slices, .. } = step;
    Report { kind: Kind::Step, axis, instants, times, names, stays, lanes, slices, ..figures }
}

fn figures(object: &Value) -> Report {
    let number = |key: &str| object[key].as_f64();
    let bytes = |key: &str| object[key].as_u64().map(Bytes);
    let word = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let mut report = Report { kind: Kind::Figures, title: word("model"), ..Report::default() };
    for (name, key) in [("budget", "budget_bytes"), ("floor", "floor_bytes")] {
        report.levels.extend(bytes(key).map(|bytes| (name.to_owned(), bytes)));
    }
    for key in ["strategy", "status", "batch", "steps", "seed"] {
        let text = match &object[key] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        report.facts.push((key.to_owned(), text));
    }
    if let (Some(peak), Some(budget)) = (bytes("peak_bytes"), bytes("budget_bytes")) {
        report.cards.push((
            "memory".into(),
            Figure::bytes(peak),
            format!("of {budget}: tensors at the peak"),
        ));
    }
    if let (Some(peak), Some(base)) = (bytes("measured_peak_bytes"), bytes("base_measured_peak_bytes")) {
        let note = format!("{:.0} % of the {base} without memfit", peak.ratio(base) * 100.0);
        report.cards.push(("heap".into(), Figure::bytes(peak), note));
    }
    if let (Some(time), Some(overhead)) = (object["time_ns"].as_u64(), number("overhead")) {
        let note = format!("{:+.1} %, measured", overhead * 100.0);
        report.cards.push(("step".into(), Figure::nanos(Nanos(time)), note));
    }
    if let Some(identical) = object["identical"].as_bool() {
        let word = if identical { "identical" } else { "differs" };
        report.cards.push(("results".into(), Figure::text(word), "losses and parameters, bit by bit".into()));
    }
    report.compared = compared(object);
    if let Some(losses) = object["losses"].as_array() {
        let points =
            losses.iter().enumerate().filter_map(|(at, loss)| Some((at as f64 + 1.0, loss.as_f64()?)));
        report.losses.push(Curve { name: "loss".to_owned(), points: points.collect() });
    }
    report
}

/// Every way that was run beside the training without memfit.
fn compared(object: &Value) -> Table {
    let all = object["rows"].as_array().map_or_else(|| vec![object], |rows| rows.iter().collect());
    let mut head = vec![String::new(), "without memfit".to_owned()];
    head.extend(all.iter().map(|row| row["strategy"].as_str().unwrap_or("memfit").to_owned()));
    let figure = |value: &Value, unit: Unit| {
        value.as_f64().map_or_else(|| Figure::text("–"), |number| Figure::Number(number, unit))
    };
    let rows = ROWS.iter().filter(|(_, key, ..)| all.iter().any(|row| !row[*key].is_null()));
    let rows = rows.map(|&(name, key, base, unit)| {
        let mut cells = vec![Figure::text(name), figure(&object[base], unit)];
        cells.extend(all.iter().map(|row| figure(&row[key], unit)));
        cells
    });
    Table { head, rows: rows.collect() }
}
