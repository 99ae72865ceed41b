//! Own cost plus that of the evicted storages it is computed from, per byte: memory saved for each second.
//!
//! Source: Peng et al., "Capuchin" (ASPLOS 2020), in the form of DTR's simulator. O(pool · evicted) a choice. Ties go
//! to the last in the pool. Knows no time: wrong choice where old tensors are not needed soon.

use super::region::Walk;
use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "msps",
    summary: "own cost + evicted ancestors, per byte",
    source: "Peng et al., Capuchin (ASPLOS 2020), as DTR's simulator has it",
    year: 2020,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Msps { scan: Scan::new(options.sieve, options.seed), walk: Walk::default() })
}

struct Msps {
    scan: Scan,
    walk: Walk,
}

impl Evictor for Msps {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let walk = &mut self.walk;
        victims.extend(self.scan.least(state, |storage| {
            let this = state.storage(storage);
            walk.begin(state, storage);
            ratio(i128::from(this.cost) + walk.ancestors(state, storage), this.size, 1)
        }));
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}
