//! `memfit plan`: a plan that fits the budget, and that the verifier has checked.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::plan_json;
use memfit::ir::Step;
use memfit::report::of_planned;
use memfit::{Budget, Bytes, Goal, Graph, Nanos, Options, PlacerRow, Planned, Summary, objects, plan};
use owo_colors::OwoColorize as _;

use super::{batch, goal, moved, report, simplify};
use crate::args::{GraphArgs, MeansArgs, percent};
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, grouped, table};

#[derive(Debug, ClapArgs)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) graph: GraphArgs,
    /// Device memory the step may use: `8GiB`, `60%` of the unconstrained peak, `floor+60%` [default: all of
    /// the device]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(super) budget: Option<Budget>,
    #[command(flatten)]
    pub(super) means: MeansArgs,
    /// Plan the simplified graph, as `memfit simplify -o` writes it: for graphs that are executed as they stand in their file. `check`
    /// and `export` then need that graph
    #[arg(long)]
    pub(super) simplify: bool,
    /// Write the plan to this file (`.json` or `.json.zst`); `-` for standard output
    #[arg(long, short, value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Write a page to look at to this file, as `memfit report --quick` does
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub(super) report: Option<PathBuf>,
    /// Look for the largest batch that fits. FILE is the same step captured with another batch; for models with open dimensions
    /// name the one that is the batch, whose size `--dim` gives
    #[arg(long, value_name = "FILE|DIM", conflicts_with_all = ["simplify", "output", "report"], value_hint = ValueHint::FilePath)]
    pub(super) max_batch: Option<String>,
    /// The most that a plan for the largest batch may add to the step time
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = percent, requires = "max_batch")]
    pub(super) max_overhead: f64,
}

pub(super) fn run(args: &PlanArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let mut graph = files::graph_of(&args.graph)?;
    let goal = goal(&args.means, args.budget.unwrap_or_default(), seed, output)?;
    if let Some(other) = &args.max_batch {
        return batch::run(&args.graph, (&graph, other), &goal, args.max_overhead, output);
    }
    if args.simplify {
        graph = simplify::graph(&graph, &goal.device, seed, output)?;
    }
    let planned = output.with_tools(|tools| plan(&graph, &goal, tools))?;
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.output {
        let file = plan_json::write(&planned.file(&graph, &goal));
        files::write(path, &files::packed(path, file))?;
    }
    if let Some(path) = &args.report {
        report::write(path, &of_planned(&graph, &goal, &planned))?;
    }
    output.passes();
    if to_stdout {
        return Ok(());
    }
    if output.json {
        return output.object(&objects::plan(&graph, &goal, &planned.summary));
    }
    let rows =
        if output.verbose { output.with_tools(|tools| planned.compare(&goal, tools)) } else { Vec::new() };
    let mut text = String::new();
    if !output.quiet {
        text += &head(&graph, &goal, &planned.summary, args.means.device.is_none());
    }
    let Options { host_budget, disk_budget, .. } = goal.options;
    text += &verdict(&planned, host_budget.is_some() || disk_budget.is_some());
    if let Some(path) = &args.output {
        text += &format!("plan written to {}\n", clean(&path.display().to_string()));
    }
    if let Some(path) = &args.report {
        text += &report::written(path);
    }
    if !output.quiet {
        text += &format!("\n{}", rows_table(&planned, &rows));
    }
    output.print(&text)
}

/// `assumed`: nobody has named the device.
fn head(graph: &Graph, goal: &Goal, summary: &Summary, assumed: bool) -> String {
    format!(
        "{} on {}{} · {} ops · {} values\nbudget {} ({})\n\n",
        clean(graph.name()).bold(),
        clean(&goal.device.name),
        if assumed { " (assumed: see `--device`)" } else { "" },
        grouped(graph.op_count()),
        grouped(graph.value_count()),
        summary.budget,
        goal.budget,
    )
}

