//! Schedules: what runs when, and what it takes.
//!
//! A [`Task`] is a graph with a fixed order of first runs; a [`RunList`] says which of its nodes run when, and becomes
//! the actions of a [`memfit_ir::Schedule`], which has the one way to a program. The strategies of [`recompute`] each
//! make a [`Front`] of run lists; [`fit()`] takes from it the fastest that can also be *placed* within the budget, and
//! returns its program.

mod fit;
mod front;
pub mod hybrid;
mod moved;
pub mod offload;
mod random;
pub mod recompute;
mod run_list;
mod runs;
mod state;
mod task;
mod transfers;

pub use fit::{Rewritten, fit};
pub use front::{Front, Infeasible, Instead, Point};
pub use moved::{Moved, Scheduler};
pub use run_list::{Cost, RunList};
pub use task::{Task, early};
