//! Simplification for all faces: the passes, verified, and no graph whose plan needs more than that of the original.

use memfit_ir::{Bytes, Device, Graph, Nanos, Rewrite, text};
use memfit_plan::simplify::{Finding, Kept, PASSES, Simplified, Work, fused, simplify as rewrite};
use memfit_verify::rewrite::check;

use crate::{Budget, Failure, Goal, Summary, Tools, plan};

/// What a graph comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Number of ops.
    pub ops: usize,
    /// Number of values.
    pub values: usize,
    /// Largest sum of live bytes of the plan without a budget.
    pub live_peak: Bytes,
    /// Arena of that plan, fragmentation included.
    pub peak: Bytes,
    /// Predicted time of the step as given.
    pub time: Nanos,
}

/// A simplified graph that the verifier has accepted.
#[derive(Clone, Debug)]
pub struct Simplification {
    /// The new graph, and what its parts stand for.
    pub rewrite: Rewrite,
    /// By pass, what it did.
    pub passes: Vec<Kept>,
    /// Passes that were left out, since the arena of the plan would have grown by them.
    pub left_out: Vec<&'static str>,
    /// Values of the new graph that a host can compute ahead.
    pub ahead: Vec<Finding>,
    /// Groups of ops of the new graph that a host can fuse.
    pub groups: Vec<Finding>,
    /// The graph as given.
    pub before: Figures,
    /// The new graph.
    pub after: Figures,
    /// The new graph where a host fuses all groups; the same as `after` where there are none.
    pub fused: Figures,
}

/// Makes a graph of `graph` that computes the same, and has the verifier's companion check that it does.
///
/// Neither the live bytes in the graph's own order nor the arena of the plan without a budget on the goal's device are larger
/// afterwards: passes are left out from the last one on until that holds. The goal's budget is not asked, and searches do their
/// default work, so that the same graph comes out under every time limit.
///
/// # Errors
///
/// Those of [`plan`] for the goal's strategies; [`Failure::Timeout`] where the time was over; [`Failure::Bug`] where the verifier refuses
/// what a pass has made.
pub fn simplify(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Simplification, Failure> {
    let before = figures(graph, goal, tools)?;
    let rewriting = || PASSES.iter().filter(|pass| matches!(pass.work, Work::Rewrite(_)));
    for count in (0..=rewriting().count()).rev() {
        (tools.progress)("simplify");
        let made = verified(graph, &goal.device, count)?;
        let unchanged = made.rewrite.removed.is_empty() && made.kept.iter().all(|pass| pass.changes == 0);
        let after = if unchanged { before } else { figures(&made.rewrite.graph, goal, tools)? };
        if after.peak > before.peak {
            continue;
        }
        let left_out = rewriting().skip(count).map(|pass| pass.name).collect();
        return told(made, left_out, (before, after), (goal, tools));
    }
    let nothing = verified(graph, &goal.device, 0)?;
    told(nothing, rewriting().map(|pass| pass.name).collect(), (before, before), (goal, tools))
}

fn verified(graph: &Graph, device: &Device, passes: usize) -> Result<Simplified, Failure> {
    let made = rewrite(graph, device, passes);
    (check(graph, &made.rewrite)).map(|()| made).map_err(|rejected| Failure::Bug {
        pass: "simplify".to_owned(),
        rejected,
        replay: text::print(None, Some(graph), None),
    })
}

/// What the plan of `graph` without a budget comes to.
fn figures(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Figures, Failure> {
    let goal = Goal { budget: Budget::Bytes(Bytes::MAX), ..goal.with_effort(1) };
    let Summary { live_peak, peak, base_time: time, .. } = plan(graph, &goal, tools)?.summary;
    Ok(Figures { ops: graph.op_count(), values: graph.value_count(), live_peak, peak, time })
}

fn told(
    made: Simplified,
    left_out: Vec<&'static str>,
    (before, after): (Figures, Figures),
    (goal, tools): (&Goal, &Tools<'_>),
) -> Result<Simplification, Failure> {
    let Simplified { rewrite, kept: passes, found } = made;
    let of = |name: &str| -> Vec<Finding> {
        let found = found.iter().filter(|(pass, _)| *pass == name);
        found.flat_map(|(_, findings)| findings.iter().cloned()).collect()
    };
    let (ahead, groups) = (of("constants"), of("fusion"));
    let whole = fused(&rewrite.graph, &groups).ok().filter(|_| !groups.is_empty());
    let fused = whole.map_or(Ok(after), |graph| figures(&graph, goal, tools))?;
    Ok(Simplification { rewrite, passes, left_out, ahead, groups, before, after, fused })
}
