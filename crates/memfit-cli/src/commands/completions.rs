//! `memfit completions`: a script for the user's shell.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Args;
use crate::error::Error;
use crate::output::Output;

pub(super) fn run(shell: Shell, output: &Output) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "memfit", &mut script);
    output.print(&String::from_utf8_lossy(&script))
}
