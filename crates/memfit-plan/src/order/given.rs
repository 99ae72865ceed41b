//! The order in which the graph lists its ops.
//!
//! No source. Any peak; O(n) time. The right choice when the framework's own order is to be measured, or kept.

use memfit_ir::OpId;

use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct Given;

impl Order for Given {
    fn info(&self) -> Info {
        Info {
            name: "given",
            summary: "the order in which the graph lists its ops",
            source: "the framework the graph was captured from",
            year: 2026,
        }
    }

    fn arrange(&self, model: &Model, _: &Context<'_>) -> Vec<OpId> {
        (0..model.op_count()).map(OpId::at).collect()
    }
}
