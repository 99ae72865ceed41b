//! What several commands are told.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::ir::Codec;
use memfit::strategies::families;
use memfit::{Bytes, LaneRule, Means, Options};

/// The heading of options that every command has.
const GLOBAL: &str = "Global options";

/// Options of every command
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Common {
    /// Print one JSON object instead of tables
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print less: only what was asked for, no tables around it
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Print more: seconds of each pass
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// Random seed; the same seed gives the same plan on every machine
    #[arg(long, global = true, default_value_t = 0, value_name = "N", help_heading = GLOBAL)]
    pub(crate) seed: u64,
    /// Search for this long and return the best so far [default: a fixed amount of work]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds, help_heading = GLOBAL)]
    pub(crate) time_limit: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('s').trim();
    match number.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds")),
    }
}

pub(crate) fn dim(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let dim = parts.and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    dim.ok_or_else(|| format!("`{text}` is not `NAME=SIZE`"))
}

/// `25%` or `25` as a share.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number / 100.0),
        _ => Err(format!("`{text}` is not a percentage")),
    }
}

/// A codec that loses something.
pub(crate) fn lossy(name: &str) -> Result<Codec, String> {
    let codec = Codec::by_name(name).filter(|codec| codec.is_lossy());
    let known = || Codec::ALL.iter().filter(|(codec, _)| codec.is_lossy()).map(|(_, name)| *name);
    codec.ok_or_else(|| {
        format!(
            "there is no lossy codec of that name: there are `{}`",
            known().collect::<Vec<_>>().join("`, `")
        )
    })
}

/// A graph file and how to read it
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct GraphArgs {
    /// The graph: JSON (`memfit-graph/1`, Checkmate's, G10's; plain or zstd), ONNX, TensorFlow Lite or text; `-` for standard
    /// input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) graph: PathBuf,
    /// Size of an open dimension of an ONNX or TensorFlow Lite model, as `batch=8`; may be given several times
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(crate) dim: Vec<(String, u64)>,
    /// Read this branch or body of an ONNX model in place of the model, as `loop/body`
    #[arg(long, value_name = "NAME")]
    pub(crate) body: Option<String>,
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
    /// Lossy codecs that values may wait in, where no plan without them fits; strategies that are named use them as they will
    /// [default: none, results are bit-identical]
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',', value_parser = lossy)]
    pub(crate) lossy: Vec<Codec>,
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
            lossy: self.lossy.clone(),
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
