//! Schedulers whose steps move values, and what they return.

use memfit_ir::{Bytes, Nanos, Program};

use super::{Infeasible, Task};
use crate::{Context, Info};

/// A step in which values wait elsewhere between their uses; ops may also run again.
#[derive(Clone, Debug)]
pub struct Moved {
    /// What runs, is stored and is loaded.
    pub program: Program,
    /// Largest sum of live bytes, each buffer rounded up to the alignment.
    pub peak: Bytes,
    /// What the clock says, with what is waited for.
    pub time: Nanos,
}

/// Finds a step that fits, by moving values between memories and whatever else its family allows.
pub trait Scheduler: Sync {
    /// What people are told about this strategy.
    fn info(&self) -> Info;

    /// A step whose live peak is at most `budget`, and whose copies fit the host memory of the context's device.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if this strategy finds none: also where the device has no link to host memory.
    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Moved, Infeasible>;
}
