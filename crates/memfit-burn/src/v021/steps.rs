//! Planned mode: a step is recorded, planned, and the next ones follow the plan as long as they are like it.

use std::time::Instant;

use memfit::Nanos;
use memfit::engine::offline::{self, Effort};
use memfit::engine::replay::{Event, Trace};
use memfit::engine::{Fault, Recorded, Settings, stepping};
use memfit::ir::{Digest, Role};

use super::backend::Backend;
use super::core::{Core, settings};
use crate::settings::Mode;

/// What planning has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCounters {
    /// Ends of steps.
    pub steps: u64,
    /// Steps that were planned.
    pub planned: u64,
    /// Steps for which no plan was found; the same steps are not tried again.
    pub hopeless: u64,
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

#[derive(Default)]
pub(super) struct Steps {
    pub(super) counters: StepCounters,
    plan: Option<Recorded>,
    /// The last step that left its plan.
    stray: Option<Trace>,
    /// Sequences that no plan was found for, the last one last: the budget stays, so none will be.
    hopeless: Vec<Digest>,
    recording: bool,
    /// A step recorded for its caller.
    pub(super) kept: Option<Recorded>,
}

/// Sequences without a plan that are remembered.
const REMEMBERED: usize = 64;

/// Whether both steps do the same, whatever it takes them.
fn alike(one: &Trace, other: &Trace) -> bool {
    let same = |(one, other): (&Event, &Event)| match (one, other) {
        (
            Event::Call { kind, reads, outputs, effect, .. },
            Event::Call { kind: kind2, reads: reads2, outputs: outputs2, effect: effect2, .. },
        ) => kind == kind2 && reads == reads2 && outputs == outputs2 && effect == effect2,
        (one, other) => one == other,
    };
    one.kinds == other.kinds
        && one.events.len() == other.events.len()
        && one.events.iter().zip(&other.events).all(same)
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
            let guided = self.engine.is_guided();
            let recorded = self.engine.end_step()?;
            let guided = guided && self.engine.is_guided();
            self.engine.diverge();
            self.steps.counters.recorded_ns = recorded.trace.base().time.0;
            if self.options.mode == Mode::Planned {
                self.replan(&recorded, guided)?;
            }
            if self.options.record {
                self.steps.kept = Some(recorded);
            }
        }
        // What outlives a step is a parameter, or as good as one.
        for tensor in self.engine.held() {
            self.engine.set_role(tensor, Role::Parameter)?;
        }
        self.engine.begin_step()?;
        self.all_are_roots();
        if let Some(plan) = &self.steps.plan {
            self.engine.guide(plan.clone());
        }
        Ok(())
    }

    /// Plans the step that was recorded, if there is no plan, or if it's the second of its kind to leave the plan.
    fn replan(&mut self, recorded: &Recorded, guided: bool) -> Result<(), Fault> {
        if guided {
            self.steps.counters.guided += 1;
            self.steps.stray = None;
            return Ok(());
        }
        if self.steps.plan.is_some() {
            self.steps.counters.diverged += 1;
            let again = self.steps.stray.as_ref().is_some_and(|stray| alike(stray, &recorded.trace));
            if !again {
                self.steps.stray = Some(recorded.trace.clone());
                return Ok(());
            }
        }
        let sequence = stepping::sequence(&recorded.graph);
        if self.steps.hopeless.contains(&sequence) {
            return Ok(());
        }
        let started = Instant::now();
        let effort = Effort { seed: self.options.seed, ..Effort::default() };
        match offline::plan(
            &recorded.trace,
            &Settings { patience: Nanos(u64::MAX), ..settings(&self.options) },
            &effort,
        ) {
            Ok(planned) => {
                self.steps.counters.planned += 1;
                self.steps.counters.planned_recompute_ns = planned.stats.recompute_ns;
                self.steps.plan = Some(planned.recorded);
            }
            // What can't be planned has run online, and will again.
            Err(Fault::NoRoom(_) | Fault::TooSlow(_)) => {
                self.steps.counters.hopeless += 1;
                if self.steps.hopeless.len() == REMEMBERED {
                    self.steps.hopeless.remove(0);
                }
                self.steps.hopeless.push(sequence);
            }
            Err(fault) => return Err(fault),
        }
        self.steps.stray = None;
        self.steps.counters.planning_seconds += started.elapsed().as_secs_f64();
        Ok(())
    }
}
