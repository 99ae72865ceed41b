//! `memfit sweep`: what each budget costs in time. `memfit compare`: what each strategy makes of one budget.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::svg::{Series, line_plot};
use memfit::{Budget, Failure, Graph, Outcome, compare, objects, sweep};

use super::goal;
use crate::args::{GraphArgs, MeansArgs};
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, table};

#[derive(Debug, ClapArgs)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub(super) graph: GraphArgs,
    /// Device memory the step may use, as for `memfit plan`
    #[arg(long, short, value_name = "SIZE|%")]
    pub(super) budget: Option<Budget>,
    #[command(flatten)]
    pub(super) means: MeansArgs,
}

#[derive(Debug, ClapArgs)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    pub(super) graph: GraphArgs,
    /// A budget to try; may be given several times [default: from the peak down to the floor]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(super) budget: Vec<Budget>,
    /// Number of steps between the peak and the floor
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) points: u32,
    #[command(flatten)]
    pub(super) means: MeansArgs,
    /// Write the curve to this file
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(super) svg: Option<PathBuf>,
}

pub(super) fn run_compare(args: &CompareArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let graph = files::graph(&args.graph.graph, &args.graph.dim)?;
    let goal = goal(&args.means, args.budget.unwrap_or_default(), seed, output)?;
    let outcomes = output.with_tools(|tools| compare(&graph, &goal, tools))?;
    output.passes();
    if output.json {
        return output.object(&objects::compared(&graph, &goal, &outcomes));
    }
    output.print(&(head(&graph, &goal.budget.to_string()) + &rows("strategy", &outcomes)))
}

pub(super) fn run_sweep(args: &SweepArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let graph = files::graph(&args.graph.graph, &args.graph.dim)?;
    let goal = goal(&args.means, Budget::OfPeak(1.0), seed, output)?;
    let budgets: Vec<Budget> = if args.budget.is_empty() {
        let above = |step: u32| Budget::AboveFloor(1.0 - f64::from(step) / f64::from(args.points));
        (0..=args.points).map(above).collect()
    } else {
        args.budget.clone()
    };
    let outcomes = output.with_tools(|tools| sweep(&graph, &goal, &budgets, tools))?;
    output.passes();
    if let Some(path) = &args.svg {
        let fits = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
        let points =
            fits.map(|s| (s.budget.ratio(s.unconstrained_peak) * 100.0, s.overhead() * 100.0)).collect();
        let series = Series { name: "memfit plan".to_owned(), points };
        let plot = line_plot(graph.name(), "budget, % of the unconstrained peak", "extra time, %", &[series]);
        files::write(path, plot.as_bytes())?;
    }
    if output.json {
        return output.object(&objects::swept(&graph, &goal, &outcomes));
    }
    output.print(&(head(&graph, "several") + &rows("budget", &outcomes)))
}

fn head(graph: &Graph, budget: &str) -> String {
    format!("{} · {} ops · budget {budget}\n\n", clean(graph.name()), graph.op_count())
}

fn rows(first: &str, outcomes: &[Outcome]) -> String {
    let rows = outcomes.iter().map(|outcome| {
        let seconds = format!("{:.3} s", outcome.seconds);
        match &outcome.result {
            Ok(summary) => vec![
                outcome.name.clone(),
                summary.budget.to_string(),
                summary.peak.to_string(),
                format!("{:+.2} %", summary.overhead() * 100.0),
                seconds,
                summary.instead.as_ref().map_or("verified".to_owned(), |instead| {
                    format!("verified, by `{}`: {}", instead.used, instead.why)
                }),
            ],
            Err(Failure::Infeasible(why)) => vec![
                outcome.name.clone(),
                why.budget.to_string(),
                why.needed.to_string(),
                String::new(),
                seconds,
                if why.proved { "proved not to fit" } else { "does not fit" }.to_owned(),
            ],
            Err(Failure::Timeout(Some(so_far))) => vec![
                outcome.name.clone(),
                so_far.budget.to_string(),
                so_far.needed.to_string(),
                String::new(),
                seconds,
                "does not fit so far: its time was over".to_owned(),
            ],
            Err(Failure::Timeout(None)) => {
                let none = String::new();
                vec![outcome.name.clone(), none.clone(), none.clone(), none, seconds, "not tried".to_owned()]
            }
            Err(failure) => {
                let why = failure.to_string();
                vec![outcome.name.clone(), String::new(), String::new(), String::new(), seconds, why]
            }
        }
    });
    table(&[first, "budget", "needs", "extra time", "planning", ""], &[5], rows.collect())
}
