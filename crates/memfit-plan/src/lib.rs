//! The strategies: every way memfit knows to order ops, to run some again, and to place buffers.
//!
//! One file is one strategy, and one line of its family's table makes it known everywhere: the command line, Python, the
//! manual, the tests and the hammer read [`FAMILIES`], in which a family is a row. A strategy never imports a sibling
//! strategy; composing them is the pipeline's work. What a strategy returns is a claim: this crate does not import
//! the judge.

#![forbid(unsafe_code)]

pub mod dependencies;
pub mod families;
pub mod liveness;
mod means;
pub mod order;
pub mod place;
mod problem;
pub mod schedule;
pub mod shard;
pub mod simplify;

pub use families::{FAMILIES, Family};
pub use means::Means;
pub use memfit_engine::evict::Info;
use memfit_ir::{Bytes, Codec, Device};

/// What a strategy may ask about the run it is part of. Strategies never read clocks themselves.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Costs of ops come from here.
    pub device: &'a Device,
    /// Random seed.
    pub seed: u64,
    /// Becomes true when the time limit is over or the user has interrupted: return the best found so far.
    /// Without a time limit it stays false, so that results do not depend on the machine.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// How much work a search may do, in multiples of its own default. 1 is what `plan` spends; `best` gives
    /// a search that runs under a time limit as much as the time allows.
    pub effort: u32,
    /// A height that is good enough: a search for a low layout may stop when it gets there.
    pub enough: Bytes,
    /// Lossy codecs that may be used.
    pub lossy: &'a [Codec],
}

impl<'a> Context<'a> {
    /// Seed 0, no time limit, default effort, no height is good enough but the lower bound, nothing is lost.
    #[must_use]
    pub fn new(device: &'a Device) -> Context<'a> {
        Context { device, seed: 0, stop: &|| false, effort: 1, enough: Bytes::ZERO, lossy: &[] }
    }
}
