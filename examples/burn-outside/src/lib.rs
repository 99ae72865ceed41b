//! What somebody outside memfit would write with Burn: a dozen networks and their trainings, none of which knows memfit.
//!
//! `tests/same.rs` trains each on the plain backends, and on `Memfit` of them within budgets, and asks for the same bits: losses, all
//! gradients of each step, parameters at the end.

pub mod classifier;
pub mod examples;
pub mod log;
pub mod networks;

pub use log::Log;
