//! `memfit simplify`: a graph that computes the same of fewer ops, and what each pass saved.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::graph_json;
use memfit::strategies::simplify::Finding;
use memfit::{
    Budget, Bytes, Device, Figures, Goal, Graph, Nanos, Options, Simplification, objects, simplify,
};
use owo_colors::OwoColorize as _;

use crate::args::GraphArgs;
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, grouped, table};

#[derive(Debug, ClapArgs)]
pub(super) struct SimplifyArgs {
    #[command(flatten)]
    pub(super) graph: GraphArgs,
    /// Write the simplified graph to this file (`.json` or `.json.zst`); `-` for standard output
    #[arg(long, short, value_name = "GRAPH", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Device that alignment and times come from: a preset or a TOML file [default: A100-80]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(super) device: Option<String>,
    /// List this many of the largest groups that could be fused, and of the values that could be computed ahead
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(super) top: usize,
}

pub(super) fn run(args: &SimplifyArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let graph = files::graph_of(&args.graph)?;
    let device = files::device(args.device.as_deref().unwrap_or(super::DEVICE))?;
    let goal = goal(device, seed);
    let made = output.with_tools(|tools| simplify(&graph, &goal, tools))?;
    if let Some(path) = &args.output {
        files::write(path, &files::packed(path, graph_json::write(&made.rewrite.graph)))?;
    }
    output.passes();
    if args.output.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    if output.json {
        return output.object(&objects::simplification(&graph, &goal, &made));
    }
    let mut text = String::new();
    if !output.quiet {
        text +=
            &format!("{} on {}\n\n{}\n", clean(graph.name()).bold(), clean(&goal.device.name), passes(&made));
    }
    text += &verdict(&made);
    if let Some(path) = &args.output {
        text += &format!("graph written to {}\n", clean(&path.display().to_string()));
    }
    if !output.quiet {
        let new = &made.rewrite.graph;
        text +=
            &listed(new, "values that can be computed ahead, from constants alone", &made.ahead, args.top);
        text += &listed(new, "groups of ops that a compiler can fuse", &made.groups, args.top);
    }
    output.print(&text)
}

/// Every command simplifies by this goal, so that the same graph comes out of all of them.
fn goal(device: Device, seed: u64) -> Goal {
    Goal { budget: Budget::Device, device, options: Options { seed, ..Options::default() } }
}

/// The simplified graph, for the command that plans it.
pub(super) fn graph(graph: &Graph, device: &Device, seed: u64, output: &Output) -> Result<Graph, Error> {
    let goal = goal(device.clone(), seed);
    Ok(output.with_tools(|tools| simplify(graph, &goal, tools))?.rewrite.graph)
}

fn passes(made: &Simplification) -> String {
    let row = |pass: &memfit::strategies::simplify::Kept| {
        vec![
            pass.pass.to_owned(),
            grouped(pass.ops),
            grouped(pass.values),
            pass.live.to_string(),
            if pass.undone > 0 { grouped(pass.undone) } else { String::new() },
        ]
    };
    let head = ["pass", "ops removed", "values removed", "live peak saved", "undone"];
    table(&head, &[], made.passes.iter().map(row).collect())
}

fn verdict(made: &Simplification) -> String {
    let row = |name: &str, figures: &Figures| {
        let Figures { ops, values, live_peak, peak, time } = figures;
        vec![
            name.to_owned(),
            grouped(*ops),
            grouped(*values),
            live_peak.to_string(),
            format!("{peak} ({} B)", peak.0),
            time.to_string(),
        ]
    };
    let mut rows = vec![row("as given", &made.before), row("simplified", &made.after)];
    if !made.groups.is_empty() {
        rows.push(row("fused by a compiler", &made.fused));
    }
    let head = ["", "ops", "values", "live peak", "planned peak", "predicted time"];
    let mut text = table(&head, &[], rows);
    if !made.left_out.is_empty() {
        text += &format!("left out, since the planned peak would rise: {}\n", made.left_out.join(", "));
    }
    text + "verified: the simplified graph computes the same results\n"
}

fn listed(graph: &Graph, title: &str, findings: &[Finding], top: usize) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let inner = |finding: &Finding| finding.inner.iter().map(|&value| graph.value(value).size).sum::<Bytes>();
    let ops: usize = findings.iter().map(|finding| finding.ops.len()).sum();
    let moved: Bytes = findings.iter().map(|finding| finding.moved).sum();
    let time = findings.iter().fold(Nanos::ZERO, |sum, finding| sum + finding.time);
    let mut text = format!(
        "\n{title}: {} with {} ops; {moved} less to move, {time} less\n",
        grouped(findings.len()),
        grouped(ops)
    );
    let mut largest: Vec<&Finding> = findings.iter().collect();
    largest.sort_by_key(|finding| (std::cmp::Reverse(finding.moved), finding.ops[0]));
    let row = |finding: &&Finding| {
        let name = |at: usize| clean(graph.op(finding.ops[at]).name);
        let last = finding.ops.len() - 1;
        let span = if last > 0 { format!("{} … {}", name(0), name(last)) } else { name(0) };
        vec![
            format!("  {span}"),
            format!("{} ops", finding.ops.len()),
            format!("{} not stored", inner(finding)),
            format!("{} less to move", finding.moved),
            finding.time.to_string(),
        ]
    };
    text += &table(&[], &[], largest.iter().take(top).map(row).collect());
    text
}
