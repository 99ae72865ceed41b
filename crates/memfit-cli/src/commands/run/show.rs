//! What `memfit run` prints.

use memfit::engine::Recorded;
use memfit::ir::Tier;
use memfit::report::{Report, of_program, of_training};
use memfit::{Bytes, Nanos, objects};
use memfit_burn::zoo::{Apart, Training};
use serde_json::{Value, json};

use super::{Profile, Row, RunArgs, name};
use crate::commands::{DEVICE, report as page};
use crate::error::Error;
use crate::files;
use crate::output::{Output, grouped, table};

/// The budget is too small: the error to end with, after the object for machines.
pub(super) fn infeasible(
    training: &Training,
    profile: &Profile,
    budget: Bytes,
    enough: Bytes,
    output: &Output,
) -> Result<Error, Error> {
    let (model, floor) = (training.model.name(), profile.floor);
    if output.json {
        output.object(&json!({
            "schema": objects::SCHEMA,
            "command": "run",
            "status": "infeasible",
            "model": model,
            "batch": training.batch,
            "budget_bytes": budget.0,
            "floor_bytes": floor.0,
            "lower_bound_bytes": profile.bound.0,
            "least_bytes": enough.0,
            "unconstrained_peak_bytes": profile.peak.0,
            "seed": training.seed,
        }))?;
        return Ok(Error::Silent(1));
    }
    let below = match profile.bound < floor {
        true => format!(", `{}` with parameters and state elsewhere", profile.bound),
        false => String::new(),
    };
    Ok(Error::Small {
        message: format!(
            "`{model}` with a batch of {} does not fit in `{budget}`; its floor is `{floor}`{below}",
            training.batch
        ),
        hint: format!("`--budget {}` was enough in every trial", enough.0),
    })
}

fn ratio(time: Nanos, base: Nanos) -> f64 {
    time.0 as f64 / base.0.max(1) as f64 - 1.0
}

/// All that was measured in `budget`, and the step that was recorded for a page.
pub(super) fn results(
    args: &RunArgs,
    training: &Training,
    profile: &Profile,
    (budget, ran): (Bytes, Option<&Recorded>),
    rows: &[Row],
    output: &Output,
) -> Result<(), Error> {
    let [_, rest @ ..] = rows else { return Ok(()) };
    let Some(main) = rest.iter().find(|row| row.name == name(args.mode)) else { return Ok(()) };
    // Who asked for it is not told that it's a bug.
    let identical = rest.iter().all(|row| row.same || !row.measured.lossy.is_empty());
    let told = || {
        let status = if identical { "fits" } else { "bug" };
        whole(args, training, profile, (budget, status), (main, rows))
    };
    if let Some(path) = &args.report {
        page::write(path, &viewed(&told(), ran)?)?;
    }
    if output.json {
        output.object(&told())?;
    } else {
        let mut text = text(training, profile, budget, rows, main, args.scratch);
        text += &args.report.as_ref().map_or(String::new(), |path| page::written(path));
        output.print(&text)?;
    }
    if identical { Ok(()) } else { Err(Error::Differs) }
}

/// The object for machines.
fn whole(
    args: &RunArgs,
    training: &Training,
    profile: &Profile,
    (budget, status): (Bytes, &str),
    (main, rows): (&Row, &[Row]),
) -> Value {
    let [base, rest @ ..] = rows else { return Value::Null };
    let rows: Vec<Value> = rest.iter().map(|row| object(row, base, args.scratch)).collect();
    let mut object = object(main, base, args.scratch);
    if let Value::Object(fields) = &mut object {
        fields.insert("schema".to_owned(), objects::SCHEMA.into());
        fields.insert("command".to_owned(), "run".into());
        fields.insert("status".to_owned(), status.into());
        fields.insert("model".to_owned(), training.model.name().into());
        fields.insert("batch".to_owned(), training.batch.into());
        fields.insert("steps".to_owned(), training.steps.into());
        fields.insert("seed".to_owned(), training.seed.into());
        fields.insert("budget_bytes".to_owned(), budget.0.into());
        fields.insert("floor_bytes".to_owned(), profile.floor.0.into());
        fields.insert("lower_bound_bytes".to_owned(), profile.bound.0.into());
        fields.insert("unconstrained_peak_bytes".to_owned(), profile.peak.0.into());
        fields.insert("base_measured_peak_bytes".to_owned(), base.measured.peak.0.into());
        fields.insert("losses".to_owned(), json!(main.measured.losses()));
        if rows.len() > 1 {
            fields.insert("rows".to_owned(), rows.into());
        }
    }
    object
}

