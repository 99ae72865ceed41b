//! Other programs, run from the root of the repository.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Prints a line.
#[allow(clippy::print_stdout, reason = "this is a command-line tool")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Makes the root of the repository the working directory.
pub(crate) fn enter_root() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the repository")?;
    std::env::set_current_dir(root).with_context(|| format!("can't enter `{}`", root.display()))
}

/// Runs `program` and waits; its output goes where ours goes. Fails if it fails.
pub(crate) fn command<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
    variables: &[(&str, &str)],
) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args).envs(variables.iter().copied()).stdin(Stdio::null());
    say(&format!("$ {}", show(&command)));
    let status = command.status().with_context(|| format!("can't start `{program}`"))?;
    if !status.success() {
        bail!("`{}` failed: {status}", show(&command));
    }
    Ok(())
}

/// Whether `program` runs and succeeds; nothing is shown.
pub(crate) fn works<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What `program` prints.
pub(crate) fn output<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
    output_with(program, args, &[])
}

/// As [`output`], with these environment variables.
pub(crate) fn output_with<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
    variables: &[(&str, &str)],
) -> Result<String> {
    let mut command = Command::new(program);
    let output = command
        .args(args)
        .envs(variables.iter().copied())
        .output()
        .with_context(|| format!("can't start `{program}`"))?;
    if !output.status.success() {
        bail!("`{program}` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `program` prints while its standard error goes where ours goes.
pub(crate) fn printed<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stderr(Stdio::inherit());
    say(&format!("$ {}", show(&command)));
    let output = command.output().with_context(|| format!("can't start `{program}`"))?;
    if !output.status.success() {
        say(&String::from_utf8_lossy(&output.stdout));
        bail!("`{}` failed: {}", show(&command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `program` says on its standard error while it succeeds.
pub(crate) fn complaints<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(args).output().with_context(|| format!("can't start `{program}`"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("`{}` failed: {said}", show(&command));
    }
    Ok(said)
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
