//! The online engine: runs a step that is still arriving within a hard budget of bytes.

pub mod alloc;
mod call;
mod engine;
pub mod evict;
mod fault;
mod forget;
mod guide;
mod host;
mod log;
pub mod offline;
pub mod replay;
mod run;
mod state;

pub use call::{Call, Dealloc, Output, Regeneration, TensorId};
pub use engine::{Engine, Settings, Stats};
pub use fault::{Fault, Holding, NoRoom, Why};
pub use host::{Block, Host, HostError, Run, VirtualHost};
pub use log::Recorded;
pub use state::State;
