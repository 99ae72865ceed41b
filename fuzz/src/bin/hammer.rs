//! The hammer by hand: as many plans as are asked for.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of the developers")]

use anyhow::Result;
use clap::Parser;
use memfit_fuzz::hammer;

/// Send generated plans and mutants of them to the judge, and run all of them on real bytes
#[derive(Debug, Parser)]
#[command(
    after_help = "`--record`, of `cargo xtask hammer`, also writes the table at the end to `bench/record/`."
)]
struct Args {
    /// Plans and mutants together
    #[arg(long, default_value_t = 100_000)]
    plans: u64,
    /// Start of the random sequence
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let Args { plans, seed } = Args::parse();
    let report = hammer::run(plans, seed);
    println!("{report}\n\n{}", report.sums());
    report.verdict()
}
