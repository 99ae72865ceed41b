//! What strangers' files and spoilt plans meet: the bodies of fuzzing.
//!
//! [`READERS`] are all that reads bytes, each with good files to begin with, and [`mutant`] spoils these. `memfit-fuzz` sends
//! them mutants, blind to coverage, on any toolchain; the targets in `fuzz_targets/` have libFuzzer look for inputs that
//! reach new code. [`hammer`] makes plans and spoils them, and asks the judge and real bytes.
//! Development only: no product crate depends on it.

#![forbid(unsafe_code)]

pub mod hammer;
mod mutate;
mod readers;

pub use mutate::mutant;
pub use readers::{READERS, Reader, sum};
