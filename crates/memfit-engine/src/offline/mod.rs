//! Planning by virtual runs: the step is known, so a policy may look ahead, and many may be tried.
//!
//! Every candidate is a run of the engine over the recorded step on a [`crate::VirtualHost`]: its log is a program, so what
//! is chosen is feasible by construction. The portfolio has the online policies, and others with the true next use in the
//! place of staleness (`future.rs`). Then a search bends the scores of single storages, keeps what is cheaper, and goes on
//! from there: a (1+1) evolution. Deterministic for a seed; more effort never gives a dearer plan. What all this may take of
//! the host's memory and time is [`Settings::allowance`]; the best by then is what is returned.
//!
//! Sources: Kirisame et al. (ICLR 2021) for the simulation; Belady (1966) for the next use; the rest is ours.

mod future;
mod graph;

use memfit_ir::Nanos;

use crate::call::{Dealloc, Regeneration};
use crate::engine::{Settings, Stats};
use crate::evict;
use crate::fault::Fault;
use crate::log::Recorded;
use crate::replay::{Trace, attempt};

pub use future::{Cost, Taste};
use future::{Future, Uses};
pub use graph::{PlannedGraph, plan_graph};

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
    /// The program, over the graph of the trace. Placed if the settings have addresses.
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
        best: None,
        first_fault: None,
        spent: 0,
        runs: 0,
    };
    for taste in future::TASTES {
        if search.goes_on(3 * effort.evaluations) {
            search.taste(*taste, &[]);
        }
    }
    for entry in evict::EVICTORS {
        // On long steps only the policies whose choice is quick, or that have been the cheapest somewhere.
        let slow = ["random", "coop", "megengine", "dtr"].contains(&entry.info.name);
        if search.goes_on(3 * effort.evaluations) && !(slow && trace.events.len() > 4000) {
            let regeneration =
                if entry.info.name == "best" { Regeneration::Yielding } else { Regeneration::Nested };
            search.run(entry.info.name, (entry.make)(&settings.options), regeneration, None);
        }
    }
    search.evolve(effort);
    let Search { best, first_fault, runs, .. } = search;
    match best {
        Some(Found { recorded, stats, by, .. }) => Ok(Planned { recorded, stats, by, runs }),
        None => Err(first_fault.unwrap_or(Fault::OverAllowance)),
    }
}

struct Found {
    recorded: Recorded,
    stats: Stats,
    by: String,
    /// The taste and its weights, if the search can go on from it.
    from: Option<(Taste, Vec<f32>)>,
}

struct Search<'a> {
    trace: &'a Trace,
    settings: &'a Settings,
    uses: &'a Uses,
    most_recompute: u64,
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

    /// One virtual run; kept if it is cheaper. Its cost, if it fits.
    fn run(
        &mut self,
        by: &str,
        evictor: Box<dyn evict::Evictor + '_>,
        regeneration: Regeneration,
        from: Option<(Taste, Vec<f32>)>,
    ) -> Option<u64> {
        let least = self.best.as_ref().map_or(u64::MAX, |found| found.stats.recompute_ns);
        // What gets dearer than the best so far may stop there, unless the search wants to know by how much.
        let patience = Nanos(least.min(self.trace.base().time.0.saturating_mul(self.most_recompute)));
        let settings = Settings {
            regeneration,
            dealloc: Dealloc::EagerEvict,
            forget: false,
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
                    self.best = Some(Found { recorded, stats, by: by.to_owned(), from });
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

    fn taste(&mut self, taste: Taste, weights: &[f32]) -> Option<u64> {
        let evictor = Box::new(Future::new(self.uses, taste, weights.to_vec()));
        self.run("next-use", evictor, Regeneration::Yielding, Some((taste, weights.to_vec())))
    }

    fn evolve(&mut self, effort: &Effort) {
        let mut draws = evict::Draws(effort.seed);
        let storages = self.uses.storages();
        if storages == 0 {
            return;
        }
        // The search goes on from the best next-use run, or else from the first taste.
        let start = self.best.as_ref().and_then(|found| found.from.clone());
        let (mut taste, mut weights) = start.unwrap_or((future::TASTES[0], Vec::new()));
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
            let mut other = taste;
            if draws.below(6) == 0 {
                other = future::TASTES[draws.below(future::TASTES.len())];
            }
            let before = self.best.as_ref().map_or(u64::MAX, |found| found.stats.recompute_ns);
            if let Some(cost) = self.taste(other, &bent)
                && cost < before
            {
                (taste, weights) = (other, bent);
            }
        }
    }
}
