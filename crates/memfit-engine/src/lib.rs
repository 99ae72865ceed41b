//! The online engine: runs a step that is still arriving within a hard budget of bytes.
//!
//! A [`Host`] says `put`, `apply`, `del`, `get`; the [`Engine`] evicts what it can compute again, and computes it again when
//! it is asked for. [`evict::EVICTORS`] are the policies, [`alloc::ALLOCATORS`] the online placers. What was done is a
//! program over a graph ([`Recorded`]) that the judge accepts; [`offline::plan`] makes a better one of it by virtual runs,
//! and [`Engine::follow`] follows that in the next step, once the judge has passed it. [`stepping`] does so for a host, step after step, [`replay`] for
//! recorded steps.
//!
//! ```
//! use memfit_engine::{Call, Engine, Output, Settings, VirtualHost};
//! use memfit_ir::{Bytes, Nanos, Role};
//!
//! // Three kilobytes, for a batch and a chain of five kilobytes that is read back from its end.
//! let mut engine = Engine::new(VirtualHost::default(), Settings::new(Bytes(3 << 10)))?;
//! let mut chain = vec![engine.put(Bytes(1 << 10), Role::Input)?];
//! for _ in 0..5 {
//!     let reads = [chain[chain.len() - 1]];
//!     let outputs = [Output::Fresh(Bytes(1 << 10))];
//!     let call = Call { kind: "relu", reads: &reads, outputs: &outputs, time: Nanos(100), ..Call::default() };
//!     engine.apply(&call, &mut chain)?;
//! }
//! for &tensor in chain.iter().rev() {
//!     engine.get(tensor)?;
//! }
//! assert!(engine.stats().peak <= Bytes(3 << 10) && engine.stats().recomputes > 0);
//! # Ok::<(), memfit_engine::Fault>(())
//! ```
//!
//! Architecture invariants: no file, clock or environment is touched here; the tables of policies are the registry;
//! a policy sees the tables and never changes them; nothing recurses; nothing is decided by a hash map's order.

#![forbid(unsafe_code)]

pub mod alloc;
mod allowance;
mod budget;
mod by_hand;
mod call;
mod classes;
mod copies;
mod differs;
mod engine;
pub mod evict;
mod fate;
mod fault;
mod few;
mod follow;
mod forget;
mod guide;
mod held;
mod homes;
mod host;
mod ids;
mod info;
pub mod kit;
mod lessened;
mod log;
mod maybe;
pub mod offline;
mod online;
mod pace;
mod park;
mod past;
mod plan;
mod planner;
mod regenerate;
mod released;
pub mod replay;
mod room;
mod run;
mod scratch;
mod settings;
mod snapshots;
mod state;
mod step;
pub mod stepping;
mod stores;
mod table;
mod takes;
mod trace;

pub use allowance::Allowance;
pub use call::{Call, Dealloc, Fate, Output, Regeneration, TensorId};
pub use engine::{Engine, Settings, Stats, Storing};
pub use fault::{Fault, Holding, NoRoom, Thrashing, Why};
pub use host::{Block, Host, HostError, Run, Seen, Source, VirtualHost, Wanted, expected};
pub use ids::StorageId;
pub use log::Recorded;
pub use plan::{Refusal, StepPlan};
pub use planner::{Found, Planner, Tried};
pub use state::State;
