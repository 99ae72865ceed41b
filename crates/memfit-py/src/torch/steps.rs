//! Step after step: recorded, planned once, guided from then on.

use std::time::{Duration, Instant};

use memfit::engine::offline::{self, Effort};
use memfit::engine::{Allowance, Fault, Recorded, Settings, StepPlan, stepping};
use memfit::profile::{self, Saved};
use memfit::{Bytes, Failure, PORTFOLIO, StepPlanner, input};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dispatch::Inner;
use crate::failure::raise;

/// What is known of the steps so far.
pub(super) struct Steps {
    stepper: stepping::Stepper,
    /// The name of what plans.
    strategy: String,
    /// The step that ended last.
    last: Option<Recorded>,
    open: bool,
}

impl Default for Steps {
    fn default() -> Self {
        let options = stepping::Options { settled: 1, ..stepping::Options::default() };
        let stepper = stepping::Stepper::new(options, Box::new(StepPlanner::new(SEED)));
        Steps { stepper, strategy: PORTFOLIO.to_owned(), last: None, open: false }
    }
}

/// Start of every random sequence in planning.
const SEED: u64 = 1;

/// Budgets between floor and peak that are tried before the search for the least one goes into detail.
const RUNGS: u64 = 24;

/// Step times that recomputation may take where it's that or nothing.
const ANY: u64 = 100;

/// Host memory and time that a search for a plan may take.
#[derive(Clone, Copy)]
pub(super) struct Planning {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Planning {
    /// From now on.
    fn begin(self) -> Allowance {
        let (start, seconds) =
            (Instant::now(), Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        Allowance::new(Bytes(self.bytes), move || start.elapsed() >= seconds)
    }
}

/// Does `work` without Python, and with threads of its own: those of the process have not come along where it is a copy of
/// another, and who waited for them would wait for ever.
fn apart<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| match rayon::ThreadPoolBuilder::new().build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    })
}

