//! Planning by virtual runs: the step is known, so a policy may look ahead, and many may be tried.
//!
//! Every candidate is a run of the engine over the recorded step on a [`crate::VirtualHost`]: its log is a program, so what
//! is chosen is feasible by construction. The portfolio has the online policies, and others with the true next use in the
//! place of staleness (`future.rs`). It runs twice: what a host forgets as the program gives it up makes room, and can't be
//! computed from any more, so plans that forget and plans that keep are both looked for. Then a search bends the scores of
//! single storages, keeps what is cheaper, and goes on from there: a (1+1) evolution. Plans that forget are followed once, as
//! a host would, before they are handed out. Deterministic for a seed; more effort never gives a dearer plan. What all this
//! may take of the host's memory and time is [`Settings::allowance`]; the best by then is what is returned.
//!
//! Sources: Kirisame et al. (ICLR 2021) for the simulation; Belady (1966) for the next use; the rest is ours.

mod future;
mod graph;
mod least;

use memfit_ir::Nanos;

use crate::allowance::Allowance;
use crate::call::{Dealloc, Regeneration};
use crate::engine::{Settings, Stats};
use crate::evict;
use crate::fault::Fault;
use crate::log::Recorded;
use crate::plan::StepPlan;
use crate::planner::{Found as PlanFound, Planner, Tried};
use crate::replay::{attempt, followed};
use crate::trace::Trace;

pub use future::{Cost, Score};
use future::{Future, Uses};
pub use graph::{PlannedGraph, plan_graph};
pub use least::least_budget;

/// How hard to think, and where to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Virtual runs of the search, after the portfolio.
    pub tries: u32,
    /// Score evaluations after which the search ends; the portfolio ends after three times as many.
    pub evaluations: u64,
    /// For the search.
    pub seed: u64,
    /// Plans that recompute for longer than this many times the step's own time are not looked for.
    pub most_recompute: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { tries: 100, evaluations: 10_000_000, seed: 1, most_recompute: 2 }
    }
}

/// A plan for a step, and what it costs.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The program, over the graph of the trace, without that. Placed if the settings have addresses.
    pub recorded: Recorded,
    /// What the virtual run cost.
    pub stats: Stats,
    /// Name of the policy that found it.
    pub by: String,
    /// Virtual runs made.
    pub runs: u32,
}

/// The cheapest program for `trace` that was found within `budget`.
///
/// `settings` say alignment and allocator; their policy is one of the portfolio.
///
/// # Errors
///
/// The fault of the first policy that did not fit, if none does; [`Fault::OverAllowance`] if none could be tried to its end.
pub fn plan(trace: &Trace, settings: &Settings, effort: &Effort) -> Result<Planned, Fault> {
    let uses = Uses::of(trace);
    let mut search = Search {
        trace,
        settings,
        uses: &uses,
        most_recompute: effort.most_recompute,
        forget: settings.forget,
        best: None,
        first_fault: None,
        spent: 0,
        runs: 0,
    };
    search.portfolio(effort);
    let mut other = None;
    if settings.forget {
        // What is forgotten gives room, and can't be computed from any more: either may be the cheaper.
        let forgetful = search.best.take();
        search.forget = false;
        search.portfolio(effort);
        other = forgetful;
        if cost(&other) < cost(&search.best) {
            std::mem::swap(&mut other, &mut search.best);
        }
    }
    search.evolve(effort);
    let Search { best, first_fault, runs, .. } = search;
    let mut cheapest: Option<Found> = None;
    for found in [best, other].into_iter().flatten() {
        if let Some(found) = found.when_followed(trace, settings)?
            && found.stats.recompute_ns < cost(&cheapest)
        {
            cheapest = Some(found);
        }
    }
    match cheapest {
        Some(Found { recorded, stats, by, .. }) => Ok(Planned { recorded, stats, by, runs }),
        None => Err(first_fault.unwrap_or(Fault::OverAllowance)),
    }
}

/// [`plan`] as a [`Planner`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Portfolio {
    /// How hard to think.
    pub effort: Effort,
}

impl Planner for Portfolio {
    fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<PlanFound, Fault> {
        // What took so long once may take as long again.
        let as_it_ran = recorded.repeated_ns() / recorded.trace.base().time.0.max(1) + 1;
        let most_recompute = self.effort.most_recompute.max(as_it_ran);
        let Planned { recorded, stats, by, .. } =
            plan(&recorded.trace, settings, &Effort { most_recompute, ..self.effort })?;
        let tried = vec![Tried { name: by, recompute_ns: Some(stats.recompute_ns) }];
        Ok(PlanFound { plan: self.adopt(&recorded, settings)?, ns: stats.recompute_ns, tried })
    }

    fn adopt(&mut self, recorded: &Recorded, settings: &Settings) -> Result<StepPlan, Fault> {
        Ok(recorded.judged(settings)?)
    }
}

struct Found {
    recorded: Recorded,
    stats: Stats,
    by: String,
    /// Whether it forgets.
    forget: bool,
    /// The rule and its weights, if the search can go on from it.
    from: Option<(Score, Vec<f32>)>,
}