/// The page of a training: its figures, and the memory of the step that was recorded. Ops take what they took; copies are drawn
/// as long as they take on the device that is assumed, since a record has no times of copies.
fn viewed(told: &Value, ran: Option<&Recorded>) -> Result<Report, Error> {
    let device = files::device(DEVICE)?;
    let step = ran.filter(|ran| ran.program.is_well_formed()).map(|ran| {
        let Recorded { graph, program, layout, .. } = ran;
        of_program(Some(graph), program, layout.as_ref(), &device, Bytes(1)).0
    });
    let mut report = of_training(told, step);
    if report.lanes.len() > 1 {
        report
            .notes
            .push(format!("Copies are drawn as long as they take on {}; ops, as they took.", device.name));
    }
    Ok(report)
}

/// What the heap has beyond tensors and scratch: batches, Burn's graphs, threads, memfit's tables. `scratch`: whether the
/// engine's account has it.
fn process(row: &Row, scratch: bool) -> Option<Bytes> {
    let report = row.report?;
    let beyond = if scratch { Bytes::ZERO } else { Bytes(report.host.temporaries) };
    Some(row.measured.peak.saturating_sub(report.engine.peak).saturating_sub(beyond))
}

fn object(row: &Row, base: &Row, scratch: bool) -> Value {
    let engine = row.report.map(|report| report.engine);
    let taken = row.report.map(|report| report.host.temporaries);
    let planned = row.report.map(|report| report.steps).filter(|steps| steps.planned > 0);
    let gradient =
        |apart: &Apart| json!({"step": apart.step + 1, "error": apart.error, "noise": apart.noise});
    let gradients: Vec<Value> = row.gradients.iter().map(gradient).collect();
    json!({
        "strategy": row.name,
        "identical": row.same,
        "lossy": row.measured.lossy,
        "gradient_errors": gradients,
        "measured_peak_bytes": row.measured.peak.0,
        "peak_bytes": engine.map(|engine| engine.peak).or(row.peak).map(|peak| peak.0),
        "predicted_peak_bytes": row.expected.as_ref().map(|expected| expected.peak.0),
        "temporaries_bytes": taken,
        "scratch_counts": scratch,
        "unforeseen_scratch_bytes": row.report.filter(|_| scratch).map(|report| report.host.unforeseen),
        "process_bytes": process(row, scratch).map(|bytes| bytes.0),
        "table_bytes": row.report.map(|report| report.tables),
        "time_ns": row.measured.time().0,
        "base_time_ns": base.measured.time().0,
        "processor_ns": row.measured.processor().map(|time| time.0),
        "base_processor_ns": base.measured.processor().map(|time| time.0),
        "overhead": ratio(row.measured.time(), base.measured.time()),
        "predicted_time_ns": row.expected.as_ref().map(|expected| expected.time.0),
        "planned_time_ns": row.report.and_then(|report| report.followed).map(|parts| parts.sum().0),
        "off_prediction": row.report.as_ref().and_then(off_prediction),
        "memfit_ns": row.report.map(|report| report.own_ns / row.measured.steps.len().max(1) as u64),
        "recompute_ns": engine.map(|engine| engine.recompute_ns),
        "offload_bytes": engine.map(|engine| engine.stored.0),
        "host_peak_bytes": engine.map(|engine| engine.tier_peaks[Tier::Host.index()].0),
        "disk_peak_bytes": engine.map(|engine| engine.tier_peaks[Tier::Disk.index()].0),
        "encoded_bytes": engine.map(|engine| engine.encoded.0),
        "lost_copies": engine.map(|engine| engine.lost),
        "lost_why": row.measured.lost,
        "stall_ns": engine.map(|engine| engine.stall_ns),
        "recomputes": engine.map(|engine| engine.recomputes),
        "evictions": engine.map(|engine| engine.evictions),
        "planning_seconds": row.report.map(|report| report.steps.planning_seconds),
        "guided_steps": row.report.map(|report| report.steps.guided),
        "diverged_steps": row.report.map(|report| report.steps.diverged),
        "planned_recompute_ns": planned.map(|steps| steps.planned_recompute_ns),
        "portfolio_recompute_ns": planned.and_then(|steps| steps.portfolio_recompute_ns),
        "arena_bytes": planned.map(|steps| steps.arena),
        "verified": planned.map(|steps| steps.verified >= steps.planned),
    })
}

