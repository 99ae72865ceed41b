//! `memfit replay`: a recorded step under a budget, online, in virtual time.

use memfit::engine::Allowance;
use memfit::engine::replay::Outcome;
use memfit::profile::Saved;
use memfit::{
    Bytes, Failure, Nanos, PLANNING_SECONDS, ReplayGoal, Replayed, StepPlanner, objects, recording,
    replay_recording,
};
use serde_json::{Value, json};

use crate::args::{Mode, ReplayArgs};
use crate::error::Error;
use crate::files;
use crate::output::{Output, grouped, table};

pub(super) fn run(args: &ReplayArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.log)?;
    let device = files::device(&args.device)?;
    let recording = recording(&bytes, &Default::default(), &device);
    let recording = recording.map_err(|failure| files::about(&args.log, failure))?;
    let goal = ReplayGoal {
        budget: args.budget,
        planned: args.mode == Mode::Planned,
        evictor: args.evictor.clone(),
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
        return Err(Error::Stuck(why));
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
