//! Schedules: what runs when, and what it takes.
//!
//! A [`Task`] is a graph with a fixed order of first runs; a [`Schedule`] says which of its nodes run when. The
//! strategies of [`recompute`] each make a [`Front`] of schedules; [`fit()`] takes from it the fastest that can also
//! be *placed* within the budget, and returns its program.

mod fit;
mod front;
mod lower;
mod random;
pub mod recompute;
mod runs;
mod sequence;
mod state;
mod task;

pub use fit::{Rewritten, fit};
pub use front::{Front, Infeasible, Point};
pub use sequence::{Cost, Schedule};
pub use task::{Task, early};
