//! Own cost plus the cost of the evicted classes around, for each byte and each ns of staleness: h_DTR-eq.
//!
//! Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), §4.1. O(pool · neighbours) a choice. Ties
//! go to the last in the pool. The sums drift when a view is recorded while its storage is away, as in the original.
//! Wrong choice at tight budgets of graphs with long skips: see `best.rs`.

use super::classes::Classes;
use super::region::Walk;
use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "eq",
    summary: "own cost + evicted classes around, per byte and staleness",
    source: "Kirisame et al., Dynamic Tensor Rematerialization (h_DTR-eq)",
    year: 2021,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Eq {
        scan: Scan::new(options.sieve, options.seed),
        classes: Classes::default(),
        walk: Walk::default(),
    })
}

struct Eq {
    scan: Scan,
    classes: Classes,
    /// Seen neighbours are marked by storage, seen classes by sorting: there are few.
    walk: Walk,
}

impl Evictor for Eq {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let (classes, walk) = (&mut self.classes, &mut self.walk);
        let mut roots: Vec<u32> = Vec::new();
        victims.extend(self.scan.least(state, |storage| {
            walk.begin(state, storage);
            roots.clear();
            for other in state.parents(storage).chain(state.children(storage)) {
                if !state.storage(other).resident && walk.mark(other) {
                    roots.push(classes.class(other));
                }
            }
            roots.sort_unstable();
            roots.dedup();
            let around: i128 = roots.iter().map(|&root| classes.sum(root)).sum();
            let this = state.storage(storage);
            ratio(i128::from(this.cost) + around, this.size, state.now.saturating_sub(this.last_access))
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
