//! Whole programs: `cargo run --release -- vit`.

use burn::backend::Autodiff;
use memfit_burn::{Budget, Fault, Flex, FlexDevice, Memfit, Options, enable_with, report};

use crate::Log;

pub mod diffusion;
pub mod learner;
pub mod spill;
pub mod vae;
pub mod vit;

/// Was `Autodiff<Flex>`.
pub type B = Autodiff<Memfit<Flex>>;

/// A program, by name.
pub type Example = (&'static str, fn() -> Result<(), Fault>);

/// All of them.
pub const ALL: [Example; 5] = [
    ("learner", learner::main),
    ("vit", vit::main),
    ("vae", vae::main),
    ("diffusion", diffusion::main),
    ("spill", spill::main),
];

/// Says what memory a training took.
fn show(name: &str) {
    let report = report(&FlexDevice);
    let (engine, budget) = (report.engine, report.budget.unwrap_or_default());
    println!(
        "{name}: tensors took at most {} of {budget}; {} ops ran again, {} were stored elsewhere",
        engine.peak, engine.recomputes, engine.stored
    );
}

/// Does `train` within `options`.
fn within(name: &str, options: Options, train: impl FnOnce(&mut Log<'_>)) -> Result<(), Fault> {
    enable_with(&FlexDevice, options)?;
    let ended = &mut |_| {};
    memfit_burn::attempt(&FlexDevice, || train(&mut Log::new(ended)))?;
    show(name);
    Ok(())
}

fn budget(kib: u64) -> Options {
    Options { budget: Budget::of(kib << 10), ..Options::default() }
}
