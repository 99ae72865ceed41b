//! Step after step: recorded, planned once, guided from then on.

use std::time::Instant;

use memfit::engine::{Allowance, Fault, Settings, stepping};
use memfit::ir::Role;
use memfit::profile::{self, Saved};
use memfit::{Bytes, Failure, Nanos, PORTFOLIO, Parts, Steps};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dispatch::Inner;
use crate::failure::raise;

/// Random seed in planning.
const SEED: u64 = 1;

/// No step so far.
pub(super) fn steps() -> Result<Steps, Failure> {
    Steps::new(stepping::Options { settled: 1, ..stepping::Options::default() }, PORTFOLIO, SEED)
}

/// Ns of a step in each op once, and in repetitions and waiting.
pub(super) type Times = (u64, u64);

/// Bytes of arena that a plan takes once it is placed; the lossy codecs that it uses; what a step by it was predicted to take,
/// and took; where the difference lies, if it is large.
pub(super) type Planned = (u64, Vec<&'static str>, Option<Times>, Option<Times>, Option<String>);

/// Host memory and time that a search for a plan may take.
#[derive(Clone, Copy)]
pub(super) struct Planning {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Planning {
    /// From now on.
    fn begin(self) -> Allowance {
        let start = Instant::now();
        Allowance::lasting(Bytes(self.bytes), self.seconds, move || start.elapsed())
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
    /// What is alive is what the step starts from; if a plan is expected to fit, it is followed. Within `budget` from here on,
    /// where that was lifted: then what the plan has elsewhere has been parked. `moved`: storages may be at other addresses,
    /// with the same bytes in them.
    pub(super) fn begin_step(&mut self, py: Python<'_>, budget: Option<Bytes>, moved: bool) -> PyResult<()> {
        if moved {
            self.find_again(py);
        }
        self.look_at_all(py)?;
        if self.engine.settings().parking {
            // What outlives the step may be at home elsewhere; the rest of what is there now is demoted when the step ends.
            for entry in self.entries.values().filter(|entry| !entry.exposed && !entry.raw) {
                let known = self.engine.set_role(entry.tensor, Role::Parameter);
                debug_assert!(known.is_ok(), "the program holds what is in the table");
            }
        }
        self.began = Instant::now();
        let begun = self.steps.begin(&mut self.engine);
        begun.map_err(|fault| self.fault(py, fault))?;
        if let Some(budget) = budget {
            self.retry(py, |engine| engine.set_budget(budget))?;
            self.engine.reset_peak();
        }
        Ok(())
    }

    /// Brings back what is alive. What is told says whether a plan is wanted; making one is [`Inner::plan_step`].
    pub(super) fn end_step<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.look_at_all(py)?;
        let ended = self.steps.end(&mut self.engine, || self.began.elapsed());
        let stepped = ended.map_err(|fault| self.fault(py, fault))?;
        self.rest();
        let told = PyDict::new(py);
        told.set_item("sequence", stepped.sequence.map(|sequence| sequence.to_string()))?;
        told.set_item("guided", stepped.guided)?;
        let left = self.engine.why_left().filter(|_| stepped.expected && !stepped.guided);
        told.set_item("left", left)?;
        told.set_item("expected", stepped.expected)?;
        told.set_item("wants_plan", stepped.wants_plan)?;
        told.set_item("recompute_ns", stepped.recompute_ns)?;
        told.set_item("predicted_ns", stepped.predicted_ns)?;
        Ok(told)
    }

    /// Names of what was tried for the last plan, with ns in repetitions of what was found.
    pub(super) fn tried(&self) -> Vec<(String, Option<u64>)> {
        self.steps.tried().iter().map(|tried| (tried.name.clone(), tried.recompute_ns)).collect()
    }

    /// Plans the step that ended last: for the budget that it ran in, or else for `budget`. False if there is no plan.
    pub(super) fn plan_step(
        &mut self,
        py: Python<'_>,
        budget: Option<u64>,
        planning: Planning,
    ) -> PyResult<bool> {
        let (steps, settings) = (&mut self.steps, self.engine.settings().clone());
        let settings = Settings { allowance: planning.begin(), ..settings };
        let planned = apart(py, || match budget {
            None => steps.settle(&settings).map(|planned| planned.is_some()),
            Some(budget) => steps.plan_within(&Settings { budget: Bytes(budget), ..settings }),
        });
        planned.map_err(|fault| match fault {
            Fault::Refused(refusal) => raise(py, &Failure::from(*refusal)),
            fault => self.fault(py, fault),
        })
    }

    /// The least budget, from `floor` up, that a plan was found for; `None` if none was. It's for the step that ended last.
    /// Where `planning` ends the search, what it has come to.
    pub(super) fn least_budget(&mut self, py: Python<'_>, floor: u64, planning: Planning) -> Option<u64> {
        let (peak, settings) = (self.engine.stats().peak, self.engine.settings().clone());
        let settings = Settings { allowance: planning.begin(), ..settings };
        let steps = &mut self.steps;
        apart(py, move || steps.least_budget(&settings, Bytes(floor), peak)).map(|least| least.0)
    }

    /// After an error in a step: no plan, and all that is alive is there.
    pub(super) fn abandon_step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.look_at_all(py)?;
        let ended = self.steps.abandon(&mut self.engine);
        self.rest();
        ended.map_err(|fault| self.fault(py, fault))
    }

    /// Where nothing is parked nobody looks on until the next step: what the program writes to then, no copy has.
    fn rest(&mut self) {
        if !self.engine.has_parked() {
            self.engine.forget_spare_copies();
        }
    }

    /// See [`Planned`].
    pub(super) fn planned(&self) -> Option<Planned> {
        let (plan, timing) = (self.steps.last_plan()?, self.steps.timing());
        let lossy = plan.program().lossy().into_iter().map(|codec| codec.name()).collect();
        let (predicted, measured) = (timing.predicted(), timing.measured());
        let why = measured.zip(predicted).and_then(|(measured, predicted)| measured.why_not(predicted));
        let times = |parts: Parts| (parts.once.0, parts.again.0);
        Some((plan.verified().peak().0, lossy, predicted.map(times), measured.map(times), why))
    }

    /// Profile and plan of the last step that was planned, as files.
    pub(super) fn save(&self, py: Python<'_>) -> PyResult<Option<(Vec<u8>, Vec<u8>)>> {
        let saved = self.steps.save(self.engine.settings().align).map_err(|failure| raise(py, &failure))?;
        Ok(saved.map(|Saved { profile, plan }| (profile, plan)))
    }

    /// Takes over a plan that an earlier run or another rank has made, after the verifier has checked it.
    /// Which step it is for is returned, as [`stepping::sequence`] has it.
    pub(super) fn load(
        &mut self,
        py: Python<'_>,
        (step, plan): (&[u8], &[u8]),
        predicted: Option<Times>,
    ) -> PyResult<String> {
        let lossy = self.engine.settings().limits(Bytes::ZERO).lossy;
        let plan =
            apart(py, || profile::load(step, plan, None, &lossy)).map_err(|failure| raise(py, &failure))?;
        let predicted = predicted.map(|(once, again)| Parts { once: Nanos(once), again: Nanos(again) });
        Ok(self.steps.add(plan, predicted).to_string())
    }
}
