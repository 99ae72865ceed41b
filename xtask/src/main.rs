//! `cargo xtask`: everything that's done to the project rather than with it.

#![forbid(unsafe_code)]

mod advisories;
mod gpu;
mod imports;
mod licences;
mod miri;
mod packages;
mod programs;
mod promises;
mod python;
mod record;
mod run;
mod soak;
mod tidy;
mod toolchains;
mod words;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

/// Tests, lints, benches and corpus of memfit
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all tests: Rust (a short hammer among them), doctests, Python
    Test {
        /// Leave out the Python tests, which install PyTorch into `.venv-test` the first time
        #[arg(long)]
        no_python: bool,
    },
    /// Run the lints, then all tests: what must be green before anything lands
    Ci {
        /// Parts of it
        #[arg(value_enum, default_values_t = [Job::Lint, Job::Docs, Job::Rust, Job::Miri, Job::Python])]
        jobs: Vec<Job>,
    },
    /// Take what is printed now for what the snapshot tests expect: look at the difference before it is committed
    Bless,
    /// Check what no compiler checks: file lengths, paths, sizes, the judge's size
    Tidy,
    /// Print a table of measurements against baselines in the same run
    #[command(disable_help_flag = true)]
    Bench {
        /// Which one, `--record` to write the table under `bench/record/`, and options of that program: `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Show the newest records of `bench/record/` in the tables of `docs/`
    Docs {
        /// Write nothing; fail where a page shows other figures
        #[arg(long)]
        check: bool,
    },
    /// Build the native half of the Python package into `python/memfit/`, so that `PYTHONPATH=python` finds it
    Python,
    /// Make a wheel with the `memfit` command in it, in `target/wheel/`
    Wheel,
    /// Make the corpus graphs again from their models (needs PyTorch: installs it into `.venv-test`)
    Corpus,
    /// Run the scalar codecs, on spoilt bytes too, and the tests of `memfit-ir` under Miri, which sees reads out of bounds
    Miri,
    /// Send spoilt files to every reader: none may panic, take long or take much memory
    #[command(disable_help_flag = true)]
    Fuzz {
        /// `--record` to write the table under `bench/record/`, and options of that program, which counts its memory and is one
        /// of its own: `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Measure what only a GPU can show: budgets by the allocator's count, copies over the link, large batches, Burn
    Gpu {
        /// `cuda`, or `cpu` for the same with small sizes
        #[arg(long, default_value = "cuda")]
        device: String,
        /// Parts of it
        #[arg(long, value_delimiter = ',', default_values = gpu::SLICES)]
        slices: Vec<String>,
        /// A Python with PyTorch, if not that of `.venv-test`
        #[arg(long)]
        python: Option<String>,
        /// Also write the figures to `bench/record/`
        #[arg(long)]
        record: bool,
    },
    /// Train for many steps whose shapes change, and see that nothing grows: memory, tables
    Soak {
        /// Steps of each training
        #[arg(long, default_value_t = 200)]
        steps: u64,
        /// Also write the table to `bench/record/`
        #[arg(long)]
        record: bool,
    },
    /// Send generated plans and mutants of them to the judge and run all of them on real bytes
    #[command(disable_help_flag = true)]
    Hammer {
        /// `--record` to write the table under `bench/record/`, and options of that program: `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

/// A part of `ci` that needs no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Job {
    /// What is read, not run: tidy, formatting, Clippy, licences, advisories, packages, `ruff`, `mypy`
    Lint,
    /// Documentation of the crates and the site, without a warning
    Docs,
    /// Rust tests, a short hammer among them, and the examples of the documentation
    Rust,
    /// What `xtask miri` runs; left out, and said so, where Miri is not installed
    Miri,
    /// Python tests
    Python,
    /// The solver behind feature `highs`, which takes minutes to build: what it proves is true. Only where it is named
    Highs,
    /// Each crate that is published builds from its package, and the Python package installs from a wheel. Only where it is named
    Packages,
    /// The crate that uses memfit from outside the workspace, with a lock file of its own, which builds all of Burn again: its examples and
    /// tests. Only where it is named
    Outside,
    /// Burn's Wgpu, on any adapter that there is: Mesa's software device will do. Only where it is named
    Wgpu,
    /// What is there with feature `cuda` alone is read: Clippy and the documentation, which need no GPU and no toolkit, but a hundred
    /// crates more. Only where it is named
    Cuda,
}

impl Job {
    fn needs_python(&self) -> bool {
        matches!(self, Job::Lint | Job::Docs | Job::Python | Job::Highs)
    }

    fn run(&self) -> Result<()> {
        match self {
            Job::Lint => lints(),
            Job::Docs => docs(),
            Job::Rust => rust(),
            Job::Miri if miri::is_there() => miri::test(),
            Job::Miri => {
                run::say(&format!("skipped: {}", miri::MISSING));
                Ok(())
            }
            Job::Python => python::test(),
            Job::Highs => toolchains::solver(),
            Job::Packages => {
                packages::check()?;
                packages::build()?;
                python::package()
            }
            Job::Outside => outside(),
            Job::Wgpu => run::command(
                "cargo",
                ["test", "--package", "memfit-burn", "--features", "wgpu", "--test", "wgpu"],
                NONE,
            ),
            Job::Cuda => cuda(),
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            run::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    run::enter_root()?;
    match command {
        Command::Test { no_python } => {
            rust()?;
            if *no_python { Ok(()) } else { python::test() }
        }
        Command::Ci { jobs } => std::thread::scope(|scope| {
            if jobs.iter().any(Job::needs_python) {
                // It waits for a network most of the time. Whoever needs it is told of an error.
                scope.spawn(python::environment);
            }
            jobs.iter().try_for_each(Job::run)
        }),
        Command::Bless => bless(),
        Command::Tidy => tidy(),
        Command::Bench { options } => programs::bench(options),
        Command::Docs { check } => record::show(*check),
        Command::Python => python::module(true),
        Command::Wheel => python::wheel(),
        Command::Corpus => {
            python::module(true)?;
            let python = python::environment()?;
            run::command(
                &python,
                ["-m", "memfit.torch.export", "--corpus", "corpus/graphs"],
                &[("PYTHONPATH", "python")],
            )
        }
        Command::Miri => miri::test(),
        Command::Fuzz { options } => programs::fuzz(options),
        Command::Gpu { device, slices, python, record } => {
            gpu::measure(device, slices, python.as_deref(), *record)
        }
        Command::Soak { steps, record } => soak::train(*steps, *record),
        Command::Hammer { options } => programs::hammer(options),
    }
}

/// Features that are not on by default and need no device: with them everything is tested, so that all tests share what is built.
const FEATURES: &str = "memfit-burn/ndarray,memfit-burn/tracing,memfit-burn/train";
/// What is built for tests. The Python module, which has none in Rust, is among it: so its dependencies have the features that they have
/// for the tests, and are built once.
const WHAT: [&str; 3] = ["--workspace", "--features", FEATURES];
/// What they are with CUDA.
const CUDA: &str =
    "memfit-burn/cuda,memfit-cli/cuda,memfit-burn/ndarray,memfit-burn/tracing,memfit-burn/train";

/// A crate that is not of the workspace.
const OUTSIDE: &str = "examples/burn-outside/Cargo.toml";

/// No environment variables.
const NONE: &[(&str, &str)] = &[];

fn tidy() -> Result<()> {
    let commands = Args::command();
    let names = commands.get_subcommands().map(|command| command.get_name().to_owned());
    tidy::check(&names.collect::<Vec<_>>())
}

fn lints() -> Result<()> {
    tidy()?;
    licences::check()?;
    advisories::check()?;
    packages::check()?;
    run::command("cargo", ["fmt", "--all", "--check"], NONE)?;
    let outside_format = ["fmt", "--check", "--manifest-path", OUTSIDE];
    run::command("cargo", outside_format, NONE)?;
    // Types of Python take one core for more than a minute.
    std::thread::scope(|scope| {
        let python = scope.spawn(python::lint);
        let clippy =
            ["clippy", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"];
        run::command("cargo", clippy, NONE)?;
        toolchains::oldest()?;
        python.join().unwrap_or_else(|_| bail!("the lint of Python panicked"))
    })
}

fn docs() -> Result<()> {
    let docs = ["doc", "--workspace", "--features", FEATURES, "--no-deps", "--document-private-items"];
    run::command("cargo", docs, &[("RUSTDOCFLAGS", "-D warnings")])?;
    record::show(true)?;
    python::site()
}

fn rust() -> Result<()> {
    // One of Burn's crates takes minutes, on one core for most of them. Meanwhile most of the tests are built; for the examples of the
    // documentation, which are run afterwards, little else would be.
    let is_there = run::works("cargo", ["nextest", "--version"]);
    let runner: &[&str] = if is_there { &["nextest", "run", "--no-fail-fast"] } else { &["test"] };
    run::command("cargo", [runner, &WHAT, &["--tests"]].concat(), NONE)?;
    run::command("cargo", [&["test"], &WHAT[..], &["--doc"]].concat(), NONE)
}

/// What has CUDA, read as the lints and the documentation read the rest.
fn cuda() -> Result<()> {
    let what = ["--package", "memfit-burn", "--package", "memfit-cli", "--features", CUDA];
    let clippy = ["clippy", "--all-targets"].into_iter().chain(what).chain(["--", "-D", "warnings"]);
    run::command("cargo", clippy, NONE)?;
    let docs = ["doc", "--no-deps", "--document-private-items"].into_iter().chain(what);
    run::command("cargo", docs, &[("RUSTDOCFLAGS", "-D warnings")])
}

fn outside() -> Result<()> {
    let outside = ["--target-dir", "target", "--locked", "--manifest-path", OUTSIDE];
    let clippy = ["clippy", "--all-targets"].into_iter().chain(outside).chain(["--", "-D", "warnings"]);
    run::command("cargo", clippy, NONE)?;
    run::command("cargo", ["test"].into_iter().chain(outside), NONE)
}

fn bless() -> Result<()> {
    let snapshots = ["test", "--package", "memfit-cli", "--package", "memfit-formats", "--no-fail-fast"];
    run::command("cargo", snapshots, &[("INSTA_UPDATE", "always"), ("INSTA_FORCE_PASS", "1")])
}
