//! Schedules: what runs when, and what it takes.
//!
//! A [`Task`] is a graph with a fixed order of first runs; a [`RunList`] says which of its nodes run when, and becomes
//! the actions of a [`memfit_ir::Schedule`], which has the one way to a program. Every strategy is a [`Scheduler`] and
//! makes a [`Front`] of such lists, with values that are away beside them; [`fit()`] takes from it the fastest that can
//! also be *placed* within the budget, and returns its program.

mod algorithms;
mod blocks;
mod bound;
pub mod compress;
mod early;
mod editor;
mod fit;
mod front;
mod homes;
pub mod hybrid;
mod ids;
mod known;
mod layers;
mod less;
mod memo;
mod moved;
mod moves;
mod moving;
pub mod offload;
mod random;
pub mod recompute;
mod refine;
mod run_list;
mod scratch;
mod search;
mod solver;
mod task;
mod transfers;

use algorithms::Algorithms;
pub use bound::least_time;
pub use early::early;
pub use fit::{Rewritten, fit, fit_faster};
pub use front::{Front, Infeasible, Instead, Point};
use moved::Moved;
pub use run_list::{Cost, RunList};
pub use scratch::by_fastest_algorithms;
pub use task::Task;

use memfit_ir::{Bytes, Nanos};

use crate::{Context, Info};

/// What is smaller is never moved: it is not worth a transfer.
pub const LEAST_MOVED: Bytes = Bytes(transfers::LEAST.unsigned_abs());

/// Finds ways to run a step that does not fit as it is: ops run again, values wait elsewhere or encoded.
pub trait Scheduler: Sync {
    /// What people are told about this strategy.
    fn info(&self) -> Info;

    /// Schedules whose live peak is at most `budget` and whose copies fit the memories of the context's device: at
    /// least one.
    ///
    /// Where nothing is moved, what comes back for a larger budget is never slower than what comes back for a smaller
    /// one, unless the file of the strategy says otherwise.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if this strategy finds none: also where it needs what the device or the graph hasn't got.
    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible>;

    /// What it has no plan below for `budget`, where others that did its work for `task` have seen that; 0 where nothing is known.
    fn seen_least(&self, _task: &Task<'_>, _budget: Bytes, _context: &Context<'_>) -> Nanos {
        Nanos::ZERO
    }
}
