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
    /// This step, in which `runs` run, as a point of a front.
    pub(super) fn point(self, runs: &RunList) -> Point {
        let Moved { program, peak, time } = self;
        Point { cost: Cost { peak, time }, schedule: runs.clone(), moved: Some(program) }
    }

    /// The front of this step alone, in which `runs` run.
    pub(super) fn front(self, task: &Task<'_>, runs: &RunList) -> Front {
        Front::of_points(task, [self.point(runs)])
    }
}

impl Front {
    /// The front of `points`, of whose bound nothing is known but that all ops run.
    pub(super) fn of_points(task: &Task<'_>, points: impl IntoIterator<Item = Point>) -> Front {
        let mut front = Front::default();
        points.into_iter().for_each(|point| front.add(point));
        let fastest = front.points.first().map_or(Nanos(u64::MAX), |point| point.cost.time);
        front.bound = task.least_time().min(fastest);
        front.proved = front.bound == fastest;
        front
    }
}
