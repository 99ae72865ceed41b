//! best: placeholder.
use super::region::Walk;
use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info { name: "best", summary: "ours", source: "memfit", year: 2026 };

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Best { scan: Scan::new(options.sieve, options.seed), walk: Walk::default() })
}

struct Best {
    scan: Scan,
    walk: Walk,
}

impl Evictor for Best {
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
