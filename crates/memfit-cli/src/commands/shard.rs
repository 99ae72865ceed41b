//! `memfit shard`: a training step as one of N ranks runs it that share what lasts.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::graph_json;
use memfit::strategies::shard::{Ring, Sharding, Stage, stage};
use memfit::{Bytes, Comparison, Failure, Nanos, Rank, objects, shard};
use owo_colors::OwoColorize as _;

use crate::args::GraphArgs;
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, grouped, table};

#[derive(Debug, ClapArgs)]
pub(super) struct ShardArgs {
    #[command(flatten)]
    graph: GraphArgs,
    /// Ranks that run the step together, each on a batch of its own: two or more
    #[arg(long, value_name = "N")]
    ranks: u32,
    /// Each rank holds a share of the optimizer state (ZeRO stage 1)
    #[arg(long)]
    state: bool,
    /// And of the gradients (ZeRO stage 2)
    #[arg(long)]
    gradients: bool,
    /// And of the parameters, which are gathered before use (ZeRO stage 3, FSDP)
    #[arg(long)]
    parameters: bool,
    /// Gradients have memory of their own for the whole step, as the buckets of `DistributedDataParallel`; with `--state`
    #[arg(long)]
    buckets: bool,
    /// Gather the parameters of such a module together, as `fully_shard` does: `layers.*`, in which `*` is any one component; may be
    /// given several times; with `--parameters`
    #[arg(long, value_name = "MODULE")]
    unit: Vec<String>,
    /// Bytes per second that a rank sends to the next
    #[arg(long, default_value = "25GB/s", value_name = "RATE", value_parser = rate)]
    link: f64,
    /// Latency of one round of a collective op, in microseconds
    #[arg(long, default_value_t = 5, value_name = "MICROSECONDS")]
    latency: u32,
    /// Device the step runs on: a preset or a TOML file [default: A100-80]
    #[arg(long, value_name = "NAME|FILE.toml")]
    device: Option<String>,
    /// Write the step of one rank to this file (`.json` or `.json.zst`); `-` for standard output
    #[arg(long, short, value_name = "GRAPH", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// `25GB/s`, in bytes per second.
fn rate(text: &str) -> Result<f64, String> {
    let size = text.trim().trim_end_matches("/s").parse::<Bytes>();
    match size {
        Ok(bytes) if bytes > Bytes::ZERO => Ok(bytes.0 as f64),
        _ => Err(format!("`{text}` is not a rate: write `25GB/s`, or bytes per second")),
    }
}

pub(super) fn run(args: &ShardArgs, output: &Output) -> Result<(), Error> {
    let name = match (args.parameters, args.gradients, args.state) {
        (true, _, _) => "parameters",
        (false, true, _) => "gradients",
        (false, false, true) => "state",
        (false, false, false) => {
            let hint =
                "`--state`, `--gradients` or `--parameters`; each shares what the one before does, too";
            return Err(Failure::usage("nothing is to be shared", hint).into());
        }
    };
    let stage = stage(name)
        .ok_or_else(|| Failure::usage(format!("there is no stage `{name}`"), "`memfit shard --help`"))?;
    let graph = files::graph_of(&args.graph)?;
    let device = files::device(args.device.as_deref().unwrap_or(super::DEVICE))?;
    let ring = Ring { bandwidth: args.link, latency: Nanos(u64::from(args.latency) * 1000) };
    let (ranks, buckets, units) = (args.ranks, args.buckets, &args.unit[..]);
    let sharding = Sharding { ranks, stage, ring, buckets, units };
    let found = shard(&graph, &device, &sharding).map_err(|failure| match failure {
        Failure::Input(_) => files::about(&args.graph.graph, failure),
        other => other.into(),
    })?;
    if let Some(path) = &args.output {
        files::write(path, &files::packed(path, graph_json::write(&found.after.graph)))?;
        if path == Path::new("-") {
            return Ok(());
        }
    }
    if output.json {
        return output.object(&objects::sharded(&sharding, &device, &found));
    }
    let mut text = String::new();
    if !output.quiet {
        text += &head(args, stage, &device.name);
    }
    text += &rows(&found);
    if let Some(path) = &args.output {
        text += &format!("\nstep of one rank written to {}\n", clean(&path.display().to_string()));
    }
    output.print(&text)
}

fn head(args: &ShardArgs, stage: &dyn Stage, device: &str) -> String {
    let assumed = if args.device.is_none() { " (assumed: see `--device`)" } else { "" };
    format!(
        "{} ranks, {} · {}{assumed} · {} GB/s between ranks, {} µs a round\n\n",
        args.ranks.bold(),
        stage.info().summary,
        clean(device),
        args.link / 1e9,
        args.latency,
    )
}

fn rows(found: &Comparison) -> String {
    let Comparison { before, after } = found;
    let bytes = |name: &str, of: fn(&Rank) -> Bytes| {
        let (before, after) = (of(before), of(after));
        let change = match before {
            Bytes::ZERO => String::new(),
            _ => format!("{:+.0} %", (after.ratio(before) - 1.0) * 100.0),
        };
        vec![name.to_owned(), before.to_string(), after.to_string(), change]
    };
    let times = |name: &str, of: fn(&Rank) -> Nanos| {
        let change = match of(before).0 {
            0 => String::new(),
            time => format!("{:+.0} %", (of(after).0 as f64 / time as f64 - 1.0) * 100.0),
        };
        vec![name.to_owned(), of(before).to_string(), of(after).to_string(), change]
    };
    let count = |rank: &Rank| grouped(usize::try_from(rank.traffic.count).unwrap_or(usize::MAX));
    table(
        &["on each rank", "nothing shared", "shared", ""],
        &[],
        vec![
            bytes("parameters", |rank| rank.holdings.parameters),
            bytes("gradients, all of them", |rank| rank.holdings.gradients),
            bytes("optimizer state", |rank| rank.holdings.state),
            bytes("  together", |rank| rank.holdings.model()),
            bytes("persistent", |rank| rank.holdings.persistent()),
            bytes("live bytes at the peak", |rank| rank.live_peak),
            bytes("floor (largest step)", |rank| rank.floor),
            bytes("sent in a step", |rank| rank.traffic.sent),
            vec!["collective ops".to_owned(), count(before), count(after), String::new()],
            times("  time of these", |rank| rank.traffic.time),
            times("time of a step", |rank| rank.time),
        ],
    )
}
