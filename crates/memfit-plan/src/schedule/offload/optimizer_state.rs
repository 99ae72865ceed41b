//! Optimizer state is at home in host memory, and on the device for its update alone.
//!
//! Source: Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li and He, "ZeRO-Offload: Democratizing Billion-Scale Model Training",
//! USENIX ATC 2021, §3: nothing but the update uses the state, so it need not take device memory for the rest of the step. We differ
//! in that the update runs on the device: the state is fetched ahead of its update as the link and the room allow, and stored
//! after it, while the next one runs. What is still too much is moved between its uses as `offload:best` does; where that is not
//! enough, parameters and constants are at home there as well. Guarantee: live bytes and copies within their budgets, no op runs
//! twice. Where host memory has no room for all state the largest go, then to a
//! disk. Small tasks are planned for smaller budgets and less host memory as well (`schedule/less.rs`). Time that of `offload:best`. Ties go to what comes first in the graph. Wrong choice where the budget holds the state
//! anyway: two transfers of it are hidden behind the step only in part.

use memfit_ir::Bytes;

use super::{Front, Infeasible, Scheduler, Task, moving, or_less, rungs, without_optimizer_state};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct OptimizerState;

impl Scheduler for OptimizerState {
    fn info(&self) -> Info {
        Info {
            name: "optimizer-state",
            summary: "optimizer state, which is on the device for its update alone; then as `best`",
            source: "after Ren et al., ZeRO-Offload, USENIX ATC 2021",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        without_optimizer_state(task, budget, context.device)?;
        let state = or_less(task, budget, self.info(), context, |budget, context| {
            moving::within(&without_optimizer_state(task, budget, context.device)?, budget, &[], context)
        });
        let missed = match state {
            Ok(front) => return Ok(front),
            Err(missed) => missed,
        };
        // What goes first is state, so the last of these have all of it elsewhere, and parameters.
        let all = rungs(task, budget, context.device).pop();
        all.and_then(|all| moving::within(&all, budget, &[], context).ok()).ok_or(missed)
    }
}
