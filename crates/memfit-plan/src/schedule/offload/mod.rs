//! Offloading: which values wait in host memory between two of their uses, from when until when.
//!
//! A strategy turns a [`Task`] into a [`Moved`]: every op once, in the order of the task, with stores and loads in between.
//! What a transfer costs follows from the device's link to the host; what of that is hidden behind ops, and what is
//! waited for, is for the clock to say.

mod best;
mod gaps;
mod windows;

pub use best::Best;

use memfit_ir::{Bytes, Nanos, Program};

// What all of the family stands on; strategies import it from here.
use super::task::{narrow, signed};
use super::{Infeasible, RunList, Task, random};
use crate::{Context, Info};

/// A step with values that wait in host memory.
#[derive(Clone, Debug)]
pub struct Moved {
    /// What runs, is stored and is loaded.
    pub program: Program,
    /// Largest sum of live bytes, each buffer rounded up to the alignment.
    pub peak: Bytes,
    /// What the clock says, with what is waited for.
    pub time: Nanos,
}

/// Trades transfers for memory: values leave the device between uses.
pub trait Offload: Sync {
    /// What people are told about this strategy.
    fn info(&self) -> Info;

    /// A step whose live peak is at most `budget`, and whose copies fit the context's device's host memory.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if this strategy finds none: also where the device has no link to host memory.
    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Moved, Infeasible>;
}

/// Every strategy; the last one is the default. This order is the order of the manual.
pub const OFFLOADS: &[&dyn Offload] = &[&Best];

/// The strategy called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Offload> {
    OFFLOADS.iter().copied().find(|strategy| strategy.info().name == name)
}
