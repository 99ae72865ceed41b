//! Stage 2: each rank gets a share of a gradient as soon as that is made, and the whole goes.
//!
//! Source: ZeRO (arXiv:1910.02054), section 5.2, P_os+g, without its buckets: each gradient is scattered by itself. Sends 2(N − 1)/N of
//! the parameters, as much as data parallelism that shares nothing.

use memfit_ir::ValueId;

use super::{Info, Refused, Rewriter, Shares, Stage};

pub(super) struct Gradients;

impl Stage for Gradients {
    fn info(&self) -> Info {
        Info {
            name: "gradients",
            summary: "each rank holds a share of the optimizer state and of the gradients",
            source: "Rajbhandari et al., ZeRO, P_os+g (arXiv:1910.02054)",
            year: 2019,
        }
    }

    fn shares(&self) -> Shares {
        Shares { state: true, gradients: true, ..Shares::default() }
    }

    fn reduce(&self, step: &mut Rewriter<'_>, gradient: ValueId) -> Result<ValueId, Refused> {
        step.reduce_scatter(gradient)
    }

    fn updated(&self, step: &mut Rewriter<'_>, parameter: ValueId) -> Result<ValueId, Refused> {
        step.gather_in_place(parameter)
    }
}
