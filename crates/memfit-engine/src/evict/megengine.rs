//! MegEngine's score: evicted neighbours against size with the free blocks beside it, staleness and recomputes.
//!
//! Source: MegEngine 1.13, `imperative/src/impl/interpreter` (2021–2024). Differences: cost is measured time instead of
//! bytes, and the penalty for what was recomputed often works; in the original its counter is never raised. The exponents
//! are constants there, options here. The tensor's own cost is left out, as there. O(pool · neighbours) a choice. Ties
//! go to the last in the pool. Wrong choice where own costs differ much.

use super::classes::Classes;
use super::scan::Scan;
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "megengine",
    summary: "evicted neighbours, per byte with free neighbours, staleness and recomputes",
    source: "MegEngine, eager DTR",
    year: 2021,
};

/// Factor for each recompute.
const PENALTY: f64 = 1.0001;

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(MegEngine {
        scan: Scan::new(options.sieve, options.seed),
        classes: Classes::default(),
        exponents: options.exponents,
    })
}

struct MegEngine {
    scan: Scan,
    classes: Classes,
    exponents: [f64; 3],
}

impl Evictor for MegEngine {
    fn choose(&mut self, state: &State, ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let ([neighbours, bytes, staleness], classes) = (self.exponents, &mut self.classes);
        victims.extend(self.scan.least(state, |storage| {
            let this = state.storage(storage);
            let mut around = 0.0;
            if let Some(record) = state.tensor(this.root()).record.get() {
                let record = state.record(record);
                for tensor in record.reads.iter().copied().chain(record.made()) {
                    let other = state.storage_of(tensor);
                    if !state.storage(other).resident {
                        let class = classes.class(other);
                        around += classes.sum(class).max(i128::from(state.storage(other).cost)) as f64;
                    }
                }
            }
            let (left, right) = ask.allocator.free_around(this.offset, this.size);
            let mebibytes = (this.size + left + right) as f64 / f64::from(1u32 << 20);
            let seconds = state.now.saturating_sub(this.last_access) as f64 / 1e9;
            let penalty = PENALTY.powf(f64::from(this.recomputes));
            (around / 1e9 + 1e-3).powf(neighbours) * penalty
                / ((mebibytes + 1e-6).powf(bytes) * (seconds + 1e-3).powf(staleness))
        }));
    }

    fn created(&mut self, _state: &State, storage: u32) {
        self.classes.created(storage);
    }

    fn computed(&mut self, state: &State, storage: u32) {
        self.classes.computed(state, storage);
    }

    fn evicted(&mut self, state: &State, storage: u32) {
        self.classes.evicted(state, storage);
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}
