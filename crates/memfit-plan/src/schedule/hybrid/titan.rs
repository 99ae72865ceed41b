//! How much of each block is kept, made again or moved by a linear programme, and which values by an integer one.
//!
//! Source: pytorch/torchtitan, `auto_perf_maxing` (pull requests 3881, 3975 and 4636, 2026): see `two_level/mod.rs`, which says
//! what it does and what is done otherwise. `titan-greedy` selects the values of a block by time for each byte. The optimum of
//! both programmes, as they count; the clock says what it takes. Time O(rounds × (rows × blocks + operands)). Ties are the
//! solver's. Wrong choice for what has no blocks, where memory is short in few places, and below what its blocks' boundaries take.

use memfit_ir::Bytes;

use super::two_level::{EXACT, GREEDY, Planner};
use super::{Front, Infeasible, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Titan {
    name: &'static str,
    summary: &'static str,
    planner: Planner,
}

impl Titan {
    /// Both levels by programmes.
    pub const TITAN: Titan = Titan {
        name: "titan",
        summary: "shares of each block by a linear programme, its values by an integer programme",
        planner: EXACT,
    };

    /// The inner one greedily.
    pub const GREEDY: Titan = Titan {
        name: "titan-greedy",
        summary: "shares of each block by a linear programme, its values by time for each byte",
        planner: GREEDY,
    };
}

impl Scheduler for Titan {
    fn info(&self) -> Info {
        let source = "PyTorch, torchtitan auto_perf_maxing, pull requests 3975 and 4636";
        Info { name: self.name, summary: self.summary, source, year: 2026 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        self.planner.plan(task, budget, context)
    }
}
