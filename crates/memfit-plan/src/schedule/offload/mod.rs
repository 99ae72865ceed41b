//! Offloading: which values wait in host memory between two of their uses, from when until when; and which parameters and state
//! are at home there.
//!
//! A strategy turns a [`Task`] into a [`Front`]: every op once, in the order of the task, with stores and loads in between.
//! What a transfer costs follows from the device's link to the host; what of that is hidden behind ops, and what is
//! waited for, is for the clock to say.

mod autoswap;
mod autotm;
mod best;
mod chromosome;
mod dymem;
mod flashneuron;
mod flow;
mod g10;
mod lru;
mod maps;
mod modnn;
mod optimizer_state;
mod sentinel;
mod superneurons;
mod swapadvisor;
mod vdnn;
mod zero_offload;

pub use autoswap::AutoSwap;
pub use autotm::AutoTm;
pub use best::Best;
pub use dymem::Dymem;
pub use flashneuron::FlashNeuron;
pub use g10::G10;
pub use lru::Lru;
pub use modnn::MoDnn;
pub use optimizer_state::OptimizerState;
pub use sentinel::Sentinel;
pub use superneurons::SuperNeurons;
pub use swapadvisor::SwapAdvisor;
pub use vdnn::Vdnn;
pub use zero_offload::ZeroOffload;

// What all of the family stands on; strategies import it from here.
use super::homes::{or_parked, rungs, without_optimizer_state};
use super::layers::turn;
use super::less::or_less;
use super::transfers::{
    Chooser, Gap, Gaps, LEAST, Pressure, Window, leave_in_time, leave_when_copied, on_demand,
    return_one_ahead, standardise,
};
use super::{Algorithms, Front, Infeasible, Moved, RunList, Scheduler, Task, moving, random, solver};

/// Every strategy. This order is the order of the manual.
pub const OFFLOADS: &[&dyn Scheduler] = &[
    &Lru,
    &Vdnn::ALL,
    &Vdnn::CONV,
    &Vdnn::DYN,
    &Vdnn::PLUS_PLUS,
    &MoDnn,
    &Dymem,
    &AutoSwap::DOA,
    &AutoSwap::AOA,
    &AutoSwap::WDOA,
    &AutoSwap::SWDOA,
    &AutoSwap::BO,
    &SuperNeurons,
    &Sentinel,
    &FlashNeuron,
    &G10,
    &AutoTm::STATIC,
    &AutoTm::SYNC,
    &AutoTm::ASYNC,
    &SwapAdvisor::DEFAULT,
    &ZeroOffload,
    &OptimizerState,
    &Best,
];

/// Those that take little time beside a search, whose plans it is held against.
pub(super) const QUICK: moving::Others = &[
    &Vdnn::DYN,
    &Vdnn::PLUS_PLUS,
    &MoDnn,
    &Dymem,
    &AutoSwap::BO,
    &SuperNeurons,
    &Sentinel,
    &FlashNeuron,
    &G10,
];
