//! Least peak memory first: the ready op that raises the peak least, among those the one that leaves least.
//!
//! At every turn the ready op with the smallest `(max(live + needs, peak so far), leaves, id)`. Source: PyTorch
//! Inductor, `reorder_for_peak_memory`, `topological_sort_lpmf` (2024). We differ: what is live is an exact
//! account (Inductor's once subtracted the size of a stale variable) that knows workspace and in-place; the
//! peak so far starts at the larger of what is live at the start and at the end; and the ready set is a
//! tournament instead of a list that is scanned, so a graph with 50,000 ready updates is no harder than a
//! chain. No bound on the peak; O((n + e) log n) time unless in-place takeovers upset the tournament. Ties go
//! to the lower `OpId`. The wrong choice where a hill must be climbed early: it puts that off to the last.

use memfit_ir::OpId;

use super::list::List;
use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct Lpmf;

impl Order for Lpmf {
    fn info(&self) -> Info {
        Info {
            name: "lpmf",
            summary: "least peak memory first: the ready op that raises the peak least",
            source: "PyTorch Inductor, reorder_for_peak_memory",
            year: 2024,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        List::new(model, false).run(context, choose)
    }
}

fn choose(list: &List<'_>) -> Option<OpId> {
    list.ready.choose(list.peak() - list.live())
}

/// Least peak memory first on the reversed graph: the order is built from its last op.
pub(super) struct ReverseLpmf;

impl Order for ReverseLpmf {
    fn info(&self) -> Info {
        Info {
            name: "reverse-lpmf",
            summary: "least peak memory first, built from the last op backwards",
            source: "PyTorch Inductor, reorder_for_peak_memory; mirrored",
            year: 2026,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        List::new(model, true).run(context, choose)
    }
}
