//! A variational autoencoder within a budget: what it draws is drawn again rather than kept.

use memfit_burn::{Fault, FlexDevice};

use super::{B, budget, within};
use crate::networks::vae;

pub fn main() -> Result<(), Fault> {
    within("vae", budget(VAE), |log| vae::train::<B>(&FlexDevice, log))
}

/// KiB; it takes 724 KiB without a limit.
const VAE: u64 = 510;
