//! `memfit check`: the verifier alone.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::ir::Codec;
use memfit::{Bytes, Failure, check, check_text, objects};

use crate::args::{dim, lossy};
use crate::error::Error;
use crate::files;
use crate::output::Output;

#[derive(Debug, ClapArgs)]
pub(super) struct CheckArgs {
    /// The plan, as `memfit plan -o` wrote it; or a `.mfp` document, which brings its graph along
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) plan: PathBuf,
    /// The graph it was made for
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) graph: Option<PathBuf>,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(super) dim: Vec<(String, u64)>,
    /// Hold the plan to this many bytes instead of the budget it names
    #[arg(long, short, value_name = "SIZE")]
    pub(super) budget: Option<Bytes>,
    /// Lossy codecs that the plan may use; without it, none, whatever the plan says that it was allowed. A `.mfp` document brings its
    /// own limits along
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',', value_parser = lossy)]
    pub(super) lossy: Vec<Codec>,
}

pub(super) fn run(args: &CheckArgs, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.plan)?;
    let verified = match &args.graph {
        Some(graph) => {
            let graph = files::graph(graph, &args.dim)?;
            output.with_tools(|tools| {
                (tools.progress)("verify");
                check(&bytes, &graph, args.budget, &args.lossy)
            })
        }
        None if bytes.trim_ascii_start().starts_with(b"{") || memfit::formats::is_packed(&bytes) => {
            let failure = Failure::usage("no graph to check the plan against", "memfit check PLAN GRAPH");
            return Err(failure.into());
        }
        None => check_text(&bytes).map(|verified| (Default::default(), verified)),
    };
    let (file, verified) = verified.map_err(|failure| files::about(&args.plan, failure))?;
    output.passes();
    if output.json {
        return output.object(&objects::check(&file, &verified, args.budget));
    }
    let steps = verified.plan().program.steps.len();
    let (peak, host) = (objects::peak_of(&file, &verified), verified.tier_peak(memfit::ir::Tier::Host));
    output.print(&format!(
        "verified: {steps} steps within {peak} ({} B) of device memory, {host} of host memory\n",
        peak.0
    ))
}
