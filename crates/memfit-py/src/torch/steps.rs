//! Step after step: recorded, planned once, guided from then on.

use memfit::Bytes;
use memfit::engine::offline::{self, Effort};
use memfit::engine::{Fault, Settings, stepping};
use memfit::input;
use memfit::profile::{self, Saved};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dispatch::Inner;
use crate::failure::raise;

/// What is known of the steps so far.
pub(super) struct Steps {
    stepper: stepping::Stepper,
    /// Bytes of arena that the last plan takes once it is placed, and how it was judged.
    arena: Option<u64>,
    open: bool,
}

impl Default for Steps {
    fn default() -> Self {
        let options = stepping::Options { settled: 1, ..stepping::Options::default() };
        Steps { stepper: stepping::Stepper::new(options), arena: None, open: false }
    }
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
        Ok(())
    }

    /// Brings back what is alive; plans the step if it was not known and something had to run again.
    pub(super) fn end_step<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.look_at_all(py)?;
        self.steps.open = false;
        let mut stepper = std::mem::take(&mut self.steps.stepper);
        let ended = stepper.end(&mut self.engine);
        self.steps.stepper = stepper;
        let stepped = ended.map_err(|fault| self.fault(py, fault))?;
        if stepped.planned
            && let Some(plan) = self.steps.stepper.plans().next()
        {
            let placed = profile::place(plan.clone(), self.engine.align());
            let (_, arena) = placed.map_err(|failure| raise(py, &failure))?;
            self.steps.arena = Some(arena.0);
        }
        let told = PyDict::new(py);
        told.set_item("guided", stepped.guided)?;
        told.set_item("planned", stepped.planned)?;
        told.set_item("recompute_ns", stepped.recompute_ns)?;
        told.set_item("predicted_ns", stepped.predicted_ns)?;
        told.set_item("arena_bytes", self.steps.arena)?;
        Ok(told)
    }

    /// The least budget, from `floor` up, that a plan was found for, to one part in 64; `None` if none was.
    pub(super) fn least_budget(&mut self, py: Python<'_>, floor: u64) -> PyResult<Option<u64>> {
        self.look_at_all(py)?;
        self.steps.open = false;
        let peak = self.engine.stats().peak.0;
        let recorded = self.engine.end_step().map_err(|fault| self.fault(py, fault))?;
        let effort = Effort { tries: 0, ..Effort::default() };
        let fits = |budget: u64| {
            let settings = Settings {
                budget: Bytes(budget),
                align: self.engine.align(),
                allocator: "ideal".to_owned(),
                ..Settings::new(Bytes(budget))
            };
            offline::plan(&recorded.trace, &settings, &effort).is_ok()
        };
        let (mut low, mut high) = (floor, peak.max(floor));
        if !fits(high) {
            return Ok(None);
        }
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

    /// The last plan and the step it is for, as files; none if there is no plan.
    pub(super) fn save(&self, py: Python<'_>) -> PyResult<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(plan) = self.steps.stepper.plans().next() else { return Ok(None) };
        let align = self.engine.align();
        let failed = |failure: memfit::Failure| raise(py, &failure);
        let (placed, arena) = profile::place(plan.clone(), align).map_err(failed)?;
        let settings = Settings { align, ..Settings::new(arena) };
        let Saved { profile, plan } =
            profile::save(&placed, &settings, &input::device("H100").map_err(failed)?).map_err(failed)?;
        Ok(Some((profile, plan)))
    }

    /// Takes over a plan that an earlier run has saved, after the judge has read it.
    pub(super) fn load(&mut self, py: Python<'_>, step: &[u8], plan: &[u8]) -> PyResult<()> {
        let loaded = profile::load(step, plan, None);
        let mut recorded = loaded.map_err(|failure| raise(py, &failure))?;
        // PyTorch's allocator has addresses of its own.
        recorded.layout = None;
        self.steps.stepper.add(recorded, 0);
        Ok(())
    }

    pub(super) fn budget(&self) -> Bytes {
        self.engine.budget()
    }
}
