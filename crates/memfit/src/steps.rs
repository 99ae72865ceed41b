//! The steps of a host: recorded, planned, followed, saved for the next run.
//!
//! What a host adds is when a step begins and ends, what it brings up to date before, and what it tells its user.

use std::time::Duration;

use memfit_engine::offline::{self, Effort};
use memfit_engine::stepping::{Options, Stepped, Stepper, sequence};
use memfit_engine::{Engine, Fault, Host, Planner, Recorded, Settings, StepPlan, Tried};
use memfit_ir::{Bytes, Digest, Nanos};

use crate::profile::{self, Saved};
use crate::timing::{self, Parts, Timing};
use crate::{Failure, StepPlanner, input};

/// Step times that recomputation may take where it's that or nothing.
const ANY: u64 = 100;

/// See the head of this file.
pub struct Steps {
    stepper: Stepper,
    /// The name of what plans, and the start of its random sequence.
    strategy: String,
    seed: u64,
    /// The step that ended last.
    last: Option<Recorded>,
    /// Which sequence it was, and what it took.
    ended: (Option<Digest>, Parts),
    timing: Timing,
    open: bool,
}

impl Steps {
    /// No step so far; they are planned by the strategy called `strategy`.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if there is none of that name.
    pub fn new(options: Options, strategy: &str, seed: u64) -> Result<Steps, Failure> {
        let planner = StepPlanner::new(seed).by(strategy)?;
        let stepper = Stepper::new(options, Box::new(planner));
        let (strategy, timing) = (strategy.to_owned(), Timing::default());
        let ended = (None, Parts::default());
        Ok(Steps { stepper, strategy, seed, last: None, ended, timing, open: false })
    }

    /// The strategy called `name` plans from now on.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if there is none of that name.
    pub fn set_strategy(&mut self, name: &str) -> Result<(), Failure> {
        let planner = StepPlanner::new(self.seed).by(name)?;
        name.clone_into(&mut self.strategy);
        self.stepper.set_planner(Box::new(planner));
        Ok(())
    }

    /// A planner of the host's plans from now on.
    pub fn set_planner(&mut self, planner: Box<dyn Planner>) {
        self.stepper.set_planner(planner);
    }

    /// What was tried for the last plan.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        self.stepper.tried()
    }

    /// The plan of the sequence that was seen or added last.
    #[must_use]
    pub fn last_plan(&self) -> Option<&StepPlan> {
        self.stepper.plans().next()
    }

    /// Bytes of arena that the last plan takes, as the verifier has it.
    #[must_use]
    pub fn arena(&self) -> Option<Bytes> {
        self.last_plan().map(|plan| plan.verified().peak())
    }

    /// Whether a step has begun.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// What steps by the last plan take, beside what was predicted.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The step that ended last, if it was recorded and has not been taken or planned.
    #[must_use]
    pub fn last(&self) -> Option<&Recorded> {
        self.last.as_ref()
    }

    /// See [`Steps::last`].
    pub fn take_last(&mut self) -> Option<Recorded> {
        self.last.take()
    }

    /// A step of `engine` begins: if a plan is expected to fit, it is followed.
    ///
    /// # Errors
    ///
    /// As [`Stepper::begin`].
    pub fn begin<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<(), Fault> {
        self.stepper.begin(engine)?;
        (self.open, self.last) = (true, None);
        Ok(())
    }

    /// The step ends; `elapsed` says how long ago it began. Whether a plan is wanted is told; making one is [`Steps::settle`].
    ///
    /// # Errors
    ///
    /// As [`Stepper::close`].
    pub fn end<H: Host>(
        &mut self,
        engine: &mut Engine<'_, H>,
        elapsed: impl FnOnce() -> Duration,
    ) -> Result<Stepped, Fault> {
        self.open = false;
        let (stepped, recorded) = self.stepper.close(engine)?;
        self.last = recorded;
        let took = timing::parts(elapsed().into(), &stepped);
        self.ended = (stepped.sequence, took);
        self.timing.step(took, &stepped);
        Ok(stepped)
    }

    /// The step ends by an error, if there is one: no plan is followed any more, and what is held comes back as far as there
    /// is room.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back, but for there being no room.
    pub fn abandon<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<(), Fault> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.stepper.abandon(engine)
    }

    /// Plans the step that ended last, for the budget that it ran in. Ns of repetitions and copies in the plan that is kept;
    /// `None` if there is no record of that step.
    ///
    /// # Errors
    ///
    /// As [`Stepper::settle`].
    pub fn settle(&mut self, settings: &Settings) -> Result<Option<u64>, Fault> {
        let Some(recorded) = self.last.take() else { return Ok(None) };
        let again = self.stepper.settle(&recorded, settings)?;
        self.predict(again);
        Ok(Some(again))
    }

    /// The step that ended last takes `again` ns for repetitions and copies from now on.
    fn predict(&mut self, again: u64) {
        let (sequence, took) = self.ended;
        self.timing.predict(sequence, Some(Parts { again: Nanos(again), ..took }));
    }

    /// Plans the step that ended last for another budget, that of `settings`, however much is recomputed. False if there is no
    /// plan. Another budget may be asked for after it.
    ///
    /// # Errors
    ///
    /// As [`Stepper::plan_by`].
    pub fn plan_within(&mut self, settings: &Settings) -> Result<bool, Fault> {
        let Some(recorded) = &self.last else { return Ok(false) };
        let planner = StepPlanner::new(self.seed).by(&self.strategy);
        let planner = planner.map_err(|failure| Fault::BadCall(failure.to_string()))?;
        let found = self.stepper.plan_by(&mut planner.recomputing(ANY), recorded, settings)?;
        if let Some(again) = self.stepper.predicted_ns().filter(|_| found) {
            self.predict(again);
        }
        Ok(found)
    }

    /// The least budget from `floor` to `most` that would do for the step that ended last, as [`offline::least_budget`] has it.
    #[must_use]
    pub fn least_budget(&self, settings: &Settings, floor: Bytes, most: Bytes) -> Option<Bytes> {
        let effort = Effort { most_recompute: ANY, ..Effort::default() };
        offline::least_budget(&self.last.as_ref()?.trace, settings, (floor, most), &effort)
    }

    /// The next step is expected to be that of `plan`, from an earlier run or another rank; which it is. `predicted` is what
    /// it takes, if that is known.
    pub fn add(&mut self, plan: StepPlan, predicted: Option<Parts>) -> Digest {
        let sequence = sequence(plan.graph());
        self.stepper.add(plan);
        self.timing.predict(Some(sequence), predicted);
        sequence
    }

    /// The last plan and the step it is for, as files; none if there is no plan. `align` is that of the engine's settings.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] where the device that costs are told for is not known.
    pub fn save(&self, align: Bytes) -> Result<Option<Saved>, Failure> {
        let Some(plan) = self.last_plan() else { return Ok(None) };
        let (arena, device) = ((plan.verified().peak(), align), input::device("H100")?);
        Ok(Some(profile::save(plan, arena, &device, (&self.strategy, self.seed))))
    }
}
