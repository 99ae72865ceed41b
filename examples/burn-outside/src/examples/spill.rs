//! Activations go to a file on disk between their uses, and hardly anything is computed twice. The file has no name: nothing is left of it.

use std::path::Path;

use memfit_burn::{Budget, Disk, Fault, FlexDevice, Options};

use super::{B, budget, within};
use crate::networks::convnext;

pub fn main() -> Result<(), Fault> {
    let directory: &'static Path = Box::leak(std::env::temp_dir().into_boxed_path());
    let disk = Some(Disk { budget: Budget::mib(64), directory });
    let options = Options { disk, recompute: false, strategy: "offload:best", ..budget(SPILL) };
    within("spill", options, |log| convnext::train::<B>(&FlexDevice, log))
}

/// KiB; it takes 2 MiB without a limit.
const SPILL: u64 = 1300;
