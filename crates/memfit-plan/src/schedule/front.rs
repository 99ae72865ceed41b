//! Schedules of which none is both slower and larger than another, and what is said where there is none.

use memfit_ir::{Bytes, Nanos, OpId, Program};

use super::{Cost, RunList, Task};

/// A schedule and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What it takes.
    pub cost: Cost,
    /// What runs when.
    pub schedule: RunList,
    /// The program, where values are also away between their uses, which `schedule` does not say.
    pub moved: Option<Program>,
}

impl Point {
    /// The program. `None` if this is no schedule of `task`.
    #[must_use]
    pub fn program(&self, task: &Task<'_>) -> Option<Program> {
        self.moved.clone().or_else(|| self.schedule.program(task))
    }
}

/// Schedules of which none is both slower and larger than another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// Fastest first, so each needs fewer bytes than the one before it.
    pub points: Vec<Point>,
    /// No schedule with the same order of first runs and within the budget is faster. At least the time of
    /// running everything once, by the fastest algorithms.
    pub bound: Nanos,
    /// Whether the first point is proved to be the fastest there is within the budget, in this order.
    pub proved: bool,
    /// Who found these, where the strategy that was asked did not do its own work.
    pub instead: Option<Instead>,
}

/// That a strategy left its work to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instead {
    /// Name of the one that did it.
    pub used: &'static str,
    /// Why: a model that is too large for a solver, say.
    pub why: String,
}

/// Why there is no schedule. Never a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// A budget that would have been enough, or the floor where nothing was found at all.
    pub needed: Bytes,
    /// Whether no strategy at all can do with the budget: it is below what one op, the start or the end need, with all moved
    /// that the device has room for elsewhere.
    pub proved: bool,
    /// The op that needs most, where one op forces it.
    pub witness: Option<OpId>,
    /// What else stood in the way: a model that is too large for a solver, say.
    pub why: Option<String>,
}

impl Front {
    /// Adds `point` unless something here is at least as good; what it beats goes.
    pub fn add(&mut self, point: Point) {
        let Cost { peak, time } = point.cost;
        // Points are sorted by time, ascending, and so by peak, descending.
        let at = self.points.partition_point(|other| other.cost.time < time);
        let better = |other: &Point| other.cost.peak <= peak;
        if self.points[..at].last().is_some_and(better)
            || self.points.get(at).is_some_and(|other| other.cost.time == time && better(other))
        {
            return;
        }
        let beaten = self.points[at..].iter().take_while(|other| other.cost.peak >= peak).count();
        self.points.splice(at..at + beaten, [point]);
    }

    /// Time of the fastest.
    #[must_use]
    pub fn time(&self) -> Option<Nanos> {
        self.points.first().map(|point| point.cost.time)
    }

    /// The fastest within `budget`.
    #[must_use]
    pub fn fastest(&self, budget: Bytes) -> Option<&Point> {
        let at = self.points.partition_point(|point| point.cost.peak > budget);
        self.points.get(at)
    }

    /// Keeps what is within `budget`. `extra` is a bound on the time spent on later runs.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if nothing is left.
    pub(super) fn within(
        mut self,
        task: &Task<'_>,
        budget: Bytes,
        extra: Nanos,
    ) -> Result<Front, Infeasible> {
        let least = self.points.last().map(|point| point.cost.peak);
        self.points.retain(|point| point.cost.peak <= budget);
        let Some(first) = self.points.first() else { return Err(Infeasible::new(task, budget, least)) };
        // Later runs may be shorter by other algorithms, too.
        let extra = if task.has_choices() { Nanos::ZERO } else { extra };
        self.bound = (task.least_time() + extra).min(first.cost.time);
        self.proved |= self.bound == first.cost.time;
        Ok(self)
    }
}

impl Infeasible {
    /// Nothing was found, because of `why`.
    pub(super) fn because(task: &Task<'_>, budget: Bytes, why: &str) -> Infeasible {
        Infeasible { why: Some(why.to_owned()), ..Infeasible::new(task, budget, None) }
    }

    pub(super) fn new(task: &Task<'_>, budget: Bytes, least: Option<Bytes>) -> Infeasible {
        let (floor, witness) = task.floor();
        let proved = budget < task.least();
        Infeasible { needed: least.unwrap_or(floor), proved, witness, why: None }
    }
}
