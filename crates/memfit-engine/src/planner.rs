//! Who makes plans for recorded steps.

use crate::engine::Settings;
use crate::fault::Fault;
use crate::log::Recorded;
use crate::plan::StepPlan;

/// One way that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name.
    pub name: String,
    /// Ns for repetitions and copies in the plan that it found, if it found one.
    pub recompute_ns: Option<u64>,
}

/// A plan, and what was tried for it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The cheapest one.
    pub plan: StepPlan,
    /// Ns that it takes for repetitions, and for copies.
    pub ns: u64,
    /// All ways, in the order in which they were tried.
    pub tried: Vec<Tried>,
}

/// Makes plans for recorded steps. What it hands out has passed the judge.
pub trait Planner: Send {
    /// The cheapest plan that is found for `recorded` within `settings`, with first runs in the recorded order.
    ///
    /// # Errors
    ///
    /// [`Fault::NoRoom`], [`Fault::TooSlow`], [`Fault::OverAllowance`] or [`Fault::NoPlan`] if there is none, [`Fault::Refused`]
    /// if the judge refuses what was made.
    fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<Found, Fault>;

    /// The plan to run the step once more as it ran.
    ///
    /// # Errors
    ///
    /// [`Fault::Refused`].
    fn adopt(&mut self, recorded: &Recorded, settings: &Settings) -> Result<StepPlan, Fault>;
}
