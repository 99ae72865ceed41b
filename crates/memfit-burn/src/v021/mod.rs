//! Burn 0.21, and nothing else of memfit, knows what is in here.

mod asked;
mod backend;
mod by_hand;
mod channel;
mod core;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod decorator;
mod draws;
mod host;
mod kinds;
mod limits;
#[cfg(feature = "train")]
mod metric;
#[cfg(feature = "ndarray")]
mod ndarray;
mod old;
mod operands;
mod ops;
mod own;
mod quantized;
mod recipe;
mod reuse;
mod runner;
mod scratch;
mod session;
mod span;
mod steps;
mod turn;
mod weight_gradient;

pub use backend::{Backend, Device};
pub use burn_flex::{Flex, FlexDevice};
#[cfg(feature = "ndarray")]
pub use burn_ndarray::{NdArray, NdArrayDevice};
pub use by_hand::{Held, evict, is_resident, pin, restore, swap_in, swap_out, unpin};
pub use channel::{Bridge, MemfitChannel, MemfitClient};
#[cfg(feature = "cuda")]
pub use cube::{Cuda, CudaDevice};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use cube::{DeviceMemory, Pools, Strided, device_memory};
#[cfg(feature = "wgpu")]
pub use cube::{Wgpu, WgpuDevice};
pub use decorator::Memfit;
pub use host::Counters;
pub use limits::{Needs, disable, least_budget, needs, set_budget};
#[cfg(feature = "train")]
pub use metric::MemoryMetric;
pub use session::{
    Report, attempt, enable, enable_with, evict_all, last_plan, load_plan, plan_with, report, reset_peak,
    save_plan, step, take_lost, take_recorded, tried,
};
pub use steps::StepCounters;
