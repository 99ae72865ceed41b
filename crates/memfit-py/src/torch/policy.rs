//! Who chooses what goes, among which candidates: the switches of the DTR article.

use memfit::engine::evict::{NoSample, Options, Sieve};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// As a dictionary in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Policy {
    /// A name of `EVICTORS`.
    pub(super) evictor: String,
    /// `all`, `sqrt`, or a number of candidates.
    sample: String,
    /// Leave out what is smaller than this share of the mean, and than this many bytes.
    share_of_mean: f64,
    minimum: u64,
    exponents: [f64; 3],
    /// For everything drawn at random.
    seed: u64,
}

impl Policy {
    /// What the policy is told when it is made.
    pub(super) fn options(&self) -> PyResult<Options> {
        let sample = self.sample.parse().map_err(|hint: NoSample| {
            PyValueError::new_err(format!(
                "`sample={}` is no number of candidates\nhint: {hint}",
                self.sample
            ))
        })?;
        let sieve = Sieve { sample, share_of_mean: self.share_of_mean, minimum: self.minimum };
        Ok(Options { sieve, seed: self.seed, exponents: self.exponents })
    }
}
