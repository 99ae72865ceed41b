//! The eager host for PyTorch: what a dispatch mode sees goes through the online engine.
//!
//! A storage of the tracked device is a tensor of the engine; a write to it is a new version. Eviction swaps the bytes of a
//! storage for a hollow one of the same size, behind autograd, and regeneration swaps new bytes in: views, saved
//! tensors and the user's own references see the same storage all the time. Views are metadata and never reach the
//! engine. The half in Python (`memfit.torch._glue`) knows how an op is described, sized and called again.

use pyo3::prelude::*;

mod alive;
mod allocator;
mod copies;
mod dispatch;
mod eager;
mod glue;
mod host;
mod kept;
mod life;
mod means;
mod needs;
mod operands;
mod ops;
mod parts;
mod pending;
mod pinned;
mod policy;
mod raw;
mod receive;
mod retry;
mod run;
mod steps;
mod storages;
mod switches;
mod unseen;
mod watched;
mod within;
mod writes;

/// Adds the host's parts to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    alive::add(module)?;
    allocator::add(module)?;
    means::add(module)?;
    module.add_class::<eager::Eager>()
}
