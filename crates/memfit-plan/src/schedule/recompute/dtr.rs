//! The online policies on the known step, as strategies of their own: `dtr`, `msps` and `next-use`.
//!
//! Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021, arXiv:2006.09616); the score with
//! the true time to the next use is ours. See `greedy.rs` for how the simulation differs. A larger budget is
//! never slower: every rung of the ladder up to the budget is tried. No guarantee; O(rungs × evictions ×
//! pool). Wrong choice where `best`, which starts from all of them, has the time.

use memfit_ir::{Bytes, Nanos};

use super::greedy::{self, Age, Price, Purse, Score};
use super::ladder::ladder;
use super::{Front, Infeasible, RunList, Scheduler, Task, climb};
use crate::problem::signed;
use crate::{Context, Info};

/// Evicts by one rule.
#[derive(Clone, Copy, Debug)]
pub struct Dtr {
    info: Info,
    score: Score,
}

impl Dtr {
    /// Price of the evicted neighbourhood ÷ (bytes × time since the last access).
    pub const DTR: Dtr = Dtr {
        info: Info {
            name: "dtr",
            summary: "evicts what is cheap to make again with all that is evicted around it, large and stale",
            source: "Kirisame et al., arXiv:2006.09616, h_DTR, offline",
            year: 2021,
        },
        score: Score::new(Price::Neighbours, Age::Last),
    };
    /// Price of the evicted ancestors ÷ bytes.
    pub const MSPS: Dtr = Dtr {
        info: Info {
            name: "msps",
            summary: "evicts what frees most bytes for the time of making it again",
            source: "Peng et al., \"Capuchin\", ASPLOS 2020, as in arXiv:2006.09616",
            year: 2020,
        },
        score: Score::new(Price::Ancestors, Age::None),
    };
    /// Price of the evicted neighbourhood ÷ (bytes × time to the next use).
    pub const NEXT_USE: Dtr = Dtr {
        info: Info {
            name: "next-use",
            summary: "as dtr, but knows when each value is read next",
            source: "memfit; the oracle is Belady's, 1966",
            year: 2026,
        },
        score: Score::new(Price::Neighbours, Age::Next),
    };
}

impl Scheduler for Dtr {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        let mut purse = Purse::of(task);
        for (target, _) in ladder(task) {
            if target > signed(budget) || (context.stop)() {
                break;
            }
            let limit = target - task.constant;
            if let Some(schedule) = greedy::run(task, limit, self.score, 4, &mut purse, context.stop) {
                front.add_schedule(task, schedule);
            }
        }
        front.within(task, budget, Nanos::ZERO)
    }

    fn seen_least(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Nanos {
        climb::fastest_of(task, self.score, budget, context).unwrap_or_default()
    }
}
