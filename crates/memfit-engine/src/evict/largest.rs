//! What has the most bytes.
//!
//! Source: h_size of Kirisame et al. (ICLR 2021). O(pool) a choice. Ties go to the last in the pool. Wrong choice where
//! large tensors are dear or needed soon.

use super::scan::Scan;
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "largest",
    summary: "the largest",
    source: "Sun et al., GreedyRemat; Kirisame et al. as h_size",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Largest(Scan::new(options.sieve, options.seed)))
}

struct Largest(Scan);

impl Evictor for Largest {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        victims.extend(self.0.least(state, |storage| {
            let this = state.storage(storage);
            if this.size == 0 { f64::INFINITY } else { 1.0 / this.size as f64 }
        }));
    }

    fn evaluations(&self) -> u64 {
        self.0.evaluations
    }
}
