//! At every turn the ready op after which the fewest bytes are live.
//!
//! Source: XLA's list scheduler (`hlo_memory_scheduler`, 2017), which weighs bytes freed against bytes defined;
//! ours counts in-place takeovers too, and not what an op needs only while it runs. No bound on the peak;
//! O((n + e) log n) time. Ties go to the lower `OpId`. The wrong choice where a way down leads over a small
//! hill: it does not look ahead.

use memfit_ir::OpId;

use super::list::List;
use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct MemoryGreedy;

impl Order for MemoryGreedy {
    fn info(&self) -> Info {
        Info {
            name: "memory-greedy",
            summary: "the ready op after which the fewest bytes are live",
            source: "XLA, list scheduler",
            year: 2017,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        List::new(model, false).run(context, |list| list.ready.choose(i64::MAX))
    }
}

/// The same on the reversed graph: the order is built from its last op, at every turn the one before which
/// the fewest bytes are live.
pub(super) struct ReverseGreedy;

impl Order for ReverseGreedy {
    fn info(&self) -> Info {
        Info {
            name: "reverse-greedy",
            summary: "built from the last op backwards: the one before which the fewest bytes are live",
            source: "XLA, list scheduler; mirrored",
            year: 2026,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        List::new(model, true).run(context, |list| list.ready.choose(i64::MAX))
    }
}
