//! Every rank holds everything, and gradients are summed: what the other stages are compared with.
//!
//! Source: data parallelism as `DistributedDataParallel` does it (Li et al., "PyTorch Distributed", VLDB 2020, section 3), without
//! its buckets: each gradient is summed when it is made, in its own bytes. Sends 2(N − 1)/N of the gradients.

use memfit_ir::ValueId;

use super::{Info, Refused, Rewriter, Shares, Stage};

pub(super) struct Replicas;

impl Stage for Replicas {
    fn info(&self) -> Info {
        Info {
            name: "replicas",
            summary: "every rank holds everything; gradients are summed",
            source: "Li et al., PyTorch Distributed (VLDB)",
            year: 2020,
        }
    }

    fn shares(&self) -> Shares {
        Shares::default()
    }

    fn reduce(&self, step: &mut Rewriter<'_>, gradient: ValueId) -> Result<ValueId, Refused> {
        step.all_reduce(gradient)
    }
}
