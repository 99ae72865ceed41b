//! Stage 3: each rank holds a share of everything, and gathers a parameter before its first use in a phase.
//!
//! Source: ZeRO (arXiv:1910.02054), section 5.3, P_os+g+p; `fully_shard` with `reshard_after_forward` (Zhao et al., "PyTorch FSDP",
//! VLDB 2023). What is gathered goes after its last use in that phase; the backward pass gathers it again, by an op of its own.
//! Parameters are gathered one by one, not by module, and nothing ahead of its use. Sends 3(N − 1)/N of the parameters.
//! Parameters that nothing updates are shared too. Wrong choice where the link is slow: each use waits for it.

use memfit_ir::{Phase, ValueId};

use super::{Info, Refused, Rewriter, Shares, Stage};

pub(super) struct Parameters;

impl Stage for Parameters {
    fn info(&self) -> Info {
        Info {
            name: "parameters",
            summary: "each rank holds a share of everything that lasts, and gathers parameters before use",
            source: "Rajbhandari et al., ZeRO, P_os+g+p (arXiv:1910.02054)",
            year: 2019,
        }
    }

    fn shares(&self) -> Shares {
        Shares { state: true, gradients: true, parameters: true }
    }

    fn reduce(&self, step: &mut Rewriter<'_>, gradient: ValueId) -> Result<ValueId, Refused> {
        step.reduce_scatter(gradient)
    }

    fn used(&self, step: &mut Rewriter<'_>, value: ValueId, phase: Phase) -> Result<ValueId, Refused> {
        step.gather_for(value, phase)
    }
}
