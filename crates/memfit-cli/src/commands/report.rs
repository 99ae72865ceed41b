//! `memfit report`: one page to look at, from a plan, a graph, a snapshot or a training.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::report::html;
use memfit::formats::plan_json;
use memfit::report::{Report, Whose, front, is_run, of_file, of_planned, of_run, of_snapshot, what_if};
use memfit::{Budget, Bytes, Failure, Goal, Graph, check, explain, input, objects, plan};
use serde_json::json;

use super::goal;
use crate::args::{MeansArgs, dim};
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean};

#[derive(Debug, ClapArgs)]
pub(super) struct ReportArgs {
    /// A plan, a graph (which is planned first), a pickle of `torch.cuda.memory._dump_snapshot`, or what `memfit run --json`
    /// printed; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// The graph that a plan was made for: then the judge reads the plan first, and buffers have names
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) graph: Option<PathBuf>,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(super) dim: Vec<(String, u64)>,
    /// Device memory that a graph is planned for [default: all that the step takes]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(super) budget: Option<Budget>,
    /// Index of the device of a snapshot [default: the one that holds most]
    #[arg(long, value_name = "N")]
    pub(super) index: Option<u64>,
    #[command(flatten)]
    pub(super) means: MeansArgs,
    /// Leave out what each means would give by itself: no other plans are made
    #[arg(long, conflicts_with = "front")]
    pub(super) quick: bool,
    /// Also show what each budget costs in time: one plan for each of a few budgets
    #[arg(long)]
    pub(super) front: bool,
    /// The page: one HTML file that needs no network; `-` for standard output
    #[arg(long, short, default_value = "report.html", value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,
}

pub(super) fn run(args: &ReportArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.file)?;
    let about = |failure| files::about(&args.file, failure);
    let report = if input::is_snapshot(&bytes) {
        let mut report = output.with_tools(|tools| of_snapshot(&bytes, args.index, tools)).map_err(about)?;
        if let Some(name) = args.file.file_name() {
            report.title = format!("{} · {}", name.to_string_lossy(), report.title);
        }
        report
    } else if plan_json::is_plan(&bytes) {
        of_plan(args, &bytes, seed, output)?
    } else if is_run(&bytes) {
        of_run(&bytes).map_err(about)?
    } else {
        let options = input::Options { dims: args.dim.iter().cloned().collect() };
        let graph = input::graph(&bytes, &options).map_err(about)?;
        let goal = goal(&args.means, args.budget.unwrap_or(Budget::OfPeak(1.0)), seed, output)?;
        let planned = output.with_tools(|tools| plan(&graph, &goal, tools))?;
        let mut report = of_planned(&graph, &goal, &planned);
        more(&mut report, args, &graph, &goal, output)?;
        report
    };
    output.passes();
    write(&args.output, &report)?;
    if args.output == Path::new("-") {
        return Ok(());
    }
    if output.json {
        return output.object(&json!({
            "schema": objects::SCHEMA,
            "command": "report",
            "status": "done",
            "kind": report.kind.name(),
            "title": report.title,
            "file": args.output.display().to_string(),
            "buffers": report.stays.len(),
        }));
    }
    output.print(&written(&args.output))
}

/// A plan from a file, which the judge reads where its graph is at hand.
fn of_plan(args: &ReportArgs, bytes: &[u8], seed: u64, output: &Output) -> Result<Report, Error> {
    let about = |failure| files::about(&args.file, failure);
    let file = plan_json::read(bytes).map_err(|error| about(error.into()))?;
    let named = args.means.device.as_deref();
    // A device from a file has a name that is no preset's.
    let made_for = input::device(&file.header.device);
    let is_known = named.is_some() || made_for.is_ok();
    let device = match (named, made_for) {
        (Some(name), _) => files::device(name)?,
        (None, Ok(device)) => device,
        (None, Err(_)) => files::device(super::DEVICE)?,
    };
    let Some(path) = &args.graph else {
        let complete = file.plan.program.is_well_formed()
            && file.plan.layout.places.len() == file.plan.program.buffers.len();
        let wrong = || Failure::usage("the plan names what does not exist", "name its graph after it to see where");
        complete.then_some(()).ok_or_else(|| about(wrong()))?;
        return Ok(of_file(&file, Whose { graph: None, device: &device }));
    };
    let graph = files::graph(path, &args.dim)?;
    let (file, _) = check(bytes, &graph, None, &file.header.lossy).map_err(about)?;
    let mut report = of_file(&file, Whose { graph: Some(&graph), device: &device });
    if !is_known {
        let made_for = &file.header.device;
        report.notes.push(format!("Times are those of {}: `--device` may name the file of {made_for}.", device.name));
    }
    let goal = goal(&args.means, Budget::Bytes(file.header.budget), seed, output)?;
    let goal = Goal { device, ..goal };
    more(&mut report, args, &graph, &goal, output)?;
    Ok(report)
}

/// What other plans would give.
fn more(report: &mut Report, args: &ReportArgs, graph: &Graph, goal: &Goal, output: &Output) -> Result<(), Error> {
    if args.quick {
        return Ok(());
    }
    let goal = Goal { budget: within(report, goal.budget), ..goal.clone() };
    let found = match output.with_tools(|tools| explain(graph, &goal, 1, 0, tools)) {
        Ok(found) => Some(found),
        Err(Failure::Timeout(_)) => None,
        Err(failure) => return Err(failure.into()),
    };
    report.what_if = output.with_tools(|tools| what_if(graph, &goal, found.as_ref(), tools))?;
    if args.front {
        report.front.push(output.with_tools(|tools| front(graph, &goal, tools))?);
    }
    Ok(())
}

/// The budget in bytes, as the report says that it was resolved.
fn within(report: &Report, budget: Budget) -> Budget {
    let said = report.levels.iter().find(|(name, _)| name == "budget").map(|&(_, bytes)| bytes);
    said.filter(|bytes| *bytes > Bytes::ZERO).map_or(budget, Budget::Bytes)
}

/// Writes the page.
pub(super) fn write(path: &Path, report: &Report) -> Result<(), Error> {
    files::write(path, html(report).as_bytes())
}

/// What is said of it.
pub(super) fn written(path: &Path) -> String {
    format!("report written to {}: open it in a browser\n", clean(&path.display().to_string()))
}
