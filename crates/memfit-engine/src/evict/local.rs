//! Own cost for each byte and each ns of staleness, whatever else is evicted: h_local.
//!
//! Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), §4. O(pool) a choice. Ties go to the last
//! in the pool. Wrong choice at tight budgets: it breaks long chains and then has to run all of them.

use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "local",
    summary: "own cost per byte and staleness",
    source: "Kirisame et al., Dynamic Tensor Rematerialization (h_local)",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Local(Scan::new(options.sieve, options.seed)))
}

struct Local(Scan);

impl Evictor for Local {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        victims.extend(self.0.least(state, |storage| {
            let this = state.storage(storage);
            ratio(i128::from(this.cost), this.size, state.now.saturating_sub(this.last_access))
        }));
    }

    fn evaluations(&self) -> u64 {
        self.0.evaluations
    }
}
