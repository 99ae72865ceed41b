//! The planner behind every host: what the engine's virtual runs find and what the schedulers find, on a recorded step.
//!
//! A host issues its ops in program order, so first runs keep the recorded order. The engine's portfolio comes first, then
//! what the recorded step did itself; the cheaper of both is one more schedule that the search begins with. The search goes
//! straight onto the budget, then up the whole ladder, as `plan` does, then a few times more from the best there is. Schedules
//! that are cheaper than what there is are tried (`trial.rs`): the verifier checks the program, and the engine follows that in a
//! virtual run of the recorded step. So what is handed out is known to be followed to its end within the budget, costs what is
//! said, and is never dearer than what the portfolio alone finds. Where everything is to be stored as long as there is room
//! ([`Storing::Always`]), who only moves is asked first, and what is found so runs no op again. Work is counted, so plans are the same on every machine where
//! there is no time limit. What all this may take of memory and time is [`Settings::allowance`], or an allowance of the
//! planner's own.

use std::sync::LazyLock;

use memfit_engine::offline::{self, Effort};
use memfit_engine::stepping::AS_IT_RAN;
use memfit_engine::{
    Allowance, Fault, Found, Planner, Recorded, Refusal, Settings, StepPlan, Storing, Tried,
};
use memfit_ir::{Bytes, Codec};
use memfit_plan::families::{Named, Unknown};
use memfit_plan::schedule::Task;
use memfit_plan::{Context, Means};

use crate::Failure;
use crate::trial::{Best, Trial, device, least, placed, tried_out};

impl From<Refusal> for Failure {
    fn from(Refusal { rejected, replay }: Refusal) -> Failure {
        Failure::Bug { pass: "step planner".to_owned(), rejected, replay }
    }
}

/// Which way a step is planned.
#[derive(Clone, Copy)]
enum Way {
    /// The cheapest of all.
    Auto,
    /// The engine's portfolio alone.
    Portfolio,
    /// One scheduler alone.
    Scheduler(Named),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Auto => AUTO.to_owned(),
            Way::Portfolio => PORTFOLIO.to_owned(),
            Way::Scheduler(named) => named.name(),
        }
    }

    /// The schedulers that it asks, in this order, as long as what was found has a price: those that do with `means`.
    fn schedulers(self, means: Means) -> Vec<Named> {
        match self {
            Way::Portfolio => Vec::new(),
            Way::Scheduler(named) => vec![named],
            Way::Auto => {
                let defaults = Named::defaults().filter(|one| one.family.means.are_served_by(means));
                let mut all: Vec<Named> = defaults.collect();
                all.sort_by_key(|one| one.turn());
                all
            }
        }
    }
}

/// The name of the cheapest of all ways, which hosts take unless another is named.
pub const AUTO: &str = "auto";

/// The name of the engine's portfolio of virtual runs.
pub const PORTFOLIO: &str = "evict:planned";

/// See [`StepPlanner::strategies`].
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let scheduler = |one: Named| match one.family.means.moves() {
        true => one.name(),
        false => one.scheduler.info().name.to_owned(),
    };
    [AUTO, PORTFOLIO].map(str::to_owned).into_iter().chain(Named::each().map(scheduler)).collect()
});

/// See the head of this module.
pub struct StepPlanner {
    way: Way,
    effort: Effort,
    /// Where it is not that of the settings.
    allowance: Option<Allowance>,
}

/// Seconds that hosts give schedulers for a step by default.
pub const PLANNING_SECONDS: f64 = 30.0;

