//! The nouns of memfit: what is computed, on what device, in which steps, at which addresses.
//!
//! This crate decides nothing. It depends on no other memfit crate, and every other crate speaks only in its
//! types. [`Graph`] is the input, [`Schedule`] what is to be done, [`Program`] the steps that follow from it, [`Layout`]
//! the addresses, [`Plan`] the claim that a judge reads.

#![forbid(unsafe_code)]

mod codec;
mod csr;
mod device;
mod digest;
mod dtype;
mod graph;
mod ids;
mod plan;
mod program;
mod rewrite;
mod schedule;
pub mod text;
mod units;

pub use codec::Codec;
pub use csr::Csr;
pub use device::{Bank, Device, Limits, Link, Store, Tier, usable_rate};
pub use digest::{BadDigest, Digest, DigestHasher};
pub use dtype::Dtype;
pub use graph::{
    Algorithm, Effect, Graph, GraphBuilder, GraphError, Need, Op, OpSpec, Phase, Pin, Price, Reuse, Role,
    Value, ValueSpec,
};
pub use ids::{BufferId, CopyId, OpId, StepId, ValueId};
pub use plan::{Layout, Place, Plan};
pub use program::{Buffer, Compute, Content, HostCopy, InPlace, Lifespan, Program, Step};
pub use rewrite::{Rewrite, Why};
pub use schedule::{Action, Form, Schedule, Unscheduled};
pub use units::{BadSize, Bytes, Nanos};

/// The most ops, values, buffers or steps that a graph or program may have.
pub const MAX_COUNT: usize = 50_000_000;
