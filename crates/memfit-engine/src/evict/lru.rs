//! What has not been used for the longest time.
//!
//! Source: folklore; h_LRU of Kirisame et al. (ICLR 2021). O(pool) a choice. Ties go to the last in the pool. Wrong
//! choice where tensors differ in cost or size, which they do.

use super::scan::Scan;
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "lru",
    summary: "the longest unused",
    source: "folklore; Kirisame et al. as h_LRU",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Lru(Scan::new(options.sieve, options.seed)))
}

struct Lru(Scan);

impl Evictor for Lru {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        victims.extend(self.0.least(state, |storage| {
            let this = state.storage(storage);
            this.last_access as f64
        }));
    }

    fn evaluations(&self) -> u64 {
        self.0.evaluations
    }
}
