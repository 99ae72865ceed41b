//! Any candidate that the sieve leaves, all with the same chance.
//!
//! Source: h_rand of Kirisame et al. (ICLR 2021). O(pool) a choice, for the walk to the one drawn. The draw is the
//! engine's own, so runs compare with the original's in distribution only. Wrong choice always: a baseline.

use super::scan::{Draws, Sieve};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "random",
    summary: "any candidate",
    source: "baseline of Kirisame et al. (h_rand)",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Random(Draws(options.seed), options.sieve))
}

struct Random(Draws, Sieve);

impl Evictor for Random {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let floor = self.1.floor(state);
        let large = |storage: &u32| state.storage(*storage).size >= floor;
        let count = if floor > 0 { state.pool().filter(large).count() } else { 0 };
        victims.extend(match count {
            0 => state.pool().nth(self.0.below(state.pool_len)),
            _ => state.pool().filter(large).nth(self.0.below(count)),
        });
    }
}
