//! Depth first from the graph's ends: everything an op depends on runs just before it.
//!
//! The post-order of a depth-first walk against the edges, roots and dependencies by ascending bytes read and
//! written. Source: PyTorch Inductor, `reorder_for_peak_memory`, `topological_sort_dfs` (2024); MXNet's and
//! NNVM's `DFSVisit` is the same with operands in their own order. No bound on the peak; O(n log n + e log e)
//! time, no recursion. Ties go to the lower `OpId`. The wrong choice where a small result hides a deep hill:
//! it does not know which branch is high.

use memfit_ir::OpId;

use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct Dfs;

impl Order for Dfs {
    fn info(&self) -> Info {
        Info {
            name: "dfs",
            summary: "depth first from the ends: what an op depends on runs just before it",
            source: "PyTorch Inductor, reorder_for_peak_memory",
            year: 2024,
        }
    }

    fn arrange(&self, model: &Model, _: &Context<'_>) -> Vec<OpId> {
        let deps = model.dependencies();
        super::walk::post_order(model, |op| deps.preds(op), |bytes| bytes)
    }
}
