//! Recomputation: which ops run again so that their outputs need not be kept.
//!
//! A strategy turns a [`Task`] (a graph with a fixed order of first runs) into a [`Front`] of schedules, each
//! with its live peak and its time. [`fit()`](super::fit()) takes from it the fastest that can also be *placed* within the
//! budget, and returns its program.

mod best;
mod bound;
mod chain;
mod checkmate;
mod chen;
mod climb;
mod dtr;
mod greedy;
mod interval;
mod kusumoto;
mod ladder;
mod model;
mod rebuild;
mod search;
mod sublinear;

pub use best::Best;
pub use chain::Chain;
pub use checkmate::{Checkmate, CheckmateLp};
pub use chen::{ChenGreedy, ChenRecursive, ChenSqrt};
pub(super) use climb::{again, all as climb};
pub use dtr::Dtr;
pub use interval::Interval;
pub use kusumoto::Kusumoto;
pub(super) use rebuild::rebuild;
pub use sublinear::Sublinear;

use memfit_ir::Bytes;

// What all of the family stands on; strategies import it from here.
use super::{Front, Infeasible, Instead, Point, RunList, Task, ids, layers, random, state};
use crate::{Context, Info};

/// Trades time for memory: ops run again so that their outputs need not be kept.
pub trait Recompute: Sync {
    /// What people are told about this strategy.
    fn info(&self) -> Info;

    /// Schedules whose live peak is at most `budget`: at least one.
    ///
    /// What comes back for a larger budget is never slower than what comes back for a smaller one, unless the
    /// file of the strategy says otherwise.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if this strategy finds none.
    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible>;
}

/// Every strategy; the last one is the default. This order is the order of the manual.
pub const RECOMPUTES: &[&dyn Recompute] = &[
    &ChenSqrt,
    &ChenGreedy,
    &ChenRecursive,
    &Kusumoto,
    &Chain,
    &Sublinear::DEFAULT,
    &Dtr::DTR,
    &Dtr::MSPS,
    &Dtr::NEXT_USE,
    &Interval::DEFAULT,
    &CheckmateLp,
    &Checkmate,
    &Best,
];

/// The strategy called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Recompute> {
    RECOMPUTES.iter().copied().find(|strategy| strategy.info().name == name)
}
