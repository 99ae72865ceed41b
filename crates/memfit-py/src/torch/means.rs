//! What an engine of PyTorch's may do beside dropping: memory for copies, and codecs.

use std::path::PathBuf;
use std::time::Instant;

use crate::failure::raise;
use memfit::engine::{Settings, Storing};
use memfit::ir::Bytes;
use memfit::tiers::{Disk, Room};
use memfit::{Failure, host_settings};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::pinned::Pinned;

/// As a dictionary in Python.
#[derive(Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Means {
    /// Bytes of host memory for copies, and of a disk.
    host_budget: u64,
    disk_budget: u64,
    /// The directory whose disk that is.
    spill: Option<PathBuf>,
    /// Bytes per second at most on the way to host memory.
    link: Option<f64>,
    /// Whether ops may run again where there is room for copies.
    recompute: bool,
    /// How many times as long as the program's own ops recomputation may take without a plan.
    pub(super) patience: Option<f64>,
    /// Names of codecs.
    lossless: Vec<String>,
    lossy: Vec<String>,
    /// Who makes copies in host memory where the device has streams, in place of the shelf; and who makes encoded ones there.
    pinned: Option<Py<PyAny>>,
    coded: Option<Py<PyAny>>,
}

/// The lossy codecs among those that hosts know as `names`.
#[pyfunction]
fn lossy_codecs(py: Python<'_>, names: Vec<String>) -> PyResult<Vec<&'static str>> {
    let codecs = memfit::lossy_codecs(&names).map_err(|failure| raise(py, &failure))?;
    Ok(codecs.into_iter().map(|codec| codec.name()).collect())
}

/// Adds what Python asks of codecs to the module.
pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lossy_codecs, module)?)
}

impl Means {
    /// The memory for copies.
    pub(super) fn room(&self) -> Room {
        let disk = self.spill.clone().filter(|_| self.disk_budget > 0);
        let disk = disk.map(|directory| Disk { capacity: Bytes(self.disk_budget), directory });
        Room { host: (self.host_budget > 0).then_some(Bytes(self.host_budget)), disk, link: self.link }
    }

    /// What of it a shelf has, and who has the host memory otherwise.
    pub(super) fn shelves(self) -> (Room, Option<Pinned>) {
        let room = self.room();
        let host = room.host.filter(|_| self.pinned.is_none());
        (Room { host, ..room }, Pinned::new(self.pinned, self.coded))
    }

    /// Settings of an engine with so many bytes.
    pub(super) fn settings(&self, py: Python<'_>, budget: Bytes) -> PyResult<Settings> {
        let started = Instant::now();
        let settings =
            host_settings(budget, &self.room(), [&self.lossless, &self.lossy], &|| started.elapsed());
        let storing = if self.recompute { Storing::WhereCheaper } else { Storing::Always };
        let parking = self.room().host.is_some() || self.room().disk.is_some();
        let mut settings =
            settings.map(|settings| Settings { storing, parking, ..settings }).map_err(|failure| {
                let hint = failure.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                match failure {
                    Failure::Resources { .. } => PyOSError::new_err(format!("{failure}{hint}")),
                    _ => PyValueError::new_err(format!("{failure}{hint}")),
                }
            })?;
        if let Some(coded) = &self.coded {
            // The device encodes by its own ops, at its own pace.
            for (codec, encode, decode) in &mut settings.codecs {
                let rates = coded.bind(py).call_method1("rates", (codec.name(),))?;
                (*encode, *decode) = rates.extract()?;
            }
        }
        Ok(settings)
    }
}
