//! Schedules: what runs when, and what it takes.
//!
//! A [`Task`] is a graph with a fixed order of first runs; a [`RunList`] says which of its nodes run when, and becomes
//! the actions of a [`memfit_ir::Schedule`], which has the one way to a program. The strategies of [`recompute`] each
//! make a [`Front`] of run lists; [`fit()`] takes from it the fastest that can also be *placed* within the budget, and
//! returns its program.

pub mod compress;
mod early;
mod fit;
mod front;
pub mod hybrid;
mod ids;
mod layers;
mod memo;
mod moved;
pub mod offload;
mod random;
pub mod recompute;
mod run_list;
mod runs;
mod state;
mod task;
mod transfers;

pub use early::early;
pub use fit::{Rewritten, fit};
pub use front::{Front, Infeasible, Instead, Point};
pub use moved::{Moved, Scheduler};
pub use run_list::{Cost, RunList};
pub use task::Task;

/// A family of strategies that move values.
pub struct Moving {
    /// What stands before `:` in the names that people use.
    pub family: &'static str,
    /// Whether its strategies may also run ops again.
    pub recomputes: bool,
    /// Whether its strategies need to know which values are sparse, not where else there is memory.
    pub encodes: bool,
    /// The last one is the default.
    pub strategies: &'static [&'static dyn Scheduler],
}

impl Moving {
    /// Whether its strategies have anything to do where values may be moved, or encoded, or both.
    #[must_use]
    pub fn may(&self, moves: bool, encodes: bool) -> bool {
        match (self.encodes, self.recomputes) {
            (true, _) => encodes,
            (false, true) => moves || encodes,
            (false, false) => moves,
        }
    }

    /// The name of its default, as people use it.
    #[must_use]
    pub fn default_name(&self) -> Option<String> {
        Some(format!("{}:{}", self.family, self.strategies.last()?.info().name))
    }
}

/// Every family that moves values, in the order of the manual.
pub const MOVING: &[Moving] = &[
    Moving { family: "offload", recomputes: false, encodes: false, strategies: offload::OFFLOADS },
    Moving { family: "compress", recomputes: false, encodes: true, strategies: compress::COMPRESSES },
    Moving { family: "hybrid", recomputes: true, encodes: false, strategies: hybrid::HYBRIDS },
];

/// The strategy that people call `family:name`, with its family.
#[must_use]
pub fn moving(name: &str) -> Option<(&'static Moving, &'static dyn Scheduler)> {
    let (family, bare) = name.split_once(':')?;
    let family = MOVING.iter().find(|moving| moving.family == family)?;
    let strategy = family.strategies.iter().find(|strategy| strategy.info().name == bare)?;
    Some((family, *strategy))
}
