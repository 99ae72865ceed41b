//! The verifier alone, over a plan from a file.

use memfit_formats::plan_json::{self, PlanFile};
use memfit_ir::{Bytes, Codec, Graph};
use memfit_verify::{Rejected, Rule, Verified, Violation, verify};

use crate::Failure;
use crate::input::{document, no_section};

/// Reads a plan file and has the verifier check the plan; what the file claims of its peak must be true.
/// `budget` replaces the budget that the file names. Of lossy codecs it may use those of `lossy` and no others, whatever the file says
/// that it was allowed.
///
/// # Errors
///
/// [`Failure::Input`] for a damaged file, [`Failure::OtherGraph`], [`Failure::Rejected`].
pub fn check(
    file: &[u8],
    graph: &Graph,
    budget: Option<Bytes>,
    lossy: &[Codec],
) -> Result<(PlanFile, Verified), Failure> {
    let file = plan_json::read(file)?;
    let digest = graph.digest();
    if file.plan.graph != digest {
        return Err(Failure::OtherGraph { plan: file.plan.graph.to_string(), graph: digest.to_string() });
    }
    let mut limits = file.header.limits();
    lossy.clone_into(&mut limits.lossy);
    let Some(arena) = limits.banks.first_mut() else {
        let error = memfit_formats::FormatError::new("banks", "a plan needs at least one bank");
        return Err(error.into());
    };
    arena.capacity = budget.unwrap_or(arena.capacity.min(file.header.budget));
    let verified = verify(graph, &limits, file.plan.clone()).map_err(Failure::Rejected)?;
    let peak = verified.peak().round_up(limits.banks[0].align);
    if peak != file.header.peak {
        let message = format!("the file claims a peak of {} B, it is {} B", file.header.peak.0, peak.0);
        let violation = Violation { rule: Rule::Place, step: None, message };
        return Err(Failure::Rejected(Rejected { violations: vec![violation] }));
    }
    Ok((file, verified))
}

/// Reads a document in text form that has limits, a graph and a plan, and has the verifier check the plan.
///
/// # Errors
///
/// [`Failure::Input`] for text that can't be read or lacks a section, [`Failure::Rejected`].
pub fn check_text(bytes: &[u8]) -> Result<Verified, Failure> {
    let document = document(bytes)?;
    let graph = document.graph.ok_or_else(|| no_section("graph"))?;
    let limits = document.limits.ok_or_else(|| no_section("limits"))?;
    let plan = document.plan.ok_or_else(|| no_section("plan"))?;
    verify(&graph, &limits, plan).map_err(Failure::Rejected)
}
