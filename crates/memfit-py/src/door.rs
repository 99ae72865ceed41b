//! The front door: graphs and goals in, verified plans out.

use memfit::{Floor, input};
use pyo3::prelude::*;

/// Adds the front door to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(floor_bytes, module)?)
}

/// Persistent bytes plus the largest working set of one op, with buffers aligned as on `device`.
#[pyfunction]
#[pyo3(signature = (graph, device = "A100-80"))]
fn floor_bytes(py: Python<'_>, graph: &[u8], device: &str) -> PyResult<u64> {
    let found = py.detach(|| {
        let graph = input::graph(graph, &input::Options::default())?;
        Ok(Floor::of(&graph, input::device(device)?.align).bytes.0)
    });
    found.map_err(|failure: memfit::Failure| pyo3::exceptions::PyValueError::new_err(failure.to_string()))
}
