//! A vision transformer within a budget.

use memfit_burn::{Fault, FlexDevice};

use super::{B, budget, within};
use crate::networks::vit;

pub fn main() -> Result<(), Fault> {
    within("vit", budget(VIT), |log| vit::train::<B>(&FlexDevice, log))
}

/// KiB; it takes 5.3 MiB without a limit.
const VIT: u64 = 3500;
