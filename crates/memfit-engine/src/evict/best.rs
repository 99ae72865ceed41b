//! best: lab.
use super::region::Walk;
use super::scan::Scan;
use super::{Ask, Evictor, Info, Options};
use crate::state::State;

pub(super) const INFO: Info =
    Info { name: "best", summary: "ours", source: "memfit", year: 2026 };

pub(super) fn make(options: &Options) -> Box<dyn Evictor> {
    Box::new(Best { scan: Scan::new(options.sieve, options.seed), walk: Walk::capped(64), v: options.seed })
}

struct Best {
    scan: Scan,
    walk: Walk,
    v: u64,
}

impl Evictor for Best {
    fn choose(&mut self, state: &State, _ask: &Ask<'_>, victims: &mut Vec<u32>) {
        let walk = &mut self.walk;
        let v = self.v;
        victims.extend(self.scan.least(state, |storage| {
            let this = state.storage(storage);
            if this.size == 0 {
                return f64::INFINITY;
            }
            let stale = state.now.saturating_sub(this.last_access).max(1) as f64;
            walk.begin(state, storage);
            let up = walk.ancestors(state, storage) as f64;
            let down = walk.descendants(state, storage) as f64;
            let own = this.cost as f64;
            let dead = this.held == 0;
            if dead && v & 4 == 4 {
                // what it would save: only if something gone needs it
                if down == 0.0 {
                    return 0.0;
                }
            }
            let cost = match (v >> 4) & 7 {
                0 => own + up + down,
                1 => own + up,
                2 => own + up + down / 2.0,
                3 => own + up + own.min(down),
                4 => own + up.max(down),
                5 => own + up + if dead { 0.0 } else { down },
                6 => own + 2.0 * up + down,
                _ => own + 2.0 * up + if dead { 0.0 } else { down },
            };
            let time = match (v >> 7) & 7 {
                0 => stale,
                1 => 1.0,
                2 => stale.sqrt(),
                3 => stale.powf(0.75),
                4 => stale + state.now as f64 * 0.1,
                5 => stale + state.now as f64 * 0.3,
                6 => stale + state.now as f64,
                _ => stale.powf(0.25),
            };
            cost / this.size as f64 / time
        }));
    }

    fn evaluations(&self) -> u64 {
        self.scan.evaluations
    }
}
