//! The strategies: every way memfit knows to order ops, to run some again, and to place buffers.
//!
//! One file is one strategy, and one line of a table makes it known everywhere: the command line, the manual,
//! the tests and the hammer read [`order::ORDERS`], [`schedule::recompute::RECOMPUTES`] and [`place::PLACERS`]. A
//! strategy never imports a sibling strategy; composing them is the pipeline's work. What a strategy returns
//! is a claim: this crate does not import the judge.

#![forbid(unsafe_code)]

pub mod dependencies;
pub mod liveness;
pub mod order;
pub mod place;
mod problem;
pub mod schedule;

use memfit_ir::{Bytes, Device};

/// What people are told about a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name on the command line and in Python: lower case, words joined by `-`.
    pub name: &'static str,
    /// One line, lower case, no full stop.
    pub summary: &'static str,
    /// The paper or program the idea comes from.
    pub source: &'static str,
    /// Year of the source.
    pub year: u16,
}

/// What a strategy may ask about the run it is part of. Strategies never read clocks themselves.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Costs of ops come from here.
    pub device: &'a Device,
    /// Start of every random sequence.
    pub seed: u64,
    /// Becomes true when the time limit is over or the user has interrupted: return the best found so far.
    /// Without a time limit it stays false, so that results do not depend on the machine.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// How much work a search may do, in multiples of its own default. 1 is what `plan` spends; `best` gives
    /// a search that runs under a time limit as much as the time allows.
    pub effort: u32,
    /// A height that is good enough: a search for a low layout may stop when it gets there.
    pub enough: Bytes,
}

impl<'a> Context<'a> {
    /// Seed 0, no time limit, default effort, no height is good enough but the lower bound.
    #[must_use]
    pub fn new(device: &'a Device) -> Context<'a> {
        Context { device, seed: 0, stop: &|| false, effort: 1, enough: Bytes::ZERO }
    }
}