impl Found {
    /// What it costs to follow it; `None` if that can't be done to the end. Who forgets may have done so at another moment
    /// than who follows: then other things are there.
    fn when_followed(self, trace: &Trace, settings: &Settings) -> Result<Option<Found>, Fault> {
        if !self.forget {
            return Ok(Some(self));
        }
        let Found { recorded, by, forget, from, .. } = self;
        let plan = recorded.judged(settings)?;
        drop(recorded);
        // One run, which is made also when the time is over.
        let allowance = Allowance::new(settings.allowance.share(IN_HAND).bytes, || false);
        let settings = Settings { allowance, ..settings.clone() };
        let found = followed(trace, settings, plan)?;
        Ok(found.map(|(recorded, stats)| Found { recorded: alone(recorded), stats, by, forget, from }))
    }
}

/// `recorded` without its trace, which the caller has, and which takes as much as the rest.
fn alone(recorded: Recorded) -> Recorded {
    Recorded { trace: Trace::default(), ..recorded }
}

/// Ns in repetitions.
fn cost(found: &Option<Found>) -> u64 {
    found.as_ref().map_or(u64::MAX, |found| found.stats.recompute_ns)
}

struct Search<'a> {
    trace: &'a Trace,
    settings: &'a Settings,
    uses: &'a Uses,
    most_recompute: u64,
    /// Whether runs forget what the program gives up and nothing needs.
    forget: bool,
    best: Option<Found>,
    first_fault: Option<Fault>,
    spent: u64,
    runs: u32,
}

/// Logs that there is memory for: the best one, the one at hand, and what either takes while it grows or becomes a graph.
const IN_HAND: u64 = 4;

impl Search<'_> {
    /// Whether there is work left, of so many evaluations, and time.
    fn goes_on(&self, evaluations: u64) -> bool {
        self.spent <= evaluations && !self.settings.allowance.is_over()
    }

    /// A run of every policy.
    fn portfolio(&mut self, effort: &Effort) {
        for rule in future::SCORES {
            if self.goes_on(3 * effort.evaluations) {
                self.rule(*rule, &[]);
            }
        }
        for entry in evict::EVICTORS {
            // On long steps only the policies whose choice is quick, or that have been the cheapest somewhere.
            let slow = ["random", "coop", "megengine", "dtr"].contains(&entry.info.name);
            if self.goes_on(3 * effort.evaluations) && !(slow && self.trace.events.len() > 4000) {
                let regeneration =
                    if entry.info.name == "best" { Regeneration::Yielding } else { Regeneration::Nested };
                self.run(entry.info.name, (entry.make)(&self.settings.options), regeneration, None);
            }
        }
    }

    /// One virtual run; kept if it is cheaper. Its cost, if it fits.
    fn run(
        &mut self,
        by: &str,
        evictor: Box<dyn evict::Evictor + '_>,
        regeneration: Regeneration,
        from: Option<(Score, Vec<f32>)>,
    ) -> Option<u64> {
        let least = self.best.as_ref().map_or(u64::MAX, |found| found.stats.recompute_ns);
        // What gets dearer than the best so far may stop there, unless the search wants to know by how much.
        let patience = Nanos(least.min(self.trace.base().time.0.saturating_mul(self.most_recompute)));
        let settings = Settings {
            regeneration,
            dealloc: Dealloc::EagerEvict,
            forget: self.forget,
            patience,
            allowance: self.settings.allowance.share(IN_HAND),
            ..self.settings.clone()
        };
        self.runs += 1;
        let (outcome, stats) = attempt(self.trace, settings, evictor);
        self.spent += stats.evaluations;
        match outcome {
            Ok(recorded) => {
                if stats.recompute_ns < least {
                    let (by, forget) = (by.to_owned(), self.forget);
                    self.best = Some(Found { recorded: alone(recorded), stats, by, forget, from });
                }
                Some(stats.recompute_ns)
            }
            Err(Fault::OverAllowance) => None,
            Err(fault) => {
                self.first_fault.get_or_insert(fault);
                None
            }
        }
    }

    fn rule(&mut self, rule: Score, weights: &[f32]) -> Option<u64> {
        let evictor = Box::new(Future::new(self.uses, rule, weights.to_vec()));
        self.run("next-use", evictor, Regeneration::Yielding, Some((rule, weights.to_vec())))
    }

    fn evolve(&mut self, effort: &Effort) {
        let mut draws = evict::Draws(effort.seed);
        let storages = self.uses.storages();
        if storages == 0 {
            return;
        }
        if let Some(best) = &self.best {
            self.forget = best.forget;
        }
        // The search goes on from the best next-use run, or else from the first rule.
        let start = self.best.as_ref().and_then(|found| found.from.clone());
        let (mut rule, mut weights) = start.unwrap_or((future::SCORES[0], Vec::new()));
        weights.resize(storages, 1.0);
        for attempt in 0..effort.tries {
            if !self.goes_on(effort.evaluations)
                || self.best.as_ref().is_some_and(|b| b.stats.recompute_ns == 0)
            {
                return;
            }
            let mut bent = weights.clone();
            // From many small changes to few: each changes the scores of some storages by up to a factor of 8.
            let changes = 1 + storages * 3 / 20 / (1 + usize::try_from(attempt / 8).unwrap_or(0));
            for _ in 0..changes {
                let octave = draws.below(13) as f32 / 2.0 - 3.0;
                bent[draws.below(storages)] *= octave.exp2();
            }
            let mut other = rule;
            if draws.below(6) == 0 {
                other = future::SCORES[draws.below(future::SCORES.len())];
            }
            let before = self.best.as_ref().map_or(u64::MAX, |found| found.stats.recompute_ns);
            if let Some(cost) = self.rule(other, &bent)
                && cost < before
            {
                (rule, weights) = (other, bent);
            }
        }
    }
}
