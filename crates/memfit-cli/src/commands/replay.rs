//! `memfit replay`: a recorded step under a budget, online, in virtual time.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::engine::Allowance;
use memfit::engine::replay::Outcome;
use memfit::profile::Saved;
use memfit::{
    Budget, Bytes, Failure, Nanos, PLANNING_SECONDS, ReplayGoal, Replayed, StepPlanner, objects, recording,
    replay_recording,
};
use serde_json::{Value, json};

use super::policy::PolicyArgs;
use crate::error::Error;
use crate::files;
use crate::output::{Output, grouped, table};

/// How a recorded step is replayed
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    /// One run, without looking ahead
    Online,
    /// The step is recorded and planned first, then run guided by the plan
    Planned,
}

#[derive(Debug, ClapArgs)]
pub(super) struct ReplayArgs {
    /// A log of the DTR simulator, or a graph; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) log: PathBuf,
    /// Memory the step may use: a size, or a share of its own peak [default: what it takes without a budget]
    #[arg(long, short, value_name = "SIZE|%")]
    pub(super) budget: Option<Budget>,
    /// Whether the engine looks ahead
    #[arg(long, value_enum, default_value = "online")]
    pub(super) mode: Mode,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Allocator under the engine [default: best-fit for a graph; ideal, which counts bytes, for a log]
    #[arg(long, value_name = "NAME")]
    pub(super) allocator: Option<String>,
    /// What happens at the last release: `evict-unneeded`, `eager-evict` (as DTR has it), `banish` or `ignore`
    #[arg(long, value_name = "MODE")]
    pub(super) dealloc: Option<String>,
    /// Count bytes and evict exactly as the simulator of the DTR paper
    #[arg(long)]
    pub(super) as_simulator: bool,
    /// Give up when the step takes this many times its own time
    #[arg(long, default_value_t = 2.0, value_name = "TIMES")]
    pub(super) limit: f64,
    /// Device that the times of a graph's ops come from
    #[arg(long, default_value = "A100-80", value_name = "NAME|FILE.toml")]
    pub(super) device: String,
    /// What plans with `--mode planned`: `auto` for the cheapest of all ways, `evict:planned`, or a scheduler [default: evict:planned]
    #[arg(long, value_name = "NAME")]
    pub(super) strategy: Option<String>,
    /// Write the plan of `--mode planned` to this file (`.json` or `.json.zst`), for the step in the profile
    #[arg(long, value_name = "PLAN", value_hint = ValueHint::FilePath, requires = "save_profile")]
    pub(super) save_plan: Option<PathBuf>,
    /// Write the recorded step to this file (`.json` or `.json.zst`): a graph with the times of its ops
    #[arg(long, value_name = "GRAPH", value_hint = ValueHint::FilePath, requires = "save_plan")]
    pub(super) save_profile: Option<PathBuf>,
    /// Follow this plan of an earlier run instead of making one
    #[arg(long, value_name = "PLAN", value_hint = ValueHint::FilePath, requires = "load_profile")]
    #[arg(conflicts_with_all = ["mode", "save_plan"])]
    pub(super) load_plan: Option<PathBuf>,
    /// The profile that belongs to `--load-plan`
    #[arg(long, value_name = "GRAPH", value_hint = ValueHint::FilePath, requires = "load_plan")]
    pub(super) load_profile: Option<PathBuf>,
}

