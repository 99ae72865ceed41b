//! Offloading: which values wait in host memory between two of their uses, from when until when.
//!
//! A strategy turns a [`Task`] into a [`Moved`]: every op once, in the order of the task, with stores and loads in between.
//! What a transfer costs follows from the device's link to the host; what of that is hidden behind ops, and what is
//! waited for, is for the clock to say.

mod best;

pub use best::Best;

// What all of the family stands on; strategies import it from here.
use super::transfers::Chooser;
use super::{Infeasible, Moved, RunList, Scheduler, Task};

/// Every strategy; the last one is the default. This order is the order of the manual.
pub const OFFLOADS: &[&dyn Scheduler] = &[&Best];
