//! Failures as Python exceptions; their classes are in `memfit._errors`.

use memfit::{Failure, objects};
use pyo3::prelude::*;
use pyo3::types::PyAnyMethods;

/// The exception for `failure`: message, hint and everything the command line's JSON tells about it.
pub(crate) fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    let replay = if let Failure::Bug { replay, .. } = failure { Some(replay) } else { None };
    let details = objects::failure(failure).to_string();
    let made =
        py.import("memfit._errors").and_then(|errors| errors.getattr("from_native")).and_then(|make| {
            make.call1((failure.exit_code(), failure.to_string(), failure.hint(), details, replay))
        });
    made.map_or_else(|error| error, PyErr::from_value)
}