impl Inner {
    /// What is alive is what the step starts from; if a plan is expected to fit, it is followed.
    pub(super) fn begin_step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.look_at_all(py)?;
        let mut stepper = std::mem::take(&mut self.steps.stepper);
        let begun = stepper.begin(&mut self.engine);
        self.steps.stepper = stepper;
        begun.map_err(|fault| self.fault(py, fault))?;
        self.steps.open = true;
        self.steps.last = None;
        Ok(())
    }

    /// Brings back what is alive. What is told says whether a plan is wanted; making one is [`Inner::plan_step`].
    pub(super) fn end_step<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.look_at_all(py)?;
        self.steps.open = false;
        let mut stepper = std::mem::take(&mut self.steps.stepper);
        let ended = stepper.close(&mut self.engine);
        self.steps.stepper = stepper;
        let (stepped, recorded) = ended.map_err(|fault| self.fault(py, fault))?;
        self.steps.last = recorded;
        let told = PyDict::new(py);
        told.set_item("sequence", stepped.sequence.map(|sequence| sequence.to_string()))?;
        told.set_item("guided", stepped.guided)?;
        told.set_item("wants_plan", stepped.wants_plan)?;
        told.set_item("recompute_ns", stepped.recompute_ns)?;
        told.set_item("predicted_ns", stepped.predicted_ns)?;
        Ok(told)
    }

    /// Names of what was tried for the last plan, with ns in repetitions of what was found.
    pub(super) fn tried(&self) -> Vec<(String, Option<u64>)> {
        self.steps.stepper.tried().iter().map(|tried| (tried.name.clone(), tried.recompute_ns)).collect()
    }

    /// What plans from now on, by its name.
    pub(super) fn set_strategy(&mut self, py: Python<'_>, name: &str) -> PyResult<()> {
        let planner = StepPlanner::new(SEED).by(name).map_err(|failure| raise(py, &failure))?;
        name.clone_into(&mut self.steps.strategy);
        self.steps.stepper.set_planner(Box::new(planner));
        Ok(())
    }

    /// Plans the step that ended last: for the budget that it ran in, or else for `budget`. False if there is no plan.
    pub(super) fn plan_step(
        &mut self,
        py: Python<'_>,
        budget: Option<u64>,
        planning: Planning,
    ) -> PyResult<bool> {
        let Some(recorded) = self.steps.last.take() else { return Ok(false) };
        let mut kept = None;
        let settings = Settings { allowance: planning.begin(), ..self.engine.settings().clone() };
        let ahead = StepPlanner::new(SEED).by(&self.steps.strategy);
        let mut ahead = ahead.map_err(|failure| raise(py, &failure))?.recomputing(ANY);
        let mut stepper = std::mem::take(&mut self.steps.stepper);
        let planned = apart(py, || match budget {
            None => stepper.settle(&recorded, &settings).map(|_| true),
            Some(budget) => {
                let settings = Settings { budget: Bytes(budget), ..settings };
                let planned = stepper.plan_by(&mut ahead, &recorded, &settings);
                kept = Some(recorded);
                planned
            }
        });
        self.steps.stepper = stepper;
        // Another budget may be asked for.
        self.steps.last = kept;
        planned.map_err(|fault| match fault {
            Fault::Refused(refusal) => raise(py, &Failure::from(*refusal)),
            fault => self.fault(py, fault),
        })
    }

    /// The least budget, from `floor` up, that a plan was found for, to one part in 64; `None` if none was. It's for the
    /// step that ended last. Where `planning` ends the search, what it has come to.
    pub(super) fn least_budget(
        &mut self,
        py: Python<'_>,
        floor: u64,
        planning: Planning,
    ) -> PyResult<Option<u64>> {
        let Some(recorded) = &self.steps.last else { return Ok(None) };
        let peak = self.engine.stats().peak.0;
        let effort = Effort { tries: 0, most_recompute: ANY, ..Effort::default() };
        let allowance = planning.begin();
        let fits = |budget: u64| {
            let (budget, allowance) = (Bytes(budget), allowance.clone());
            let settings = Settings { budget, allowance, ..self.engine.settings().clone() };
            apart(py, || offline::plan(&recorded.trace, &settings, &effort).is_ok())
        };
        // Budgets between two that fit need not fit, so the first of many is looked for before its edge is.
        let most = peak.max(floor);
        let rung = |k: u64| floor + (most - floor) / RUNGS * k;
        let Some(first) =
            (0..RUNGS).find(|&k| fits(rung(k))).map(rung).or_else(|| fits(most).then_some(most))
        else {
            return Ok(None);
        };
        let (mut low, mut high) = (first.saturating_sub((most - floor) / RUNGS).max(floor), first);
        while high - low > (high / 64).max(1) {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Some(high))
    }

    /// After an error in a step: no plan, and all that is alive is there.
    pub(super) fn abandon_step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.look_at_all(py)?;
        if std::mem::take(&mut self.steps.open) {
            self.engine.diverge();
            match self.engine.end_step() {
                Ok(_) | Err(Fault::NoRoom(_)) => {}
                Err(fault) => return Err(self.fault(py, fault)),
            }
        }
        Ok(())
    }

    /// The plan of the sequence that was seen or added last.
    fn last_plan(&self) -> Option<&StepPlan> {
        self.steps.stepper.plans().next()
    }

    /// Bytes of arena that the last plan takes, as the judge has it.
    pub(super) fn arena_bytes(&self) -> Option<u64> {
        self.last_plan().map(|plan| plan.verified().peak().0)
    }

    /// The last plan and the step it is for, as files; none if there is no plan.
    pub(super) fn save(&self, py: Python<'_>) -> PyResult<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(plan) = self.last_plan() else { return Ok(None) };
        let arena = (plan.verified().peak(), self.engine.settings().align);
        let device = input::device("H100").map_err(|failure| raise(py, &failure))?;
        let Saved { profile, plan } = profile::save(plan, arena, &device, (&self.steps.strategy, SEED));
        Ok(Some((profile, plan)))
    }

    /// Takes over a plan that an earlier run or another rank has made, after the judge has read it.
    /// Which step it is for is returned, as [`stepping::sequence`] has it.
    pub(super) fn load(&mut self, py: Python<'_>, step: &[u8], plan: &[u8]) -> PyResult<String> {
        let plan = apart(py, || profile::load(step, plan, None)).map_err(|failure| raise(py, &failure))?;
        let sequence = stepping::sequence(plan.graph());
        self.steps.stepper.add(plan);
        Ok(sequence.to_string())
    }
}
