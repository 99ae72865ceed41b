//! The `memfit` command: files, clocks and terminals around the front door of the `memfit` crate.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod error;
mod files;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

/// Counts what the process has allocated, for `memfit run`.
#[cfg(feature = "run")]
#[global_allocator]
static HEAP: memfit_burn::heap::Heap = memfit_burn::heap::Heap;

fn main() -> ExitCode {
    // A plan in the making is worth nothing half done, so an interrupt ends the process at once.
    let handler = ctrlc::set_handler(|| {
        files::abandon();
        std::process::exit(130)
    });
    debug_assert!(handler.is_ok(), "the handler is set once");
    let args = match commands::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return output::misused(&error),
    };
    let command = commands::named(std::env::args_os().skip(1));
    let mut output = output::Output::new(command, &args.common);
    match commands::run(&args, &mut output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output.fail(&error),
    }
}
