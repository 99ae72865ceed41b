//! Measurements against baselines in the same run. One file is one bench; each prints one table. `cargo xtask bench` runs this
//! program, from the root of the repository, and keeps what it prints where it is asked to.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of the developers")]

mod auto;
mod burn;
mod ordering;
mod placement;
mod plan;
mod reuse;
mod tight;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use memfit::{Graph, input};

/// Measure beside baselines in the same run, and print a table
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    after_help = "`--record` also writes the table to `bench/record/`, by `cargo xtask bench`."
)]
struct Args {
    /// Which one
    #[arg(value_enum)]
    name: Bench,
    #[command(flatten)]
    filter: auto::Filter,
}

/// The benches there are.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Bench {
    /// `auto` beside every named scheduler that is quick: graphs of the corpus, budgets, links
    Auto,
    /// `auto` beside torchtitan's planner and memory policies and PyTorch's knapsack: networks of blocks, budgets, links
    Peers,
    /// What in-place, co-share and both give on the corpus, against one buffer for each output
    Reuse,
    /// The peak of every order on the corpus and on large generated graphs, against the lower bound
    Ordering,
    /// Every placer against the lower bound on published and generated instances, and the goals for `best`
    Placement,
    /// `best` on ten tight problems of 300 to 500 buffers, with the bound as capacity
    Tight,
    /// What `memfit plan` makes of each corpus graph, and how long it takes
    Plan,
    /// What recomputation costs in time on published graphs and the corpus, against the published figures
    Recompute,
    /// Time of the online engine for each call, with and without eviction
    Engine,
    /// `memfit run`: every network in four budgets, compared bit by bit
    BurnGrid,
    /// What memfit adds to a training with Burn where nothing is evicted
    BurnOverhead,
    /// memfit in the memory that Burn's own checkpointing takes, and the time of both
    BurnBalanced,
    /// The largest batches in the memory of a batch of 8
    BurnBatch,
    /// Networks of `memfit run` by plans of `auto` with host memory: bits, and the step beside its prediction
    BurnExecuted,
}

fn main() -> Result<()> {
    let Args { name, filter } = Args::parse();
    let text = match name {
        Bench::Auto => auto::run(&filter)?,
        Bench::Peers => auto::peers(&filter)?,
        Bench::Reuse => reuse::run()?,
        Bench::Ordering => ordering::run()?,
        Bench::Placement => placement::run()?,
        Bench::Tight => tight::run()?,
        Bench::Plan => plan::run()?,
        Bench::Recompute => example("memfit-plan", "recompute_bench")?,
        Bench::BurnGrid => burn::grid()?,
        Bench::BurnOverhead => burn::overhead()?,
        Bench::BurnBalanced => burn::balanced()?,
        Bench::BurnBatch => burn::batch()?,
        Bench::BurnExecuted => burn::executed()?,
        Bench::Engine => example("memfit-engine", "engine_cost")?,
    };
    println!("{text}");
    Ok(())
}

/// What a bench prints that stands beside its crate as an example.
fn example(package: &str, name: &str) -> Result<String> {
    let cargo = ["run", "--release", "--quiet", "--package", package, "--example", name];
    let output = Command::new("cargo").args(cargo).stderr(Stdio::inherit()).output();
    let output = output.context("can't start `cargo`")?;
    ensure!(output.status.success(), "the example `{name}` failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every graph of the corpus with its name, in the order of the names.
fn corpus() -> Result<Vec<(String, Graph)>> {
    graphs_of("corpus/graphs")
}

/// Every graph in `folder` with its name, in the order of the names.
fn graphs_of(folder: &str) -> Result<Vec<(String, Graph)>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".json.zst"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let graph = input::graph(&std::fs::read(&path)?, &input::Options::default())?;
        let name =
            path.file_name().unwrap_or_default().to_string_lossy().trim_end_matches(".json.zst").to_owned();
        Ok((name, graph))
    };
    paths.into_iter().map(read).collect()
}

/// A Markdown table.
fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        // Writing to a string can't fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
