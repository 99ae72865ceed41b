//! The cheapest contiguous window of addresses that is large enough.
//!
//! Source: Zhang et al., "Coop: Memory is not a Commodity" (NeurIPS 2023, arXiv:2311.00591). Two pointers over the pieces
//! in address order: free ones cost nothing, a locked one starts the window anew; all of the cheapest window goes at
//! once. The cost of a piece is its own and its evicted neighbours', for each ns of staleness; its size counts by what
//! the window needs. O(pieces) a choice. Ties go to the lower address. Without addresses (`ideal`) it takes the cheapest
//! single piece. Wrong choice where recompute chains matter more than holes.

use super::region::Walk;
use super::scan::{Scan, ratio};
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info = Info {
    name: "coop",
    summary: "cheapest contiguous window of addresses",
    source: "Zhang et al., Coop: Memory is not a Commodity",
    year: 2023,
};

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Coop { scan: Scan::new(options.sieve, options.seed), walk: Walk::default() })
}

struct Coop {
    scan: Scan,
    walk: Walk,
}

impl Coop {
    fn cost(walk: &mut Walk, state: &State, storage: u32) -> f64 {
        let this = state.storage(storage);
        walk.begin(state, storage);
        let around = walk.ancestors(state, storage) + walk.descendants(state, storage);
        ratio(i128::from(this.cost) + around, 1, state.now.saturating_sub(this.last_access))
    }
}

impl Evictor for Coop {
    fn choose(&mut self, state: &State, ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let Some(capacity) = ask.allocator.addresses() else {
            let walk = &mut self.walk;
            victims.extend(self.scan.least(state, |storage| {
                let size = state.storage(storage).size.min(ask.size).max(1);
                Coop::cost(walk, state, storage) / size as f64
            }));
            return;
        };
        let live =
            state.storages.iter().enumerate().filter(|(_, storage)| storage.resident && storage.size > 0);
        let mut pieces: Vec<(u64, u64, u32)> = live
            .map(|(index, storage)| (storage.offset, storage.size, crate::table::next_index(index)))
            .collect();
        pieces.sort_unstable();
        let costs: Vec<f64> = pieces
            .iter()
            .map(|&(_, _, piece)| {
                if state.storage(piece).in_pool {
                    Coop::cost(&mut self.walk, state, piece)
                } else {
                    f64::INFINITY
                }
            })
            .collect();
        self.scan.evaluations += costs.len() as u64;
        // A window reaches from the end of the piece before its first to the start of the piece after its last.
        let mut best: Option<(f64, usize, usize)> = None;
        let (mut first, mut sum) = (0, 0.0);
        for last in 0..pieces.len() {
            if costs[last].is_infinite() {
                (first, sum) = (last + 1, 0.0);
                continue;
            }
            sum += costs[last];
            let end = pieces.get(last + 1).map_or(capacity, |next| next.0);
            while first <= last {
                let start = if first == 0 { 0 } else { pieces[first - 1].0 + pieces[first - 1].1 };
                if end.saturating_sub(start) < ask.size {
                    break;
                }
                if best.is_none_or(|(least, _, _)| sum < least) {
                    best = Some((sum, first, last));
                }
                sum -= costs[first];
                first += 1;
            }
            if first > last {
                sum = 0.0;
            }
        }
        match best {
            Some((_, first, last)) => victims.extend(pieces[first..=last].iter().map(|piece| piece.2)),
            None => {
                let walk = &mut self.walk;
                victims.extend(self.scan.least(state, |storage| Coop::cost(walk, state, storage)));
            }
        }
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}