fn rows_table(planned: &Planned, rows: &[PlacerRow]) -> String {
    let summary = &planned.summary;
    let over = |bytes: Bytes| format!("{:.4}", bytes.ratio(summary.live_peak));
    let mut lines =
        vec![vec!["without reuse".into(), summary.naive.to_string(), over(summary.naive), String::new()]];
    for row in rows {
        let (peak, ratio) = match &row.peak {
            Ok(peak) => (peak.to_string(), over(*peak)),
            Err(why) => (why.clone(), String::new()),
        };
        lines.push(vec![format!("place:{}", row.name), peak, ratio, format!("{:.1} ms", row.seconds * 1e3)]);
    }
    let bound = |name: &str, bytes: Bytes| vec![name.into(), bytes.to_string(), over(bytes), String::new()];
    lines.push(bound("live bytes at the peak", summary.live_peak));
    lines.push(bound("floor (largest step)", summary.floor));
    if summary.lower_bound < summary.floor {
        lines.push(bound("least with parameters and state elsewhere", summary.lower_bound));
    }
    lines.push(vec![
        "chosen".into(),
        summary.peak.to_string(),
        over(summary.peak),
        format!("{:.0} ms", summary.planning_seconds * 1e3),
    ]);
    table(&["", "device memory", "÷ live", "time"], &[], lines)
}

/// `asks_to_move`: there is other memory that values may wait in.
fn verdict(planned: &Planned, asks_to_move: bool) -> String {
    let summary = &planned.summary;
    let Summary { peak, live_peak, budget, strategy, time, .. } = summary;
    // Beyond the budget is only the arena of a plan whose budget is for what is live in it.
    let fits = if peak > budget {
        format!("{live_peak} ({} B) live of {budget}, in an arena of {peak}", live_peak.0)
    } else {
        format!("{peak} ({} B) of {budget}", peak.0)
    };
    let saved = 1.0 - peak.ratio(summary.naive);
    let mut parts = Vec::new();
    if summary.recompute > Nanos::ZERO {
        let bound = summary.time_bound.0 as f64 / summary.base_time.0 as f64 - 1.0;
        parts.push(format!("{} of ops run again; at least {:+.1} %", summary.recompute, bound * 100.0));
    }
    if summary.offloaded > Bytes::ZERO {
        parts.push(moved(summary));
    }
    if summary.parked > Bytes::ZERO {
        parts.push(format!("{} of parameters and state at home there", summary.parked));
    }
    if summary.encoded > Bytes::ZERO {
        parts.push(format!("{} encoded, which takes {} with decoding", summary.encoded, summary.codec));
    }
    let program = &planned.verified.plan().program;
    let others = program.steps.iter().filter(|step| matches!(step, Step::Compute(run) if run.algorithm > 0));
    match others.count() {
        0 => {}
        count => parts.push(format!("{count} runs by faster algorithms, in memory that is left over")),
    }
    let slower = match parts.as_slice() {
        [] => String::new(),
        parts => format!(", {:+.1} % ({})", summary.overhead() * 100.0, parts.join("; ")),
    };
    let lanes = summary.lanes.map_or(String::new(), |lanes| {
        format!(
            " on {} lanes ({} without the {} dependencies that sharing memory adds)",
            lanes.count, lanes.unhindered, lanes.added_dependencies
        )
    });
    let instead = summary.instead.as_ref().map_or(String::new(), |instead| {
        format!("`{}` did not do its work: {}; `{}` was used\n", instead.strategy, instead.why, instead.used)
    });
    let held = summary.held_by.as_ref().filter(|_| asks_to_move || summary.offloaded > Bytes::ZERO);
    let held = held.map_or(String::new(), |by| format!("{}\n", clean(&memfit::held(by))));
    format!(
        "{} {strategy} fits: {fits}, {:.0} % less than without reuse; step {time}{slower}{lanes}\n{held}{instead}",
        "verified:".green(),
        saved * 100.0
    )
}
