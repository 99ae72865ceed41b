//! Runs the passes over a graph, round by round, and undoes what would raise the peak.

use memfit_ir::{Bytes, Device, Graph, Rewrite};

use super::edit::apply;
use super::trial::{Peaks, Trial};
use super::{Change, Finding, PASSES, Pass, Work};

/// The most rounds of passes: what one makes possible the next finds.
const MOST_ROUNDS: usize = 4;

/// What one pass did, over all rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of the pass.
    pub pass: &'static str,
    /// Changes that it made.
    pub changes: usize,
    /// Changes that it proposed last and that would have raised the peak.
    pub undone: usize,
    /// Ops that went by it.
    pub ops: usize,
    /// Values that went by it, inputs included.
    pub values: usize,
    /// By how much the largest sum of live bytes fell, in the graph's own order.
    pub live: Bytes,
}

/// What all passes did.
#[derive(Clone, Debug)]
pub struct Simplified {
    /// The new graph.
    pub rewrite: Rewrite,
    /// By pass that rewrites, in the order of the table.
    pub kept: Vec<Kept>,
    /// By pass that tells, what it found in the new graph.
    pub found: Vec<(&'static str, Vec<Finding>)>,
}

/// Runs those of [`PASSES`] that rewrite, all or so many of the first ones, over `graph`; and those that tell over what comes out.
///
/// Neither of the two peaks of live bytes in the graph's own order (in place wherever that may be, and only where it must be) is
/// higher in the new graph. Time O(ops + operands) for each trial, see `trial.rs`.
#[must_use]
pub fn simplify(graph: &Graph, device: &Device, passes: usize) -> Simplified {
    let rewriting = |pass: &&Pass| matches!(pass.work, Work::Rewrite(_));
    let chosen: Vec<&Pass> = PASSES.iter().filter(rewriting).take(passes).collect();
    let mut kept: Vec<Kept> = chosen.iter().map(|pass| nothing(pass.name)).collect();
    let mut rewrite = Rewrite::nothing(graph);
    let mut peaks = Peaks::of(graph, device.align);
    for _ in 0..MOST_ROUNDS {
        let mut changed = false;
        for (pass, kept) in chosen.iter().zip(&mut kept) {
            let Work::Rewrite(propose) = pass.work else { continue };
            let changes = propose(&rewrite.graph);
            let make = |changes: &[Change]| apply(&rewrite.graph, changes).ok();
            let now = (rewrite.graph.op_count(), device.align, peaks);
            let mut trial = Trial::new(now, |made: &Rewrite| &made.graph, &make);
            trial.take(&changes);
            // What was refused is proposed again in the next round.
            kept.undone = changes.len() - trial.kept.len();
            let (after, count) = (trial.peaks, trial.kept.len());
            let Some(made) = trial.made else { continue };
            changed = true;
            kept.changes += count;
            kept.ops += made.removed.len();
            kept.values += rewrite.graph.value_count() - made.graph.value_count();
            kept.live += peaks.may.saturating_sub(after.may);
            peaks = after;
            rewrite = rewrite.then(made);
        }
        if !changed {
            break;
        }
    }
    let found = PASSES.iter().filter_map(|pass| match pass.work {
        Work::Tell(find) => Some((pass.name, find(&rewrite.graph, device))),
        Work::Rewrite(_) => None,
    });
    Simplified { found: found.collect(), rewrite, kept }
}

fn nothing(pass: &'static str) -> Kept {
    Kept { pass, changes: 0, undone: 0, ops: 0, values: 0, live: Bytes::ZERO }
}