fn text(
    training: &Training,
    profile: &Profile,
    budget: Bytes,
    rows: &[Row],
    main: &Row,
    scratch: bool,
) -> String {
    let [base, rest @ ..] = rows else { return String::new() };
    let model = training.model.name();
    let share = |bytes: Bytes| bytes.ratio(profile.peak) * 100.0;
    let mut text = format!(
        "{model} · batch {} · {} · floor {} · budget {budget}, {:.0} % of {}\n\n",
        training.batch,
        main.name,
        profile.floor,
        share(budget),
        profile.peak
    );
    let steps = base.measured.steps.iter().zip(&main.measured.steps).enumerate();
    let steps = steps.map(|(at, (plain, step))| {
        vec![
            (at + 1).to_string(),
            format!("{:.4}", plain.loss),
            plain.peak.to_string(),
            duration(plain.time),
            format!("{:.4}", step.loss),
            step.peak.to_string(),
            duration(step.time),
        ]
    });
    let head = ["step", "loss", "peak", "time", "loss", "peak", "time"];
    text += "      without memfit              with memfit\n";
    text += &table(&head, &[], steps.collect());
    text += "\n";
    let column = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let mut lines = Vec::new();
    for row in rows {
        let engine = row.report.map(|report| report.engine);
        let time = row.measured.time();
        lines.push(vec![
            row.name.to_owned(),
            row.measured.peak.to_string(),
            column(engine.map(|engine| engine.peak).or(row.peak).map(|peak| peak.to_string())),
            column(row.expected.as_ref().map(|expected| expected.peak.to_string())),
            column(row.report.map(|report| Bytes(report.host.temporaries).to_string())),
            time.to_string(),
            format!("{:+.1} %", ratio(time, base.measured.time()) * 100.0),
            column(row.expected.as_ref().map(|expected| expected.time.to_string())),
            column(engine.and_then(|engine| usize::try_from(engine.recomputes).ok()).map(grouped)),
        ]);
    }
    let counted = if scratch { "with scratch" } else { "tensors" };
    let head = ["", "heap peak", counted, "predicted", "op scratch", "step", "", "predicted", "recomputed"];
    text += &table(&head, &[], lines);
    text += "\n";
    if let Some(report) = main.report {
        text += &followed(&report, main.measured.lost.as_deref());
    }
    for row in rest {
        if let (Some(report), Some(process)) = (row.report, process(row, scratch)) {
            let (peak, most) = (report.engine.peak, Bytes(report.host.temporaries));
            let counted = if scratch {
                let unforeseen = Bytes(report.host.unforeseen);
                format!(
                    "{peak} of tensors and scratch, at most {unforeseen} of scratch beyond what was known"
                )
            } else {
                format!("{peak} of tensors, {most} of scratch")
            };
            text += &format!(
                "{}: the heap is {counted}, {process} of the process ({} of it memfit's tables)\n",
                row.name,
                Bytes(report.tables),
            );
        }
        let what =
            if training.gradients { "losses, gradients and parameters" } else { "losses and parameters" };
        text += &format!("{}: {what} {}\n", row.name, verdict(row));
        text += &apart(row);
    }
    text
}

/// What the results are beside those that they should be.
fn verdict(row: &Row) -> String {
    let lossy = row.measured.lossy.join("`, `");
    match (row.same, lossy.is_empty()) {
        (true, _) if row.own_draws => {
            let why = "random numbers are drawn otherwise without memfit";
            format!("identical to those within memfit without a limit, bit by bit ({why})")
        }
        (true, _) => "identical, bit by bit".to_owned(),
        (false, true) => "DIFFER".to_owned(),
        (false, false) => format!("are others: tensors waited in `{lossy}`, as was asked for"),
    }
}

/// How far gradients are from exact ones, where something is lost.
fn apart(row: &Row) -> String {
    let Some(last) = row.gradients.last() else { return String::new() };
    let most = row.gradients.iter().map(|apart| apart.error).fold(0.0, f64::max);
    format!(
        "{}: the gradient of step {} is {:.1e} off the exact one ({most:.1e} at most in {} steps), that of another batch {:.1e}\n",
        row.name,
        last.step + 1,
        last.error,
        row.gradients.len(),
        last.noise
    )
}

/// Where steps that followed the plan took another time than was predicted.
fn off_prediction(report: &memfit_burn::Report) -> Option<String> {
    report.followed?.why_not(report.predicted?)
}

/// How steps were planned, and what plans moved and encoded.
fn followed(report: &memfit_burn::Report, lost: Option<&str>) -> String {
    let steps = report.steps;
    let mut text = String::new();
    if steps.steps > 0 {
        text += &format!(
            "{} steps followed a plan, {} left it; planning took {:.1} s\n",
            steps.guided, steps.diverged, steps.planning_seconds
        );
        text += &off_prediction(report).map_or(String::new(), |why| format!("a step took {why}\n"));
    }
    if steps.verified > 0 {
        let (plans, arena) = (steps.verified, Bytes(steps.arena));
        text += &format!("{plans} plans verified, the last with an arena of {arena}\n");
    }
    let engine = report.engine;
    if engine.stored + engine.encoded > Bytes::ZERO {
        let (stored, encoded, stall) = (engine.stored, engine.encoded, Nanos(engine.stall_ns));
        let [host, disk] = engine.tier_peaks;
        text += &format!(
            "{stored} moved to host memory (at most {host} there) and disk ({disk}), {encoded} encoded; ops waited {stall} in all \
             steps\n"
        );
    }
    if engine.lost > 0 {
        let why = lost.map(|why| format!(", the last one since {why}")).unwrap_or_default();
        text += &format!("{} copies were lost and computed again{why}\n", engine.lost);
    }
    text
}

fn duration(time: std::time::Duration) -> String {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).to_string()
}
