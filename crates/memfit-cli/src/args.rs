//! What may stand on the command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use memfit::strategies::families::{self, default_of};
use memfit::{Budget, Bytes, LaneRule, Means, Options};

use crate::commands::Form;

/// Makes deep-learning training and inference fit in a memory budget, exactly and provably
#[derive(Debug, Parser)]
#[command(name = "memfit", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "exit codes: 0 fits · 1 does not fit · 2 usage · 3 bad input · 4 plan and graph differ · \
                        5 resources or time · 6 verification failed · 70 bug in memfit · 130 interrupted"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of every command
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Common {
    /// Print one JSON object instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print less: only what was asked for, no tables around it
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more: seconds of each pass
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Start of every random sequence; the same seed gives the same plan on every machine
    #[arg(long, global = true, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// Search for this long and return the best so far [default: a fixed amount of work]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('s').trim();
    match number.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds")),
    }
}

fn dim(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let dim = parts.and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    dim.ok_or_else(|| format!("`{text}` is not `NAME=SIZE`"))
}

/// A graph file and how to read it
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct GraphArgs {
    /// The graph: JSON (`memfit-graph/1`, Checkmate's, G10's; plain or zstd), ONNX or text; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) graph: PathBuf,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`; may be given several times
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(crate) dim: Vec<(String, u64)>,
}

/// Where the step runs and which means may be used
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MeansArgs {
    /// Device the step runs on: a preset (`memfit strategies` lists them) or a TOML file [default: A100-80]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) device: Option<String>,
    #[arg(long, value_name = "FAMILY:NAME", help = strategy_help())]
    pub(crate) strategy: Vec<String>,
    /// Order the ops run in, short for `--strategy order:NAME`
    #[arg(long, value_name = "NAME")]
    pub(crate) order: Option<String>,
    /// Placer that chooses offsets, short for `--strategy place:NAME`
    #[arg(long, value_name = "NAME")]
    pub(crate) placer: Option<String>,
    /// Run every op once, even if the step then does not fit
    #[arg(long)]
    pub(crate) no_recompute: bool,
    /// Move values to this much host memory and back where that is faster than to run ops again [default with `offload:NAME`
    /// and `hybrid:NAME`: what the device file says]
    #[arg(long, value_name = "SIZE")]
    pub(crate) host_budget: Option<Bytes>,
    /// Move values to this much of the device's disk too [default with `offload:NAME` and `hybrid:NAME`: what the device file
    /// says]
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk_budget: Option<Bytes>,
    /// Move nothing, whatever else is said
    #[arg(long, conflicts_with_all = ["host_budget", "disk_budget"])]
    pub(crate) no_offload: bool,
    /// Random ops may run again: the host replays the state of their generator [default: as the graph says]
    #[arg(long, conflicts_with = "no_replay_random")]
    pub(crate) replay_random: bool,
    /// Random ops run once, whatever the graph says of its host
    #[arg(long)]
    pub(crate) no_replay_random: bool,
    /// Spread the ops over this many lanes; sharing memory then orders no two ops that the graph leaves
    /// unordered
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) lanes: u16,
    /// On several lanes, let ops wait for each other to save memory
    #[arg(long, conflicts_with = "colour_lanes")]
    pub(crate) allow_serialize: bool,
    /// On several lanes, share memory within longest paths only, as MXNet does
    #[arg(long)]
    pub(crate) colour_lanes: bool,
    /// Never put an output over an input unless the graph demands it
    #[arg(long)]
    pub(crate) no_in_place: bool,
    /// Never let two buffers share bytes over time
    #[arg(long)]
    pub(crate) no_co_share: bool,
}

fn strategy_help() -> String {
    format!(
        "Strategy to use instead of the default: {}; may be given several times. `budget:live` bounds live bytes instead of \
         the arena, for hosts that choose addresses themselves",
        families::forms()
    )
}

