//! Burn 0.21, and nothing else of memfit, knows what is in here.

mod backend;
mod channel;
mod core;
#[cfg(feature = "cuda")]
mod cuda;
mod decorator;
mod draws;
mod host;
mod kinds;
mod ops;
mod own;
mod recipe;
mod runner;
mod scratch;
mod session;
mod steps;

pub use backend::{Backend, Device};
pub use burn_flex::{Flex, FlexDevice};
pub use channel::{Bridge, MemfitChannel, MemfitClient};
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaDevice, DeviceMemory, Strided, device_memory};
pub use decorator::Memfit;
pub use host::Counters;
pub use session::{
    Report, attempt, enable, enable_with, evict_all, last_plan, load_plan, plan_with, report, reset_peak,
    save_plan, step, take_lost, take_recorded, tried,
};
pub use steps::StepCounters;
