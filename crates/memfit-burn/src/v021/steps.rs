//! Planned mode: a step is recorded, planned, and the next ones follow the plan as long as they are like it.

use std::time::Instant;

use memfit::engine::stepping::{self, Stepper};
use memfit::engine::{Allowance, Fault, Planner, Recorded, Settings, StepPlan, Tried};
use memfit::ir::Role;
use memfit::{Bytes, Nanos, PLANNING_SECONDS, PORTFOLIO, StepPlanner};

use super::backend::Backend;
use super::core::{Core, settings};
use crate::settings::{Mode, Options};

/// What planning has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCounters {
    /// Ends of steps.
    pub steps: u64,
    /// Steps that were planned.
    pub planned: u64,
    /// Steps that followed their plan to the end.
    pub guided: u64,
    /// Steps that left their plan and went on online.
    pub diverged: u64,
    /// Seconds in planning.
    pub planning_seconds: f64,
    /// Ns that the last plan recomputes.
    pub planned_recompute_ns: u64,
    /// The same of what the engine's portfolio alone found for it, if it was asked and found one.
    pub portfolio_recompute_ns: Option<u64>,
    /// Ns of the last recorded step without recomputation, op by op.
    pub recorded_ns: u64,
    /// Plans that the judge has passed. There are no others: one that it refuses ends the training with its reasons.
    pub verified: u64,
    /// Bytes of arena that the last plan takes, as the judge has it.
    pub arena: u64,
}

pub(super) struct Steps {
    pub(super) counters: StepCounters,
    stepper: Stepper,
    recording: bool,
    /// A step recorded for its caller.
    pub(super) kept: Option<Recorded>,
}

impl Steps {
    pub(super) fn new(of: &Options) -> Result<Steps, Fault> {
        let options = stepping::Options { settled: 1, trusting: !of.record, ..stepping::Options::default() };
        let stepper = Stepper::new(options, Box::new(planner(of)?));
        Ok(Steps { counters: StepCounters::default(), stepper, recording: false, kept: None })
    }

    /// Has `planner` make plans from now on.
    pub(super) fn set_planner(&mut self, planner: Box<dyn Planner>) {
        self.stepper.set_planner(planner);
    }

    /// What was tried for the last plan.
    pub(super) fn tried(&self) -> &[Tried] {
        self.stepper.tried()
    }

    /// The next step is expected to be that of `plan`, from an earlier run.
    pub(super) fn add(&mut self, plan: StepPlan) {
        self.counters.verified += 1;
        self.counters.arena = plan.verified().peak().0;
        self.stepper.add(plan);
    }

    /// The plan of the step that was planned or added last.
    pub(super) fn last_plan(&self) -> Option<&StepPlan> {
        self.stepper.plans().next()
    }
}

/// What plans as `options` say.
fn planner(options: &Options) -> Result<StepPlanner, Fault> {
    let planner = StepPlanner::new(options.seed).by(options.strategy);
    planner.map_err(|failure| Fault::BadCall(failure.to_string()))
}

/// What planning that began at `started` may take. The portfolio ends by itself, and its plans are the same on every machine.
fn allowance(options: &Options, started: Instant) -> Allowance {
    match options.strategy {
        PORTFOLIO => Allowance::default(),
        _ => Allowance::new(Bytes::MAX, move || started.elapsed().as_secs_f64() >= PLANNING_SECONDS),
    }
}

impl<B: Backend> Core<B> {
    /// A step ends here, and the next begins.
    pub(super) fn step(&mut self) -> Result<(), Fault> {
        self.steps.counters.steps += 1;
        // The state that the first step has made for the optimizer is of another make than what replaces it.
        let unsettled = self.steps.counters.steps == 1 && !self.options.record;
        if !self.plans() || unsettled {
            return self.cut();
        }
        if std::mem::replace(&mut self.steps.recording, true) {
            let (stepped, recorded) = self.steps.stepper.close(&mut self.engine)?;
            let counters = &mut self.steps.counters;
            if let Some(recorded) = &recorded {
                counters.recorded_ns = recorded.trace.base().time.0;
            }
            counters.guided += u64::from(stepped.guided);
            counters.diverged += u64::from(stepped.expected && !stepped.guided);
            if self.options.record {
                self.steps.kept.clone_from(&recorded);
            }
            if let Some(recorded) = recorded
                && self.options.mode == Mode::Planned
                && stepped.wants_plan
            {
                self.plan(&recorded)?;
            }
        }
        // What outlives a step is a parameter, or as good as one.
        for tensor in self.engine.held() {
            self.engine.set_role(tensor, Role::Parameter)?;
        }
        self.steps.stepper.begin(&mut self.engine)?;
        self.grow_old(true);
        Ok(())
    }

    fn plan(&mut self, recorded: &Recorded) -> Result<(), Fault> {
        let started = Instant::now();
        let allowance = allowance(&self.options, started);
        let settings = Settings { patience: Nanos(u64::MAX), allowance, ..settings(&self.options) };
        let planned = self.steps.stepper.settle(recorded, &settings)?;
        let arena = self.steps.last_plan().map(|plan| plan.verified().peak().0);
        let portfolio = self.steps.tried().iter().find(|tried| tried.name == PORTFOLIO);
        let portfolio = portfolio.and_then(|tried| tried.recompute_ns);
        let counters = &mut self.steps.counters;
        counters.portfolio_recompute_ns = portfolio;
        counters.planned += 1;
        counters.planned_recompute_ns = planned;
        counters.verified += u64::from(arena.is_some());
        counters.arena = arena.unwrap_or_default();
        counters.planning_seconds += started.elapsed().as_secs_f64();
        Ok(())
    }
}
