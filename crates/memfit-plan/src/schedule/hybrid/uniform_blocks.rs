//! The same shares of every block are made again and moved.
//!
//! Source: the ablation that torchtitan's reviewers asked for (pytorch/torchtitan 4636, 2026): its planner without the outer level's
//! choice among blocks. See `two_level/mod.rs`; values are selected by the integer programme. Ties are the solver's. Wrong choice
//! wherever blocks differ, or memory is short at one end of the step.

use memfit_ir::Bytes;

use super::two_level::UNIFORM;
use super::{Front, Infeasible, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct UniformBlocks;

impl Scheduler for UniformBlocks {
    fn info(&self) -> Info {
        Info {
            name: "uniform-blocks",
            summary: "the same shares of every block run again and move",
            source: "PyTorch, torchtitan pull request 4636 (ablation)",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        UNIFORM.plan(task, budget, context)
    }
}