pub(super) fn run(args: &ReplayArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.log)?;
    let device = files::device(&args.device)?;
    let recording = recording(&bytes, &Default::default(), &device);
    let recording = recording.map_err(|failure| files::about(&args.log, failure))?;
    let goal = ReplayGoal {
        budget: args.budget,
        planned: args.mode == Mode::Planned,
        evictor: args.policy.evictor.clone(),
        sieve: args.policy.sieve(),
        exponents: args.policy.exponents()?,
        allocator: args.allocator.clone(),
        dealloc: args.dealloc.clone(),
        as_simulator: args.as_simulator,
        limit: args.limit - 1.0,
        seed,
    };
    let saved = match (&args.load_profile, &args.load_plan) {
        (Some(profile), Some(plan)) => {
            Some(Saved { profile: files::read(profile)?, plan: files::read(plan)? })
        }
        _ => None,
    };
    if args.save_plan.is_some() && !goal.planned {
        return Err(Failure::usage("nothing is planned that could be saved", "plan: `--mode planned`").into());
    }
    let started = std::time::Instant::now();
    let mut planner = StepPlanner::new(seed);
    if let Some(name) = &args.strategy {
        let over = move || started.elapsed().as_secs_f64() >= PLANNING_SECONDS;
        planner = planner.by(name)?.within(Allowance::new(Bytes::MAX, over));
    }
    let replayed = output.with_tools(|tools| {
        (tools.progress)("replay");
        replay_recording(&recording, &goal, &device, saved.as_ref(), &mut planner)
    });
    let replayed = replayed.map_err(|failure| match &args.load_plan {
        Some(path) => files::about(path, failure),
        None => failure.into(),
    })?;
    let told = Told {
        strategy: match args.mode {
            _ if saved.is_some() => "evict:loaded".to_owned(),
            Mode::Online => format!("evict:{}", goal.evictor),
            Mode::Planned => planner.name(),
        },
        stuck: match &replayed.report.outcome {
            Outcome::Done => None,
            Outcome::NoRoom(fault) => Some(fault.to_string()),
            Outcome::Slow => {
                Some(format!("recomputation takes the step beyond {} times its own time", args.limit))
            }
        },
        has_plan: saved.is_some() || goal.planned,
        seconds: started.elapsed().as_secs_f64(),
        seed,
    };
    if let (Some(profile), Some(plan), None) = (&args.save_profile, &args.save_plan, &told.stuck) {
        let saved = replayed.save(&device)?;
        files::write(profile, &files::packed(profile, saved.profile))?;
        files::write(plan, &files::packed(plan, saved.plan))?;
    }
    if output.json {
        output.object(&object(&replayed, &told))?;
        return if told.stuck.is_none() { Ok(()) } else { Err(Error::Silent(1)) };
    }
    if let Some(why) = told.stuck {
        return Err(Error::Stuck { why, online: !told.has_plan });
    }
    output.print(&report(&replayed, &told))
}

/// What is told of a replay beside what the engine reports.
struct Told {
    strategy: String,
    /// Why it did not come to its end.
    stuck: Option<String>,
    /// Whether there was a plan to follow.
    has_plan: bool,
    seconds: f64,
    seed: u64,
}

/// What is told of a replay.
fn object(replayed: &Replayed, told: &Told) -> Value {
    let Replayed { budget, base, report, .. } = replayed;
    let stats = &report.stats;
    let status = match &report.outcome {
        Outcome::Done => "fits",
        Outcome::NoRoom(_) => "infeasible",
        Outcome::Slow => "timeout",
    };
    json!({
        "schema": objects::SCHEMA,
        "command": "replay",
        "status": status,
        "strategy": told.strategy,
        "error": told.stuck,
        "budget_bytes": budget.0,
        "peak_bytes": stats.peak.0,
        "arena_bytes": stats.height.0,
        "unconstrained_peak_bytes": base.peak.0,
        "time_ns": report.time().0,
        "base_time_ns": base.time.0,
        "overhead": report.overhead(),
        "recompute_ns": stats.recompute_ns,
        "recomputes": stats.recomputes,
        "evictions": stats.evictions,
        "evaluations": stats.evaluations,
        "fragmented": stats.fragmented,
        "guided": report.guided,
        "tried": replayed.tried().iter().map(|tried| json!({
            "strategy": tried.name,
            "recompute_ns": tried.recompute_ns,
        })).collect::<Vec<_>>(),
        "verified": told.has_plan.then_some(told.stuck.is_none()),
        "planning_seconds": told.seconds,
        "seed": told.seed,
    })
}

/// The same for people.
fn report(replayed: &Replayed, told: &Told) -> String {
    let Replayed { budget, base, report, .. } = replayed;
    let stats = &report.stats;
    let row = |name: &str, value: String, note: String| vec![name.to_owned(), value, note];
    let share = format!("{:.1} % of the step's own {}", budget.ratio(base.peak) * 100.0, base.peak);
    let rows = vec![
        row("calls", grouped(base.calls), String::new()),
        row("budget", budget.to_string(), share),
        row("most in use", stats.peak.to_string(), format!("highest address {}", stats.height)),
        row("step", report.time().to_string(), format!("{} without a budget", base.time)),
        row(
            "recomputed",
            Nanos(stats.recompute_ns).to_string(),
            format!("{} runs, {} evictions", stats.recomputes, stats.evictions),
        ),
    ];
    let guided = match report.guided {
        true => ", guided to the end",
        false if told.has_plan => ", left its plan where the step differs from it",
        false => "",
    };
    let overhead = report.overhead() * 100.0;
    format!("{}{}: {overhead:+.2} %{guided}\n", table(&[], &[2], rows), told.strategy)
}
