//! Recomputation: which ops run again so that their outputs need not be kept.
//!
//! A strategy turns a [`Task`] (a graph with a fixed order of first runs) into a [`Front`] of schedules, each
//! with its live peak and its time, in which nothing is moved.

mod best;
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
mod sublinear;

pub use best::{Best, straight};
pub use chain::Chain;
pub use checkmate::{Checkmate, CheckmateLp};
pub use chen::{ChenGreedy, ChenRecursive, ChenSqrt};
pub(super) use climb::{again, all as climb};
pub use dtr::Dtr;
pub use interval::Interval;
pub use kusumoto::Kusumoto;
pub(super) use rebuild::rebuild;
pub use sublinear::Sublinear;

// What all of the family stands on; strategies import it from here.
use super::{
    Front, Infeasible, Instead, Point, RunList, Scheduler, Task, blocks, bound, editor, ids, layers, random,
    search, solver,
};

/// Every strategy. This order is the order of the manual.
pub const RECOMPUTES: &[&dyn Scheduler] = &[
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