impl StepPlanner {
    /// The engine's portfolio, from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> StepPlanner {
        let effort = Effort { seed, ..Effort::default() };
        StepPlanner { way: Way::Portfolio, effort, allowance: None }
    }

    /// Only by the strategy called `name`: `auto` for the cheapest of all, `evict:planned` for the engine's portfolio, or a
    /// scheduler, with or without `recompute:` before its name.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if there is none of that name.
    pub fn by(self, name: &str) -> Result<StepPlanner, Failure> {
        let way = match name {
            AUTO => Way::Auto,
            PORTFOLIO => Way::Portfolio,
            _ => {
                let named = Named::called(name).or_else(|| Named::called(&format!("recompute:{name}")));
                let known = StepPlanner::strategies();
                let unknown = || Unknown::new("strategy for recorded steps", name, known);
                named.map(Way::Scheduler).ok_or_else(unknown)?
            }
        };
        Ok(StepPlanner { way, ..self })
    }

    /// The name of what plans.
    #[must_use]
    pub fn name(&self) -> String {
        self.way.name()
    }

    /// Names of the strategies that [`StepPlanner::by`] knows: those that only run ops again stand without their family.
    #[must_use]
    pub fn strategies() -> Vec<&'static str> {
        NAMES.iter().map(String::as_str).collect()
    }

    /// Keeps to `allowance`, whatever the settings say: for planners that plan once.
    #[must_use]
    pub fn within(self, allowance: Allowance) -> StepPlanner {
        StepPlanner { allowance: Some(allowance), ..self }
    }

    /// As often as `most` times the step's own time may go into repetitions.
    #[must_use]
    pub fn recomputing(self, most: u64) -> StepPlanner {
        StepPlanner { effort: Effort { most_recompute: most, ..self.effort }, ..self }
    }

    /// The portfolio's plan as it ran, if there is one.
    fn portfolio(&self, recorded: &Recorded, settings: &Settings) -> Result<offline::Planned, Fault> {
        let as_it_ran = recorded.cost_ns() / recorded.trace.base().time.0.max(1) + 1;
        let most_recompute = self.effort.most_recompute.max(as_it_ran);
        offline::plan(&recorded.trace, settings, &Effort { most_recompute, ..self.effort })
    }

    /// The cheapest of `best` and of what schedulers find, by running ops `again` if that is wanted.
    fn by_schedulers(
        &self,
        (lossy, again): (&[Codec], bool),
        recorded: &Recorded,
        settings: &Settings,
        mut best: Option<Best>,
        tried: &mut Vec<Tried>,
    ) -> Result<Option<Best>, Fault> {
        let is_lossless = settings.codecs.iter().any(|row| !row.0.is_lossy());
        let means = Means {
            recompute: again,
            offload: settings.tiers.iter().any(Option::is_some),
            compress: is_lossless && recorded.graph.is_sparse() || !lossy.is_empty(),
        };
        let schedulers = self.way.schedulers(means);
        if schedulers.is_empty() {
            return Ok(best);
        }
        let device = device(settings)?;
        let stop = || settings.allowance.is_over();
        let context = Context { seed: self.effort.seed, stop: &stop, lossy, ..Context::new(&device) };
        let mut task = Task::issued(&recorded.graph, true, &context).holding(recorded.held_to_the_end());
        let mut trial = Trial::new(recorded, settings, &context, &task).repeating(again);
        for named in schedulers {
            let before = least(best.as_ref());
            if before == 0 {
                break;
            }
            let recomputes = !named.family.means.moves();
            let searches = recomputes && matches!(self.way, Way::Auto);
            if searches {
                (task, best) = trial.straight(task, true, best)?;
            }
            if recomputes {
                task = task.with_starts(best.iter().map(Best::runs).collect());
            }
            let found = trial.by_scheduler(named.scheduler, &task, least(best.as_ref()))?;
            best = found.or(best);
            if searches {
                (task, best) = trial.straight(task, false, best)?;
            }
            let recompute_ns = best.as_ref().map(|best| best.ns).filter(|&ns| ns < before);
            tried.push(Tried { name: named.name(), recompute_ns });
        }
        Ok(best)
    }
}

impl Planner for StepPlanner {
    fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<Found, Fault> {
        let allowance = self.allowance.clone().unwrap_or_else(|| settings.allowance.clone());
        let settings = &Settings { allowance, ..settings.clone() };
        let (mut best, mut tried, mut fault) = (None, Vec::new(), None);
        let lossy = settings.limits(Bytes::ZERO).lossy;
        // Nothing is lost where a plan fits that loses nothing, unless whoever names a scheduler knows better.
        let first: &[Codec] = if matches!(self.way, Way::Scheduler(_)) { &lossy } else { &[] };
        if settings.storing == Storing::Always
            && let Some(Best { recorded: found, ns }) =
                self.by_schedulers((first, false), recorded, settings, None, &mut tried)?
        {
            return Ok(Found { plan: self.adopt(&found, settings)?, ns, tried });
        }
        if matches!(self.way, Way::Auto | Way::Portfolio) {
            match self.portfolio(recorded, settings) {
                Ok(planned) => {
                    let ns = planned.stats.recompute_ns;
                    tried.push(Tried { name: PORTFOLIO.to_owned(), recompute_ns: Some(ns) });
                    best = Some(Best { recorded: planned.recorded, ns });
                }
                Err(error @ (Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::OverAllowance)) => {
                    tried.push(Tried { name: PORTFOLIO.to_owned(), recompute_ns: None });
                    fault = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if matches!(self.way, Way::Auto) && recorded.cost_ns() > 0 && !recorded.moved_home {
            let found = tried_out(&recorded.program, recorded, settings, least(best.as_ref()))?;
            let found = found.map(|(recorded, ns)| Best { recorded, ns });
            let found = found.filter(|found| best.as_ref().is_none_or(|best: &Best| best.ns > found.ns));
            if let Some(found) = found {
                tried.push(Tried { name: AS_IT_RAN.to_owned(), recompute_ns: Some(found.ns) });
                best = Some(found);
            }
        }
        best = self.by_schedulers((first, true), recorded, settings, best, &mut tried)?;
        if best.is_none() && first.len() < lossy.len() {
            best = self.by_schedulers((&lossy, true), recorded, settings, best, &mut tried)?;
        }
        match best {
            Some(best) => Ok(Found { plan: self.adopt(&best.recorded, settings)?, ns: best.ns, tried }),
            None => {
                let names: Vec<&str> = tried.iter().map(|tried| tried.name.as_str()).collect();
                Err(fault.unwrap_or_else(|| Fault::NoPlan(names.join(", "))))
            }
        }
    }

    fn adopt(&mut self, recorded: &Recorded, settings: &Settings) -> Result<StepPlan, Fault> {
        if recorded.layout.is_some() {
            return Ok(recorded.judged(settings)?);
        }
        let (layout, height) = placed(recorded, &recorded.program, settings)?;
        Ok(StepPlan::judge(
            recorded.graph.clone(),
            &settings.limits(height),
            recorded.program.clone(),
            layout,
        )?)
    }
}
