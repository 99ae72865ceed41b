//! `memfit report`: one page to look at, from a plan, a graph, a snapshot or a training.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::report::{Kind, html};
use memfit::report::{Asked, Report};
use memfit::{Budget, objects};
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
    /// The graph that a plan was made for: then the verifier checks the plan first, and buffers have names
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
    /// Leave out what each means would give by itself: no other plans are made. Without, steps of more than 4,000 ops have it
    /// only with a time limit
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
    let goal = goal(&args.means, args.budget.unwrap_or(Budget::OfPeak(1.0)), seed, output)?;
    let asked = Asked {
        file: &bytes,
        reading: files::options(&args.dim),
        graph: args.graph.as_ref().map(|path| files::graph(path, &args.dim)).transpose()?,
        device: args.means.device.as_ref().map(|_| goal.device.clone()),
        assumed: goal.device,
        budget: args.budget,
        options: goal.options,
        index: args.index,
        what_if: !args.quick,
        front: args.front,
    };
    let mut report = output
        .with_tools(|tools| asked.report(tools))
        .map_err(|failure| files::about(&args.file, failure))?;
    if let (Kind::Snapshot, Some(name)) = (report.kind, args.file.file_name()) {
        report.title = format!("{} · {}", name.to_string_lossy(), report.title);
    }
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

/// Writes the page.
pub(in crate::commands) fn write(path: &Path, report: &Report) -> Result<(), Error> {
    files::write(path, html(report).as_bytes())
}

/// What is said of it.
pub(in crate::commands) fn written(path: &Path) -> String {
    format!("report written to {}: open it in a browser\n", clean(&path.display().to_string()))
}
