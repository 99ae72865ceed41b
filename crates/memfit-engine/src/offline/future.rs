//! Cost over size and the true time to the next use.
//!
//! Source: the next use in the place of staleness, after Belady (1966) and Kirisame et al. (ICLR 2021). What has been
//! deleted and nothing evicted is computed from goes first. O(pool · walk) a choice. Ties go to the last in the pool.

use memfit_ir::Csr;

use crate::call::Output;
use crate::evict::{Ask, Evictor, Scan, Sieve, Walk};
use crate::state::State;
use crate::trace::{Event, Trace};

/// The most storages that a walk visits.
const MOST: usize = 48;

/// When each storage is read. Storages are numbered as an engine numbers them that never forgets.
#[derive(Clone, Debug)]
pub(crate) struct Uses {
    /// For each storage the calls that read it; the number of calls stands for the end of the step.
    reads: Csr<u32>,
    /// Σ time of the calls before each; one more than there are calls.
    before: Vec<u64>,
}

impl Uses {
    pub(crate) fn of(trace: &Trace) -> Uses {
        let (mut storage_of, mut pairs, mut storages) = (Vec::new(), Vec::new(), 0usize);
        let mut before = vec![0u64];
        let mut call = 0u32;
        for event in &trace.events {
            match event {
                Event::Put { .. } => {
                    storage_of.push(storages);
                    storages += 1;
                }
                Event::Call { reads, outputs, time, .. } => {
                    let of =
                        |at: usize| reads.get(at).and_then(|&read| storage_of.get(read as usize)).copied();
                    pairs.extend((0..reads.len()).filter_map(of).map(|storage| (storage, call)));
                    let mut made = Vec::with_capacity(outputs.len());
                    for output in outputs {
                        match *output {
                            Output::View(at) => made.push(of(at).unwrap_or(0)),
                            Output::Fresh(_) | Output::InPlace(_) | Output::Takes(..) => {
                                made.push(storages);
                                storages += 1;
                            }
                        }
                    }
                    storage_of.extend(made);
                    before.push(before[call as usize] + time.0);
                    call += 1;
                }
                Event::Share(_) | Event::Release(_) => {}
            }
        }
        pairs.extend(trace.held.iter().filter_map(|&held| Some((*storage_of.get(held as usize)?, call))));
        Uses { reads: Csr::from_pairs(storages, pairs.iter().copied()), before }
    }

    pub(crate) fn storages(&self) -> usize {
        self.reads.rows()
    }

    /// Ns of program time from the end of `call` to the next use of `storage`, at least 1; twice the rest of the
    /// step if there is none.
    fn distance(&self, storage: u32, call: u64) -> f64 {
        let reads = self.reads.row(storage as usize);
        let next = reads.partition_point(|&read| u64::from(read) <= call);
        let at = |call: u64| {
            let index = usize::try_from(call).unwrap_or(usize::MAX).min(self.before.len() - 1);
            self.before[index]
        };
        let end = at(u64::MAX);
        let now = at(call + 1);
        let ns = match reads.get(next) {
            Some(&read) => at(u64::from(read)).saturating_sub(now) + 1,
            None => end.saturating_sub(now) + end,
        };
        ns as f64
    }
}

/// Which cost a score counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Own, evicted ancestors and evicted descendants.
    Around,
    /// Own and evicted ancestors.
    Up,
    /// Own only.
    Own,
}

/// A way to score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The numerator.
    pub cost: Cost,
    /// Exponent of the time to the next use.
    pub next: f64,
    /// Exponent of the time since the last use.
    pub last: f64,
}

const fn score(cost: Cost, next: f64, last: f64) -> Score {
    Score { cost, next, last }
}

/// The portfolio.
pub(crate) const SCORES: &[Score] = &[
    score(Cost::Around, 1.0, 0.0),
    score(Cost::Up, 1.0, 0.0),
    score(Cost::Up, 0.5, 0.0),
    score(Cost::Around, 0.5, 0.0),
    score(Cost::Up, 0.0, 0.0),
    score(Cost::Up, 0.25, 0.0),
    score(Cost::Around, 0.0, 1.0),
    score(Cost::Around, 0.5, 0.5),
    score(Cost::Up, 0.5, 0.5),
    score(Cost::Own, 1.0, 0.0),
];

pub(crate) struct Future<'a> {
    uses: &'a Uses,
    rule: Score,
    /// Factors for single storages; 1 where there is none.
    weights: Vec<f32>,
    walk: Walk,
    scan: Scan,
}

impl<'a> Future<'a> {
    pub(crate) fn new(uses: &'a Uses, rule: Score, weights: Vec<f32>) -> Future<'a> {
        Future { uses, rule, weights, walk: Walk::capped(MOST), scan: Scan::new(Sieve::default(), 0) }
    }
}

impl Evictor for Future<'_> {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let Future { uses, rule, weights, walk, scan } = self;
        victims.extend(scan.least(state, |storage| {
            let this = state.storage(storage);
            if this.size == 0 {
                return f64::INFINITY;
            }
            walk.begin(state, storage);
            let own = i128::from(this.cost);
            let down = if rule.cost == Cost::Around || this.held == 0 {
                walk.descendants(state, storage)
            } else {
                0
            };
            let cost = match rule.cost {
                _ if this.held == 0 && down == 0 => return 0.0,
                Cost::Own => own,
                Cost::Up => own + walk.ancestors(state, storage),
                Cost::Around if this.held == 0 => own + walk.ancestors(state, storage),
                Cost::Around => own + walk.ancestors(state, storage) + down,
            };
            let mut score = cost as f64 / this.size as f64;
            if rule.next > 0.0 {
                score /= power(uses.distance(storage, state.call), rule.next);
            }
            if rule.last > 0.0 {
                score /= power(state.now.saturating_sub(this.last_access).max(1) as f64, rule.last);
            }
            score * f64::from(weights.get(storage as usize).copied().unwrap_or(1.0))
        }));
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}

/// `base` to the power of an exponent that is a multiple of a quarter: roots only, so equal on every machine.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent >= 1.0 {
        base
    } else if exponent >= 0.5 {
        base.sqrt()
    } else {
        base.sqrt().sqrt()
    }
}
