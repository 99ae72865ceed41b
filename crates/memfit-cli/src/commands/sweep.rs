//! `memfit sweep`: what each budget costs in time. `memfit compare`: what each strategy makes of one budget.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::svg::{Series, line_plot};
use memfit::{Budget, Bytes, Failure, Graph, Outcome, Summary, compare, objects, sweep};

use super::{goal, moved};
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
    /// Amounts of host memory to try each budget with, in a list: `0,4GiB,16GiB` [default with `--host-budget`: nothing, a
    /// quarter of it, all of it]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    pub(super) host_budgets: Vec<Bytes>,
    #[command(flatten)]
    pub(super) means: MeansArgs,
    /// Write the curves to this file
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(super) svg: Option<PathBuf>,
}

pub(super) fn run_compare(args: &CompareArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let graph = files::graph_of(&args.graph)?;
    let goal = goal(&args.means, args.budget.unwrap_or_default(), seed, output)?;
    let outcomes = output.with_tools(|tools| compare(&graph, &goal, tools))?;
    output.passes();
    if output.json {
        return output.object(&objects::compared(&graph, &goal, &outcomes));
    }
    output.print(&(head(&graph, &goal.budget.to_string()) + &rows("strategy", &outcomes)))
}

pub(super) fn run_sweep(args: &SweepArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let graph = files::graph_of(&args.graph)?;
    let goal = goal(&args.means, Budget::OfPeak(1.0), seed, output)?;
    let budgets: Vec<Budget> = if args.budget.is_empty() {
        let above = |step: u32| Budget::AboveFloor(1.0 - f64::from(step) / f64::from(args.points));
        (0..=args.points).map(above).collect()
    } else {
        args.budget.clone()
    };
    let hosts = match (&args.host_budgets[..], goal.options.host_budget) {
        ([], Some(all)) if all > Bytes::ZERO => vec![Bytes::ZERO, Bytes(all.0 / 4), all],
        (hosts, _) => hosts.to_vec(),
    };
    let outcomes = output.with_tools(|tools| sweep(&graph, &goal, &budgets, &hosts, tools))?;
    output.passes();
    if let Some(path) = &args.svg {
        let plot = line_plot(
            graph.name(),
            "budget, % of the unconstrained peak",
            "extra time, %",
            &curves(&outcomes, &hosts),
        );
        files::write(path, plot.as_bytes())?;
    }
    if output.json {
        return output.object(&objects::swept(&graph, &goal, &outcomes));
    }
    output.print(&(head(&graph, "several") + &rows("budget", &outcomes)))
}

/// A curve for each amount of host memory.
fn curves(outcomes: &[Outcome], hosts: &[Bytes]) -> Vec<Series> {
    let curve = |host: Option<Bytes>| {
        let name = match host {
            None => "memfit plan".to_owned(),
            Some(Bytes::ZERO) => "no host memory".to_owned(),
            Some(host) => format!("{host} of host memory"),
        };
        let rows = outcomes.iter().filter(|outcome| outcome.host_budget == host);
        let fits = rows.filter_map(|outcome| outcome.result.as_ref().ok());
        let points =
            fits.map(|s| (s.budget.ratio(s.unconstrained_peak) * 100.0, s.overhead() * 100.0)).collect();
        Series { name, points }
    };
    if hosts.is_empty() { vec![curve(None)] } else { hosts.iter().map(|&host| curve(Some(host))).collect() }
}

fn head(graph: &Graph, budget: &str) -> String {
    format!("{} · {} ops · budget {budget}\n\n", clean(graph.name()), graph.op_count())
}

/// The table of `outcomes`, with what was moved where something was.
fn rows(first: &str, outcomes: &[Outcome]) -> String {
    let moves = |outcome: &Outcome| outcome.result.as_ref().is_ok_and(|s| s.offloaded > Bytes::ZERO);
    let moves = outcomes.iter().any(moves);
    let has_hosts = outcomes.iter().any(|outcome| outcome.host_budget.is_some());
    let columns = |named: [&str; 4], moved: [&str; 6], last: [&str; 2]| -> Vec<String> {
        let [name, rest @ ..] = named;
        let host = has_hosts.then_some("host budget");
        let moved = if moves { &moved[..] } else { &[] };
        let cells = [name].into_iter().chain(host).chain(rest).chain(moved.iter().copied()).chain(last);
        cells.map(str::to_owned).collect()
    };
    let head = columns([first, "budget", "needs", "extra time"], moved::COLUMNS, ["planning", ""]);
    let rows = outcomes.iter().map(|outcome| {
        let seconds = format!("{:.3} s", outcome.seconds);
        let Row { budget, needs, time, moved, verdict } = Row::of(outcome);
        let mut row = vec![outcome.name.clone()];
        row.extend(outcome.host_budget.filter(|_| has_hosts).map(|host| host.to_string()));
        row.extend([budget, needs, time]);
        row.extend(moved.into_iter().filter(|_| moves));
        row.extend([seconds, verdict]);
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, &[head.len() - 1], rows)
}

/// What a row says of a plan, or why there is none.
#[derive(Default)]
struct Row {
    budget: String,
    needs: String,
    time: String,
    moved: [String; 6],
    verdict: String,
}

impl Row {
    fn of(outcome: &Outcome) -> Row {
        let missed = |budget: Bytes, needed: Bytes, verdict: &str| Row {
            budget: budget.to_string(),
            needs: needed.to_string(),
            verdict: verdict.to_owned(),
            ..Row::default()
        };
        match &outcome.result {
            Ok(summary) => Row {
                budget: summary.budget.to_string(),
                needs: summary.peak.to_string(),
                time: format!("{:+.2} %", summary.overhead() * 100.0),
                moved: moved::cells(summary),
                verdict: verdict(summary),
            },
            Err(Failure::Infeasible(why)) => {
                missed(why.budget, why.needed, if why.proved { "proved not to fit" } else { "does not fit" })
            }
            Err(Failure::Timeout(Some(so_far))) => {
                missed(so_far.budget, so_far.needed, "does not fit so far: its time was over")
            }
            Err(Failure::Timeout(None)) => Row { verdict: "not tried".to_owned(), ..Row::default() },
            Err(failure) => Row { verdict: failure.to_string(), ..Row::default() },
        }
    }
}

/// That a plan was verified, who made it instead of who was asked, and what keeps its peak from being lowered.
fn verdict(summary: &Summary) -> String {
    let mut verdict = "verified".to_owned();
    if let Some(instead) = &summary.instead {
        verdict += &format!(", by `{}`: {}", instead.used, instead.why);
    }
    if let Some(by) = summary.held_by.as_ref().filter(|_| summary.offloaded > Bytes::ZERO) {
        verdict += &format!("; {}", memfit::held(by));
    }
    verdict
}
