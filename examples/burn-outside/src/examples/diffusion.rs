//! Steps of diffusion within a budget that is found first: what a step needs is measured, and half of what lies above the floor is given.

use memfit_burn::{Fault, FlexDevice, Options, attempt, enable_with, needs, step};

use super::{B, within};
use crate::Log;
use crate::networks::diffusion;

pub fn main() -> Result<(), Fault> {
    enable_with(&FlexDevice, Options { record: true, ..Options::default() })?;
    let ended = &mut |_| step(&FlexDevice).expect("room for everything");
    attempt(&FlexDevice, || diffusion::train::<B>(&FlexDevice, &mut Log::new(ended)))?;
    let needs = needs(&FlexDevice).expect("a recorded step");
    println!(
        "diffusion: a step takes {}, its floor is {}, {} would do",
        needs.peak, needs.floor, needs.least
    );
    let options = Options { budget: needs.above_floor(0.5), ..Options::default() };
    within("diffusion", options, |log| diffusion::train::<B>(&FlexDevice, log))
}
