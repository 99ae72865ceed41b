//! Time to bring it back, and time its absence costs others, per byte and staleness; never a scan of the pool.
//!
//! Ours, from h_DTR (Kirisame et al., ICLR 2021), with three differences.
//! 1. Only those evicted descendants count that the program holds, or that such a one is computed from: nobody asks for the
//!    others. What the program has deleted is worth only what it saves to those: it goes first if there are none, and else
//!    counts its own cost and that of its evicted ancestors. The original counts all, and deletes at once.
//! 2. The evicted neighbourhood is exact, not a union–find, but a walk sees at most [`MOST`] storages: beyond that a chain
//!    is long enough to be kept.
//! 3. The search is an index: candidates by cost per byte in steps of an eighth of an octave, in each step by last use.
//!    The oldest of each step are compared; the winner is re-evaluated before it goes. So the victim is within 9 % of the
//!    least score as far as keys are fresh; keys that fell are renewed around what came back.
//!
//! No guarantee on the overhead. O(log pool + steps in use) a choice, plus a walk for each candidate that has entered
//! the pool since the last one. Ties go to the cheaper step, the older, the lower number. Wrong choice where the next use
//! is known: see `offline`.

use std::collections::{BTreeMap, BTreeSet};

use super::region::Walk;
use super::scan::Sieve;
use super::{Ask, Evictor, Info, Options};
use crate::state::State;
use crate::table::Table;

pub(super) const INFO: Info = Info {
    name: "best",
    summary: "own + exact evicted cost, deleted tensors at what they save; indexed",
    source: "memfit, from Kirisame et al., Dynamic Tensor Rematerialization",
    year: 2026,
};

/// The most storages that a walk visits. With 64 a recurrent network thrashed at budgets where 512 recomputes a fifth: a step of
/// thousands of tiny ops leaves longer chains behind, and those look cheap if they are cut off.
pub(crate) const MOST: usize = 512;
/// Steps to an octave of cost per byte.
const STEPS: f64 = 8.0;
/// Neighbours whose keys are renewed when a storage comes back.
const RENEWED: usize = 64;

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Best {
        walk: Walk::capped(MOST),
        sieve: options.sieve,
        index: BTreeMap::new(),
        slots: Table::default(),
        pending: Vec::new(),
        evaluations: 0,
    })
}

/// Where a storage stands in the index.
#[derive(Clone, Copy, Default)]
struct Slot {
    listed: bool,
    pending: bool,
    step: i32,
    last_access: u64,
    key: f64,
}

struct Best {
    walk: Walk,
    sieve: Sieve,
    /// Step → `(last access, storage)`. Entries may be stale: the slot and the tables decide.
    index: BTreeMap<i32, BTreeSet<(u64, u32)>>,
    slots: Table<Slot>,
    /// Storages whose keys are to be computed before the next choice.
    pending: Vec<u32>,
    evaluations: u64,
}

impl Best {
    /// Ns that a byte of `storage` is worth.
    fn key(&mut self, state: &State, storage: u32) -> f64 {
        self.evaluations += 1;
        let this = state.storage(storage);
        self.walk.begin(state, storage);
        let up = self.walk.ancestors(state, storage);
        let down = if state.is_all_there() { 0 } else { self.walk.needed(state, storage) };
        let cost = match (this.held, down) {
            (0, 0) => 0,
            (0, _) => i128::from(this.cost) + up,
            _ => i128::from(this.cost) + up + down,
        };
        cost as f64 / this.size as f64
    }

    fn slot(&mut self, storage: u32) -> &mut Slot {
        let index = storage as usize;
        self.slots.grow(index + 1);
        &mut self.slots[index]
    }

    fn unlist(&mut self, storage: u32) {
        let slot = *self.slot(storage);
        if slot.listed {
            if let Some(row) = self.index.get_mut(&slot.step) {
                row.remove(&(slot.last_access, storage));
                if row.is_empty() {
                    self.index.remove(&slot.step);
                }
            }
            self.slot(storage).listed = false;
        }
    }

    fn list(&mut self, state: &State, storage: u32) {
        self.unlist(storage);
        let key = self.key(state, storage);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "`as` saturates: a key of 0 is in the lowest step"
        )]
        let step = (key.log2() * STEPS).floor() as i32;
        let last_access = state.storage(storage).last_access;
        *self.slot(storage) = Slot { listed: true, pending: false, step, last_access, key };
        self.index.entry(step).or_default().insert((last_access, storage));
    }

    fn settle(&mut self, state: &State) {
        let mut pending = std::mem::take(&mut self.pending);
        for storage in pending.drain(..) {
            self.slot(storage).pending = false;
            let this = state.storage(storage);
            if this.in_pool && this.size > 0 {
                self.list(state, storage);
            }
        }
        self.pending = pending;
    }

    fn renew(&mut self, storage: u32) {
        let slot = self.slot(storage);
        if !slot.pending {
            slot.pending = true;
            self.pending.push(storage);
        }
    }

    /// The oldest of each step that is still a candidate; stale entries go.
    fn heads(&mut self, state: &State, floor: u64) -> Option<(f64, u32)> {
        let mut best: Option<(f64, u32)> = None;
        let mut stale: Vec<u32> = Vec::new();
        for row in self.index.values() {
            for &(last_access, storage) in row {
                let this = state.storage(storage);
                if !this.in_pool || this.last_access != last_access {
                    stale.push(storage);
                    continue;
                }
                if this.size < floor {
                    continue;
                }
                let staleness = state.now.saturating_sub(last_access).max(1);
                let score = self.slots[storage as usize].key / staleness as f64;
                if best.is_none_or(|(least, _)| score < least) {
                    best = Some((score, storage));
                }
                break;
            }
        }
        for storage in stale {
            self.unlist(storage);
            if state.storage(storage).in_pool {
                self.renew(storage);
            }
        }
        best
    }
}

impl Evictor for Best {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let mut floor = self.sieve.floor(state);
        loop {
            self.settle(state);
            match self.heads(state, floor) {
                Some((_, storage)) => {
                    let before = *self.slot(storage);
                    self.list(state, storage);
                    if self.slot(storage).step <= before.step {
                        victims.push(storage);
                        return;
                    }
                }
                None if !self.pending.is_empty() => {}
                None if floor > 0 => floor = 0,
                None => return,
            }
        }
    }

    fn created(&mut self, _state: &State, storage: u32) {
        self.unlist(storage);
    }

    fn computed(&mut self, state: &State, storage: u32) {
        if state.storage(storage).recomputes > 0 {
            let around = state.parents(storage).chain(state.children(storage));
            let around: Vec<u32> =
                around.filter(|&other| state.storage(other).in_pool).take(RENEWED).collect();
            for other in around {
                self.renew(other);
            }
        }
    }

    fn entered(&mut self, _state: &State, storage: u32) {
        self.renew(storage);
    }

    fn evaluations(&self) -> u64 {
        self.evaluations
    }

    fn bytes(&self) -> usize {
        let listed: usize = self.index.values().map(BTreeSet::len).sum();
        self.slots.bytes()
            + 4 * self.pending.capacity()
            + self.walk.bytes()
            + size_of::<(u64, u32)>() * listed
    }
}