impl MeansArgs {
    /// What they say of a plan; seed and effort are common to all commands.
    pub(crate) fn options(&self) -> Options {
        let short = [("order", &self.order), ("place", &self.placer)];
        let named =
            short.into_iter().filter_map(|(family, name)| Some(format!("{family}:{}", name.as_ref()?)));
        Options {
            strategies: self.strategy.iter().cloned().chain(named).collect(),
            means: Means { recompute: !self.no_recompute, offload: !self.no_offload, compress: true },
            host_budget: self.host_budget,
            disk_budget: self.disk_budget,
            replays_random: match (self.replay_random, self.no_replay_random) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
            lanes: self.lanes,
            lane_rule: match (self.allow_serialize, self.colour_lanes) {
                (true, _) => LaneRule::AllowSerialize,
                (false, true) => LaneRule::Colours,
                (false, false) => LaneRule::Reachable,
            },
            in_place: !self.no_in_place,
            co_share: !self.no_co_share,
            ..Options::default()
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a plan that fits the budget, and verify it
    Plan(PlanArgs),
    /// Have the judge read a plan
    Check(CheckArgs),
    /// Show what holds the memory at the peak of a graph or a CUDA memory snapshot, and what would help
    Explain(ExplainArgs),
    /// Choose offsets for a list of buffers
    Place(PlaceArgs),
    /// Show what every strategy makes of one budget
    Compare(CompareArgs),
    /// Show what each budget costs in time
    Sweep(SweepArgs),
    /// Run a recorded step under a budget, online, in virtual time
    Replay(ReplayArgs),
    /// Train a real network within a budget, and show that it learns the same
    #[cfg(feature = "run")]
    Run(crate::commands::RunArgs),
    /// Write the offsets of a plan for firmware, runtimes and scripts
    Export(ExportArgs),
    /// List what memfit can do, with sources
    Strategies,
    /// Check that memfit works here
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Device memory the step may use: `8GiB`, `60%` of the unconstrained peak, `floor+60%` [default: all of
    /// the device]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(crate) budget: Option<Budget>,
    #[command(flatten)]
    pub(crate) means: MeansArgs,
    /// Write the plan to this file (`.json` or `.json.zst`); `-` for standard output
    #[arg(long, short, value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Device memory the step may use, as for `memfit plan`
    #[arg(long, short, value_name = "SIZE|%")]
    pub(crate) budget: Option<Budget>,
    #[command(flatten)]
    pub(crate) means: MeansArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// A budget to try; may be given several times [default: from the peak down to the floor]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(crate) budget: Vec<Budget>,
    /// Number of steps between the peak and the floor
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) points: u32,
    #[command(flatten)]
    pub(crate) means: MeansArgs,
    /// Write the curve to this file
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
}

/// How a recorded step is replayed
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// One run, without looking ahead
    Online,
    /// The step is recorded and planned first, then run guided by the plan
    Planned,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayArgs {
    /// A log of the DTR simulator, or a graph; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: PathBuf,
    /// Memory the step may use: a size, or a share of its own peak [default: what it takes without a budget]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(crate) budget: Option<Budget>,
    /// Whether the engine looks ahead
    #[arg(long, value_enum, default_value = "online")]
    pub(crate) mode: Mode,
    /// Policy that chooses what goes
    #[arg(long, default_value = default_of("evict"), value_name = "NAME")]
    pub(crate) evictor: String,
    /// Allocator under the engine [default: best-fit for a graph; ideal, which counts bytes, for a log]
    #[arg(long, value_name = "NAME")]
    pub(crate) allocator: Option<String>,
    /// What happens at the last release: `eager-evict`, `banish` or `ignore`
    #[arg(long, value_name = "MODE")]
    pub(crate) dealloc: Option<String>,
    /// Count bytes and evict exactly as the simulator of the DTR paper
    #[arg(long)]
    pub(crate) as_simulator: bool,
    /// Give up when the step takes this many times its own time
    #[arg(long, default_value_t = 2.0, value_name = "TIMES")]
    pub(crate) limit: f64,
    /// Device that the times of a graph's ops come from
    #[arg(long, default_value = "A100-80", value_name = "NAME|FILE.toml")]
    pub(crate) device: String,
    /// What plans with `--mode planned`: `auto` for the cheapest of all ways, `evict:planned`, or a scheduler [default: evict:planned]
    #[arg(long, value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Write the plan of `--mode planned` to this file (`.json` or `.json.zst`), for the step in the profile
    #[arg(long, value_name = "PLAN", value_hint = ValueHint::FilePath, requires = "save_profile")]
    pub(crate) save_plan: Option<PathBuf>,
    /// Write the recorded step to this file (`.json` or `.json.zst`): a graph with the times of its ops
    #[arg(long, value_name = "GRAPH", value_hint = ValueHint::FilePath, requires = "save_plan")]
    pub(crate) save_profile: Option<PathBuf>,
    /// Follow this plan of an earlier run instead of making one
    #[arg(long, value_name = "PLAN", value_hint = ValueHint::FilePath, requires = "load_profile")]
    #[arg(conflicts_with_all = ["mode", "save_plan"])]
    pub(crate) load_plan: Option<PathBuf>,
    /// The profile that belongs to `--load-plan`
    #[arg(long, value_name = "GRAPH", value_hint = ValueHint::FilePath, requires = "load_plan")]
    pub(crate) load_profile: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// The plan, as `memfit plan -o` wrote it; or a `.mfp` document, which brings its graph along
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) plan: PathBuf,
    /// The graph it was made for
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) graph: Option<PathBuf>,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(crate) dim: Vec<(String, u64)>,
    /// Hold the plan to this many bytes instead of the budget it names
    #[arg(long, short, value_name = "SIZE")]
    pub(crate) budget: Option<Bytes>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The plan, as `memfit plan -o` wrote it
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) plan: PathBuf,
    /// The graph it was made for: then the judge reads the plan first, and buffers have names
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) graph: Option<PathBuf>,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(crate) dim: Vec<(String, u64)>,
    /// The form to write
    #[arg(long, value_enum)]
    pub(crate) to: Form,
    /// What every name in a C header starts with
    #[arg(long, default_value = "memfit", value_name = "NAME")]
    pub(crate) prefix: String,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// A graph, or a pickle of `torch.cuda.memory._dump_snapshot`; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(crate) dim: Vec<(String, u64)>,
    /// Index of the device of a snapshot to explain [default: the one that holds most]
    #[arg(long, value_name = "N")]
    pub(crate) index: Option<u64>,
    #[command(flatten)]
    pub(crate) means: MeansArgs,
    /// List this many of the largest buffers, modules, ops and frames
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) top: usize,
    /// Cut module paths to this many components
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) depth: usize,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceArgs {
    /// Buffers as CSV with the columns `id,lower,upper,size`, live on the half-open range [lower, upper)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Bytes there are; without it the lowest layout is looked for
    #[arg(long, short, value_name = "SIZE")]
    pub(crate) capacity: Option<Bytes>,
    /// Placer that chooses the offsets
    #[arg(long, default_value = default_of("place"), value_name = "NAME")]
    pub(crate) placer: String,
    /// Every offset is a multiple of this many bytes
    #[arg(long, default_value = "1", value_name = "SIZE")]
    pub(crate) align: Bytes,
    /// Write the rows with a column `offset` to this file; `-` for standard output
    #[arg(long, short, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}
