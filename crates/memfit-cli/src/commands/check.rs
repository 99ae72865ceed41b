//! `memfit check`: the judge alone.

use memfit::{Failure, check, check_text};
use serde_json::json;

use crate::args::CheckArgs;
use crate::error::Error;
use crate::files;
use crate::output::Output;

pub(super) fn run(args: &CheckArgs, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.plan)?;
    let verified = match &args.graph {
        Some(graph) => {
            let graph = files::graph(graph, &args.dim)?;
            output.with_tools(|tools| {
                (tools.progress)("verify");
                check(&bytes, &graph, args.budget)
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
        return output.object(&json!({
            "schema": "memfit-check/1",
            "status": "fits",
            "strategy": file.header.strategy,
            "budget_bytes": args.budget.unwrap_or(file.header.budget).0,
            "peak_bytes": verified.peak().0,
            "host_peak_bytes": verified.host_peak().0,
            "verified": true,
        }));
    }
    let steps = verified.plan().program.steps.len();
    let (peak, host) = (verified.peak(), verified.host_peak());
    output.print(&format!(
        "verified: {steps} steps within {peak} ({} B) of device memory, {host} of host memory\n",
        peak.0
    ))
}
