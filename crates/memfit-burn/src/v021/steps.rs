//! Planned mode: a step is recorded, planned, and the next ones follow the plan as long as they are like it.

use std::time::Instant;

use memfit::Nanos;
use memfit::engine::offline::Effort;
use memfit::engine::stepping::{self, Stepper};
use memfit::engine::{Fault, Recorded, Settings};
use memfit::ir::Role;

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
    /// Ns of the last recorded step without recomputation, op by op.
    pub recorded_ns: u64,
}

pub(super) struct Steps {
    pub(super) counters: StepCounters,
    stepper: Stepper,
    recording: bool,
    /// A step recorded for its caller.
    pub(super) kept: Option<Recorded>,
}

impl Steps {
    pub(super) fn new(of: &Options) -> Steps {
        let options = stepping::Options { settled: 1, trusting: !of.record, ..stepping::Options::default() };
        let stepper = Stepper::new(options);
        Steps { counters: StepCounters::default(), stepper, recording: false, kept: None }
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
                self.plan(recorded)?;
            }
        }
        // What outlives a step is a parameter, or as good as one.
        for tensor in self.engine.held() {
            self.engine.set_role(tensor, Role::Parameter)?;
        }
        self.steps.stepper.begin(&mut self.engine)?;
        self.all_are_roots();
        Ok(())
    }

    fn plan(&mut self, recorded: Recorded) -> Result<(), Fault> {
        let started = Instant::now();
        let effort = Effort { seed: self.options.seed, ..Effort::default() };
        let settings = Settings { patience: Nanos(u64::MAX), ..settings(&self.options) };
        let planned = self.steps.stepper.settle(recorded, &settings, &effort)?;
        let counters = &mut self.steps.counters;
        counters.planned += 1;
        counters.planned_recompute_ns = planned;
        counters.planning_seconds += started.elapsed().as_secs_f64();
        Ok(())
    }
}
