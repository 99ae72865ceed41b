//! Offloading: which values wait in host memory between two of their uses, from when until when; and which parameters and state
//! are at home there.
//!
//! A strategy turns a [`Task`] into a [`Front`]: every op once, in the order of the task, with stores and loads in between.
//! What a transfer costs follows from the device's link to the host; what of that is hidden behind ops, and what is
//! waited for, is for the clock to say.

mod autoswap;
mod best;
mod dymem;
mod flashneuron;
mod g10;
mod lru;
mod optimizer_state;
mod sentinel;
mod vdnn;
mod zero_offload;

pub use autoswap::AutoSwap;
pub use best::Best;
pub use dymem::Dymem;
pub use flashneuron::FlashNeuron;
pub use g10::G10;
pub use lru::Lru;
pub use optimizer_state::OptimizerState;
pub use sentinel::Sentinel;
pub use vdnn::Vdnn;
pub use zero_offload::ZeroOffload;

// What all of the family stands on; strategies import it from here.
use super::homes::{rungs, without_optimizer_state};
use super::layers::turn;
use super::moving::moving;
use super::transfers::{
    Chooser, Gap, Gaps, Pressure, Window, leave_when_copied, on_demand, return_one_ahead, standardise,
};
use super::{Front, Infeasible, Moved, RunList, Scheduler, Task, random};

/// Every strategy. This order is the order of the manual.
pub const OFFLOADS: &[&dyn Scheduler] = &[
    &Lru,
    &Vdnn::ALL,
    &Vdnn::CONV,
    &Vdnn::DYN,
    &Vdnn::PLUS_PLUS,
    &Dymem,
    &AutoSwap::DOA,
    &AutoSwap::AOA,
    &AutoSwap::WDOA,
    &AutoSwap::SWDOA,
    &AutoSwap::BO,
    &Sentinel,
    &FlashNeuron,
    &G10,
    &ZeroOffload,
    &OptimizerState,
    &Best,
];
