//! Who goes when room is needed: one file is one policy.
//!
//! A policy sees the tables and names victims; what is pinned, locked or can't be computed again is not in the
//! pool and so never a victim. Adding one is a file and a line in [`EVICTORS`].

mod best;
mod classes;
mod coop;
mod dtr;
mod eq;
mod largest;
mod local;
mod lru;
mod megengine;
mod msps;
mod random;
mod region;
mod scan;

pub(crate) use best::MOST;
pub(crate) use region::Walk;
pub(crate) use scan::{Draws, Scan};
pub use scan::{NoSample, Sample, Sieve};

use crate::alloc::Allocator;
pub use crate::info::Info;
use crate::state::State;

/// What a policy may be told when it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which candidates are looked at.
    pub sieve: Sieve,
    /// For everything drawn at random.
    pub seed: u64,
    /// Exponents of the factors of `megengine`: evicted neighbours, bytes, staleness.
    pub exponents: [f64; 3],
}

impl Default for Options {
    fn default() -> Self {
        Options { sieve: Sieve::default(), seed: 0, exponents: [1.0; 3] }
    }
}

/// Room that is asked for.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Bytes that don't fit.
    pub size: u64,
    /// The addresses.
    pub allocator: &'a dyn Allocator,
}

/// A policy. The hooks keep its own tables; all have a default that does nothing.
pub trait Evictor: Send {
    /// Appends to `victims` what is to go; the engine asks again while it isn't enough. Nothing: no candidate.
    fn choose(&mut self, state: &State, ask: &Ask<'_>, victims: &mut Vec<u32>);

    /// `storage` exists from now on, and is not resident yet.
    fn created(&mut self, _state: &State, _storage: u32) {}

    /// `storage` has become resident.
    fn computed(&mut self, _state: &State, _storage: u32) {}

    /// `storage` was resident and is no more.
    fn evicted(&mut self, _state: &State, _storage: u32) {}

    /// `storage` has been put into the pool.
    fn entered(&mut self, _state: &State, _storage: u32) {}

    /// Bytes of the policy's own tables, as far as it counts them.
    fn bytes(&self) -> usize {
        0
    }

    /// How many scores have been computed.
    fn evaluations(&self) -> u64 {
        0
    }
}

/// One row of [`EVICTORS`].
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name and origin.
    pub info: Info,
    /// Makes one.
    pub make: fn(&Options) -> Box<dyn Evictor>,
}

/// Every policy. This order is the order of the manual.
pub const EVICTORS: &[Entry] = &[
    Entry { info: best::INFO, make: best::make },
    Entry { info: dtr::INFO, make: dtr::make },
    Entry { info: eq::INFO, make: eq::make },
    Entry { info: local::INFO, make: local::make },
    Entry { info: msps::INFO, make: msps::make },
    Entry { info: lru::INFO, make: lru::make },
    Entry { info: largest::INFO, make: largest::make },
    Entry { info: random::INFO, make: random::make },
    Entry { info: megengine::INFO, make: megengine::make },
    Entry { info: coop::INFO, make: coop::make },
];

/// The policy called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Entry> {
    EVICTORS.iter().find(|entry| entry.info.name == name)
}
