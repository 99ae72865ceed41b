//! Depth first from the graph's sources: an op is followed at once by what it made ready.
//!
//! The post-order of a depth-first walk along the edges, reversed; among the ops that depend on one op, those
//! that move few bytes run first. Source: Tarjan, "Depth-first search and linear graph algorithms" (SIAM J.
//! Comput. 1, 1972); the mirror image of Inductor's DFS (`order/dfs.rs`). No bound on the peak; O(n log n + e)
//! time. Ties go to the lower `OpId`. The wrong choice where an op near the sources has many users that join
//! late: all their branches stay live.

use memfit_ir::OpId;

use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct ReverseDfs;

impl Order for ReverseDfs {
    fn info(&self) -> Info {
        Info {
            name: "reverse-dfs",
            summary: "depth first from the sources: each op followed by what it made ready",
            source: "Tarjan, depth-first search and linear graph algorithms",
            year: 1972,
        }
    }

    fn arrange(&self, model: &Model, _: &Context<'_>) -> Vec<OpId> {
        let deps = model.dependencies();
        // What is visited first ends last in the reversed post-order: visit the largest first.
        let mut order = super::walk::post_order(model, |op| deps.succs(op), |bytes| -bytes);
        order.reverse();
        order
    }
}
