//! A step in which values wait elsewhere, as a schedule of a front.

use memfit_ir::{Bytes, Nanos, Program};

use super::{Cost, Front, Point, RunList, Task};

/// A step in which values wait elsewhere between their uses; ops may also run again.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    /// What runs, is stored and is loaded.
    pub(super) program: Program,
    /// Largest sum of live bytes, each buffer rounded up to the alignment.
    pub(super) peak: Bytes,
    /// What the clock says, with what is waited for.
    pub(super) time: Nanos,
}

impl Moved {
    /// The front of this step alone, in which `runs` run.
    pub(super) fn front(self, task: &Task<'_>, runs: &RunList) -> Front {
        let Moved { program, peak, time } = self;
        let bound = task.base_time().min(time);
        let point = Point { cost: Cost { peak, time }, schedule: runs.clone(), moved: Some(program) };
        Front { points: vec![point], bound, proved: time == bound, instead: None }
    }
}
