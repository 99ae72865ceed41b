//! Burn's own trainer within a budget: two epochs with validation, data loaders with threads, checkpoints, and memory among the metrics.

use memfit_burn::{Fault, FlexDevice, MemoryMetric, attempt, enable_with};

use super::{B, budget, show};
use crate::classifier::{items, learn};

pub fn main() -> Result<(), Fault> {
    enable_with(&FlexDevice, budget(LEARNER))?;
    let folder = std::env::temp_dir().join(format!("burn-outside-{}", std::process::id()));
    let memory = MemoryMetric::new(&FlexDevice);
    let trained =
        attempt(&FlexDevice, || learn::<B, _>(&folder, items(160, 160), 2, &FlexDevice, Some(memory)));
    // The checkpoints of an example are nobody's.
    std::fs::remove_dir_all(&folder).ok();
    trained.map(drop)?;
    show("learner");
    Ok(())
}

/// KiB; it takes 4.4 MiB without a limit.
const LEARNER: u64 = 2700;
