//! memfit for Python: `memfit._memfit`, the native half of the package.
//!
//! Conversions only: what is computed here is computed by the `memfit` crate. The Python half re-exports it as
//! `memfit`, and types it in `_memfit.pyi`. One file adds one part to the module: `door` the front door, `checkpoint`
//! files of tensors, `torch` the
//! eager host.

use pyo3::prelude::*;

mod checkpoint;
mod door;
mod failure;
mod solve;
mod torch;
mod watch;

/// What `import memfit` finds: every part adds its own names.
#[pymodule]
fn _memfit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    checkpoint::add(module)?;
    door::add(module)?;
    torch::add(module)?;
    module.add_class::<watch::Watch>()
}
