//! Planned mode: a step is recorded, planned, and the next ones follow the plan as long as they are like it.

use std::time::Instant;

use memfit::engine::{Allowance, Fault, Recorded, Settings, StepPlan, stepping};
use memfit::ir::Role;
use memfit::{Bytes, Nanos, PLANNING_SECONDS, PORTFOLIO};

use super::asked::bad;
use super::backend::Backend;
use super::core::Core;
use super::span::span;
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
    /// Plans that the verifier has passed. There are no others: one that it refuses ends the training with its reasons.
    pub verified: u64,
    /// Bytes of arena that the last plan takes, as the verifier has it.
    pub arena: u64,
}

pub(super) struct Steps {
    pub(super) counters: StepCounters,
    pub(super) of: memfit::Steps,
    /// A step recorded for its caller.
    recorded: Option<Recorded>,
    /// When the last step began.
    pub(super) began: Instant,
}

/// No step so far, and no plan.
fn unplanned(of: &Options) -> Result<memfit::Steps, Fault> {
    let options = stepping::Options { settled: 1, trusting: !of.record, ..stepping::Options::default() };
    memfit::Steps::new(options, of.strategy, of.seed).map_err(bad)
}

impl Steps {
    pub(super) fn new(of: &Options) -> Result<Steps, Fault> {
        let (counters, of) = (StepCounters::default(), unplanned(of)?);
        Ok(Steps { counters, of, recorded: None, began: Instant::now() })
    }

    /// Forgets all plans.
    pub(super) fn renew(&mut self, of: &Options) -> Result<(), Fault> {
        self.of = unplanned(of)?;
        Ok(())
    }

    /// The step that was recorded last, if somebody has asked for it and not taken it.
    pub(super) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }

    /// The next step is expected to be that of `plan`, from an earlier run.
    pub(super) fn load(&mut self, plan: StepPlan) {
        self.counters.verified += 1;
        self.counters.arena = plan.verified().peak().0;
        self.of.add(plan, None);
    }

    /// The step that was recorded last, if its caller has asked for it.
    pub(super) fn take_recorded(&mut self) -> Option<Recorded> {
        self.recorded.take()
    }
}

/// What planning may take from now on. The portfolio ends by itself, and its plans are the same on every machine.
fn allowance(options: &Options) -> Allowance {
    let started = Instant::now();
    match options.strategy {
        PORTFOLIO => Allowance::default(),
        _ => Allowance::lasting(Bytes::MAX, PLANNING_SECONDS, move || started.elapsed()),
    }
}

impl<B: Backend> Core<B> {
    /// A step ends here, and the next begins.
    pub(super) fn step(&mut self) -> Result<(), Fault> {
        self.steps.counters.steps += 1;
        span!("step", step = self.steps.counters.steps, budget = self.engine.settings().budget.0);
        // The state that the first step has made for the optimizer is of another make than what replaces it.
        let unsettled = self.steps.counters.steps == 1 && !self.options.record;
        if !self.plans() || unsettled {
            return self.cut();
        }
        if self.steps.of.is_open() {
            let Steps { counters, of, recorded, began } = &mut self.steps;
            let stepped = of.end(&mut self.engine, || began.elapsed())?;
            counters.guided += u64::from(stepped.guided);
            counters.diverged += u64::from(stepped.expected && !stepped.guided);
            if self.options.record {
                *recorded = of.last().cloned();
            }
            if self.options.mode == Mode::Planned && stepped.wants_plan {
                self.plan()?;
            }
        }
        // What outlives a step is a parameter, or as good as one.
        for tensor in self.engine.held() {
            self.engine.set_role(tensor, Role::Parameter)?;
        }
        self.steps.began = Instant::now();
        self.steps.of.begin(&mut self.engine)?;
        self.grow_old(true);
        Ok(())
    }

    /// Plans the step that ended last, if it was recorded.
    fn plan(&mut self) -> Result<(), Fault> {
        span!("plan", budget = self.engine.settings().budget.0);
        let started = Instant::now();
        let (allowance, patience) = (allowance(&self.options), Nanos(u64::MAX));
        let settings = Settings { patience, allowance, ..self.engine.settings().clone() };
        let Steps { counters, of, .. } = &mut self.steps;
        let Some(planned) = of.settle(&settings)? else { return Ok(()) };
        let portfolio = of.tried().iter().find(|tried| tried.name == PORTFOLIO);
        counters.portfolio_recompute_ns = portfolio.and_then(|tried| tried.recompute_ns);
        counters.planned += 1;
        counters.planned_recompute_ns = planned;
        let arena = of.arena();
        counters.verified += u64::from(arena.is_some());
        counters.arena = arena.unwrap_or_default().0;
        counters.planning_seconds += started.elapsed().as_secs_f64();
        Ok(())
    }
}
