//! Own cost plus that of everything evicted that depends on it or that it depends on, per byte and staleness: h_DTR.
//!
//! Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), §4. O(pool · evicted) a choice: up to 100
//! times the work of `eq.rs`. Ties go to the last in the pool. Wrong choice when the pool is large.

use super::region::Walk;
use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "dtr",
    summary: "own cost + exact evicted neighbourhood, per byte and staleness",
    source: "Kirisame et al., Dynamic Tensor Rematerialization (h_DTR)",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Dtr { scan: Scan::new(options.sieve, options.seed), walk: Walk::default() })
}

struct Dtr {
    scan: Scan,
    walk: Walk,
}

impl Evictor for Dtr {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let walk = &mut self.walk;
        victims.extend(self.scan.least(state, |storage| {
            let this = state.storage(storage);
            walk.begin(state, storage);
            let around = walk.ancestors(state, storage) + walk.descendants(state, storage);
            ratio(i128::from(this.cost) + around, this.size, state.now.saturating_sub(this.last_access))
        }));
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}
