//! Tables for people, objects for machines, progress for terminals.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::ProgressBar;
use memfit::formats::is_obeyed;
use memfit::{Failure, Tools, objects};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

use crate::args::Common;
use crate::commands;
use crate::error::Error;

/// Where results go, and in which form.
pub(crate) struct Output {
    /// Whose they are.
    command: Option<String>,
    /// One JSON object on standard output.
    pub(crate) json: bool,
    /// Only what was asked for.
    pub(crate) quiet: bool,
    /// Seconds of each pass.
    pub(crate) verbose: bool,
    started: Instant,
    limit: Option<f64>,
    spinner: ProgressBar,
    passes: Mutex<Vec<(String, f64)>>,
}

impl Output {
    /// For `command`, by its name.
    pub(crate) fn new(command: Option<String>, common: &Common) -> Output {
        let show = std::io::stderr().is_terminal() && !common.quiet;
        let spinner = if show { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        spinner.enable_steady_tick(Duration::from_millis(100));
        Output {
            command,
            json: common.json,
            quiet: common.quiet,
            verbose: common.verbose,
            started: Instant::now(),
            limit: common.time_limit,
            spinner,
            passes: Mutex::new(Vec::new()),
        }
    }

    /// Runs `work` with this terminal's clock, time limit and progress display.
    pub(crate) fn with_tools<T>(&self, work: impl FnOnce(&Tools<'_>) -> T) -> T {
        let now = || self.started.elapsed().as_secs_f64();
        let stop = || self.limit.is_some_and(|limit| now() > limit);
        let progress = |pass: &str| {
            self.spinner.set_message(pass.to_owned());
            if let Ok(mut passes) = self.passes.lock() {
                passes.push((pass.to_owned(), now()));
            }
        };
        work(&Tools { now: &now, stop: &stop, progress: &progress, until: self.limit })
    }

    /// Shows `what` is being done, on a terminal; with `-v` as a line of its own.
    #[cfg(feature = "run")]
    pub(crate) fn progress(&self, what: &str) {
        if self.verbose {
            // Nobody waits for these lines.
            self.spinner.suspend(|| drop(writeln!(anstream::stderr(), "{what}")));
        } else {
            self.spinner.set_message(what.to_owned());
        }
    }

    /// Shows what is being worked on, on a terminal.
    pub(crate) fn show(&self, what: &str) {
        self.spinner.set_message(clean(what));
    }

    /// How much work searches do: under a time limit as much as it allows.
    pub(crate) fn effort(&self) -> u32 {
        if self.limit.is_some() { u32::MAX } else { 1 }
    }

    /// Prints `text` to standard output.
    pub(crate) fn print(&self, text: &str) -> Result<(), Error> {
        self.spinner.finish_and_clear();
        let mut out = anstream::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("can't write to standard output").map_err(Error::Write),
        }
    }

    /// Prints a JSON object.
    pub(crate) fn object(&self, object: &Value) -> Result<(), Error> {
        self.print(&format!("{object:#}\n"))
    }

    /// Prints `text` to standard error.
    pub(crate) fn note(&self, text: &str) {
        self.spinner.finish_and_clear();
        // A note that can't be shown is not worth failing for.
        drop(anstream::stderr().lock().write_all(text.as_bytes()));
    }

    /// Seconds of each pass, for `-v`.
    pub(crate) fn passes(&self) {
        if !self.verbose {
            return;
        }
        let end = self.started.elapsed().as_secs_f64();
        let Ok(passes) = self.passes.lock() else { return };
        for (at, (pass, start)) in passes.iter().enumerate() {
            let until = passes.get(at + 1).map_or(end, |(_, next)| *next);
            self.note(&format!("{pass:<16}{:>9.3} s\n", until - start));
        }
    }

    /// Says what went wrong and what to do next.
    pub(crate) fn fail(&self, error: &Error) -> ExitCode {
        if let Error::Silent(code) = error {
            return ExitCode::from(*code);
        }
        // Who has told of both trainings has printed its object.
        if self.json && !error.is_told() {
            let printed = self.object(&self.error_object(error));
            debug_assert!(printed.is_ok() || printed.is_err(), "there is nobody left to tell");
        }
        let red = "error".red().bold().to_string();
        let mut text = format!("{red}: {}\n", clean_lines(&error.to_string()));
        if let Error::Failure { failure: Failure::Bug { replay, .. }, .. } = error {
            let path = std::env::temp_dir().join(format!("memfit-bug-{}.mfp", std::process::id()));
            match std::fs::write(&path, replay) {
                Ok(()) => text += &format!("  replay file: {}\n", path.display()),
                Err(error) => text += &format!("  no replay file: {error}\n"),
            }
        }
        if let Some(hint) = error.hint() {
            text += &format!("\n{}: {}\n", "hint".cyan().bold(), clean_lines(&hint));
        }
        self.note(&text);
        ExitCode::from(error.exit_code())
    }

    fn error_object(&self, error: &Error) -> Value {
        let mut object = json!({
            "schema": objects::SCHEMA,
            "command": self.command,
            "status": error.status(),
            "error": error.to_string(),
            "hint": error.hint(),
            "exit_code": error.exit_code(),
        });
        if let Error::Failure { failure, .. } = error
            && let Value::Object(more) = objects::failure(failure)
        {
            more.into_iter().for_each(|(key, value)| object[key] = value);
        }
        object
    }
}

/// A table without lines; all columns but the first and those of `left` stand to the right.
pub(crate) fn table(head: &[&str], left: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if !head.is_empty() {
        table.set_header(head.iter().map(|cell| clean(cell)));
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if at > 0 && !left.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.to_string();
    lines.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// `text` in one line, without what a terminal obeys: names come from files.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// The same for a text of several lines.
fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Says what is wrong with the command line, as `--json` asks if it stands there; or the help that was asked for.
pub(crate) fn misused(error: &clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    let asked = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if error.use_stderr() && asked {
        let text = error.render().to_string();
        let mut parts = text.trim().splitn(2, "\n\n");
        let message = parts.next().unwrap_or_default().trim_start_matches("error: ");
        let object = json!({
            "schema": objects::SCHEMA,
            "command": commands::named(std::env::args_os().skip(1)),
            "status": "usage",
            "error": message,
            "hint": parts.next(),
            "exit_code": code,
        });
        drop(writeln!(std::io::stdout(), "{object:#}"));
    }
    // There is nobody left to tell.
    drop(error.print());
    ExitCode::from(code)
}

/// 12345678 as `12,345,678`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
