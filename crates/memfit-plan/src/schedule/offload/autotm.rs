//! The integer programme of AutoTM: where each value waits, for the least time as the programme counts it.
//!
//! Source: Hildebrand, Khan, Trika, Lowe-Power and Akella, "AutoTM: Automatic Tensor Movement in Heterogeneous Memory
//! Systems using Integer Linear Programming", ASPLOS 2020, §3: ops in a fixed order, each value a unit of flow past columns of ops
//! (`flow.rs`). `static` decides once for each value, `sync` at the ops that use it, which wait, `async` also at ops up to 15
//! away from those, one transfer beside one op. Device memory is its DRAM, host memory its persistent memory; a copy is written
//! once and stays. We differ: ops need their operands in device memory, as its GPU does, so `static` counts what a value that
//! lives in host memory is fetched for; values are made in device memory; a fetch beside an op is waited for where its value is used; where what is placed
//! takes more than what is live, all of it is planned again for less, not single ops. Guarantee: the optimum of its programme,
//! whose time is not the clock's: a transfer there is hidden behind one op only. Time exponential in the values that could
//! help; a pure-Rust solver takes some tens of them, with feature `highs` some thousands, and what is larger is refused. Ties are the solver's.
//! Wrong choice for anything large, and where transfers take longer than single ops: `best`.

use memfit_ir::Bytes;

use super::flow::{Answer, Mode, Programme};
use super::{Chooser, Front, Infeasible, RunList, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct AutoTm {
    name: &'static str,
    summary: &'static str,
    mode: Mode,
}

/// How far from an op that uses a value it may move.
const NEAR: usize = 15;

/// Seconds that a solver with a clock may take, with default effort.
const SECONDS: u32 = 600;

impl AutoTm {
    /// One decision for each value.
    pub const STATIC: AutoTm = AutoTm {
        name: "autotm-static",
        summary: "each value in one memory for good, by integer programming; small graphs only",
        mode: Mode::Static,
    };

    /// Moves that ops wait for.
    pub const SYNC: AutoTm = AutoTm {
        name: "autotm-sync",
        summary: "the least time if ops wait for all that moves, by integer programming; small graphs only",
        mode: Mode::Synchronous,
    };

    /// Moves beside ops.
    pub const ASYNC: AutoTm = AutoTm {
        name: "autotm-async",
        summary: "the least time if one transfer is hidden behind one op, by integer programming; small graphs only",
        mode: Mode::Asynchronous(NEAR),
    };
}

impl Scheduler for AutoTm {
    fn info(&self) -> Info {
        let source = "Hildebrand et al., AutoTM, ASPLOS 2020";
        Info { name: self.name, summary: self.summary, source, year: 2020 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let programme = Programme::of(chooser.step(), chooser.limit(), self.mode);
        if let Some(why) = programme.too_large() {
            return Err(Infeasible::because(task, budget, &why));
        }
        match programme.solve(context.effort.max(1).saturating_mul(SECONDS)) {
            Answer::Solved(windows) => {
                let moved = chooser.run_at(&windows);
                chooser.found(moved)
            }
            Answer::None => chooser.found(None),
            Answer::Failed(why) => Err(Infeasible::because(task, budget, &why)),
        }
    }
}
