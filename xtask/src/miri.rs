//! Tests under Miri, an interpreter of Rust that sees reads out of bounds and undefined behaviour. It is some thousand times slower,
//! so tests have small counts there (`cfg!(miri)`), and has no vector instructions and no C: the scalar codecs, without zstd.

use anyhow::{Result, bail};

use crate::run;

/// What to do where it is not installed.
pub(crate) const MISSING: &str =
    "Miri is not installed; `rustup toolchain install nightly --component miri,rust-src` gets it";

/// Tests of decoders ask the clock and the environment.
const FLAGS: &[(&str, &str)] = &[("MIRIFLAGS", "-Zmiri-disable-isolation")];

/// Whether Miri and the sources of the standard library, which it interprets too, are there.
pub(crate) fn is_there() -> bool {
    run::works("cargo", ["+nightly", "miri", "setup"])
}

/// Runs all that is run under Miri.
pub(crate) fn test() -> Result<()> {
    if !is_there() {
        bail!("{MISSING}");
    }
    let tests = ["+nightly", "miri", "test", "--package"];
    let codecs = ["memfit-codec", "--no-default-features", "--lib", "--test", "damage"];
    run::command("cargo", tests.into_iter().chain(codecs), FLAGS)?;
    run::command("cargo", tests.into_iter().chain(["memfit-ir", "--lib"]), FLAGS)
}
