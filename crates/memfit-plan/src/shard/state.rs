//! Stage 1: each rank holds a share of the optimizer state and updates its share of the parameters.
//!
//! Source: ZeRO (arXiv:1910.02054), section 5.1, P_os. Gradients are summed on all ranks, as `ZeroRedundancyOptimizer` beside
//! `DistributedDataParallel` does it, and each rank writes its share of a parameter in place, which is then gathered in place: so
//! 3(N − 1)/N of the parameters are sent. The paper scatters gradients in this stage too and sends a third less.
//! Wrong choice where gradients are what is in the way: stage 2 sends less.

use memfit_ir::ValueId;

use super::{Info, Refused, Rewriter, Shares, Stage};

pub(super) struct State;

impl Stage for State {
    fn info(&self) -> Info {
        Info {
            name: "state",
            summary: "each rank holds a share of the optimizer state",
            source: "Rajbhandari et al., ZeRO, P_os (arXiv:1910.02054)",
            year: 2019,
        }
    }

    fn shares(&self) -> Shares {
        Shares { state: true, ..Shares::default() }
    }

    fn reduce(&self, step: &mut Rewriter<'_>, gradient: ValueId) -> Result<ValueId, Refused> {
        step.all_reduce(gradient)
    }

    fn updated(&self, step: &mut Rewriter<'_>, parameter: ValueId) -> Result<ValueId, Refused> {
        step.gather_in_place(parameter)
    }
}
