//! Recomputation: which ops run again so that their outputs need not be kept.
//!
//! A strategy turns a [`Task`] (a graph with a fixed order of first runs) into a [`Front`] of schedules, each
//! with its live peak and its time. [`fit()`] takes from it the fastest that can also be *placed* within the
//! budget, and returns its program.

mod best;
mod bound;
mod chain;
mod checkmate;
mod chen;
mod climb;
mod dtr;
mod fit;
mod greedy;
mod interval;
mod kusumoto;
mod ladder;
mod lower;
mod model;
mod rebuild;
mod runs;
mod schedule;
mod search;
mod state;
mod sublinear;
mod task;

pub use best::Best;
pub use chain::Chain;
pub use checkmate::{Checkmate, CheckmateLp};
pub use chen::{ChenGreedy, ChenRecursive, ChenSqrt};
pub use dtr::Dtr;
pub use fit::{Rewritten, fit};
pub use interval::Interval;
pub use kusumoto::Kusumoto;
pub use schedule::{Cost, Schedule};
pub use sublinear::Sublinear;
pub use task::{Task, early};

use memfit_ir::{Bytes, Nanos, OpId};

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

/// A schedule and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What it takes.
    pub cost: Cost,
    /// The schedule.
    pub schedule: Schedule,
}

/// Schedules of which none is both slower and larger than another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// Fastest first, so each needs fewer bytes than the one before it.
    pub points: Vec<Point>,
    /// No schedule with the same order of first runs and within the budget is faster. At least the time of
    /// running everything once.
    pub bound: Nanos,
    /// Whether the first point is proved to be the fastest there is within the budget, in this order.
    pub proved: bool,
}

/// Why there is no schedule. Never a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// A budget that would have been enough, or the floor where nothing was found at all.
    pub needed: Bytes,
    /// Whether no strategy at all can do with the budget: it is below what one op, the start or the end need.
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
    fn within(mut self, task: &Task<'_>, budget: Bytes, extra: Nanos) -> Result<Front, Infeasible> {
        let least = self.points.last().map(|point| point.cost.peak);
        self.points.retain(|point| point.cost.peak <= budget);
        let Some(first) = self.points.first() else { return Err(Infeasible::new(task, budget, least)) };
        self.bound = (task.base_time() + extra).min(first.cost.time);
        self.proved |= self.bound == first.cost.time;
        Ok(self)
    }
}

impl Infeasible {
    fn new(task: &Task<'_>, budget: Bytes, least: Option<Bytes>) -> Infeasible {
        let (floor, witness) = task.floor();
        let proved = budget < floor;
        Infeasible { needed: least.unwrap_or(floor), proved, witness, why: None }
    }
}
