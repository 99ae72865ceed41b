//! `memfit plan --max-batch`: the largest batch that fits the budget, with a plan and without.

use std::path::Path;

use memfit::{Batches, Failure, Goal, Graph, Largest, largest, objects};

use crate::args::GraphArgs;
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, grouped, table};

/// `other`: another file of the step that is in `graph`, or the open dimension of its model that is the batch.
pub(super) fn run(
    args: &GraphArgs,
    (graph, other): (&Graph, &str),
    goal: &Goal,
    overhead: f64,
    output: &Output,
) -> Result<(), Error> {
    let (twin, rows) = match args.dim.iter().find(|(name, _)| name == other) {
        Some(&(_, rows)) => {
            let double = rows.checked_mul(2).ok_or_else(|| {
                Failure::usage(
                    format!("`--dim {other}={rows}` is too large"),
                    "give a batch that can be doubled",
                )
            })?;
            let mut args = args.clone();
            for dim in args.dim.iter_mut().filter(|(name, _)| name == other) {
                dim.1 = double;
            }
            (files::graph_of(&args)?, Some([rows, double]))
        }
        None => (files::graph(Path::new(other), &args.dim)?, None),
    };
    let batches = Batches::of(graph, &twin, rows)?;
    let found = output.with_tools(|tools| largest(&batches, goal, overhead, tools))?;
    output.passes();
    if output.json {
        output.object(&objects::largest(graph.name(), goal, &found))?;
    } else {
        output.print(&text(graph, goal, &found, output.quiet))?;
    }
    if found.within == 0 { Err(Error::Silent(1)) } else { Ok(()) }
}

fn text(graph: &Graph, goal: &Goal, found: &Largest, quiet: bool) -> String {
    let number = |rows: u64| grouped(usize::try_from(rows).unwrap_or(usize::MAX));
    let count = |rows: u64| if rows == 0 { "none".to_owned() } else { number(rows) };
    let time =
        found.tried.iter().find(|tried| tried.rows == found.within).and_then(|tried| tried.plan.as_ref());
    let time = time.map_or(String::new(), |plan| format!(", {:+.1} %", plan.overhead() * 100.0));
    let mut text = String::new();
    if !quiet {
        let head = ["batch", "without a plan", "with one", "step", "extra time", ""];
        let rows = found.tried.iter().map(|tried| {
            let mut row = vec![number(tried.rows), tried.without.to_string()];
            row.extend(match &tried.plan {
                Some(plan) => {
                    let slow = if plan.overhead() > found.overhead { "too slow" } else { "fits" };
                    let extra = format!("{:+.1} %", plan.overhead() * 100.0);
                    [plan.peak.to_string(), plan.time.to_string(), extra, slow.to_owned()]
                }
                None => [String::new(), String::new(), String::new(), "does not fit".to_owned()],
            });
            row
        });
        let (name, device) = (clean(graph.name()), clean(&goal.device.name));
        text += &format!("{name} on {device} · budget {}\n\n", found.budget);
        text += &format!("{}\n", table(&head, &[head.len() - 1], rows.collect()));
    }
    let cut = if found.cut { "; the time was over: there may be a larger one" } else { "" };
    let most = found.overhead * 100.0;
    text + &format!(
        "largest batch: {} without a plan, {} with one that adds at most {most} %{time}{cut}\n",
        count(found.without),
        count(found.within),
    )
}
