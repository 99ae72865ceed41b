//! A recorded step, run again in virtual time by the online engine.

use memfit_engine::evict::{self, Sieve};
use memfit_engine::replay::{
    Base, Event, Outcome, ReplayReport, Trace, recorded, replay, replay_guided, replay_planned,
};
use memfit_engine::{Dealloc, Fault, Found, Output, Settings, Tried};
use memfit_formats::FormatError;
use memfit_formats::simrd::{self, Log, LogEvent};
use memfit_ir::{Bytes, Effect, Graph, Role};
use memfit_plan::Family;
use memfit_plan::families::Unknown;
use memfit_sim::Costs;

use crate::profile::{self, Saved};
use crate::{Budget, Device, Failure, Floor, StepPlanner, input};

/// What a replay is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayGoal {
    /// Bytes the engine may use; a share is one of the step's own peak. `None`: what the step takes in that allocator
    /// without a budget, so that nothing need go.
    pub budget: Option<Budget>,
    /// Whether the first run is recorded and planned, and the second guided; else it's one online run.
    pub planned: bool,
    /// Name of the policy that chooses what goes.
    pub evictor: String,
    /// Which candidates it looks at.
    pub sieve: Sieve,
    /// Exponents for `megengine`: of evicted neighbours, bytes and staleness.
    pub exponents: [f64; 3],
    /// Name of the allocator under the engine; by default bytes are only counted for a log, which knows no
    /// addresses, and placed for a graph.
    pub allocator: Option<String>,
    /// Name of what happens at the last release.
    pub dealloc: Option<String>,
    /// Whether all is as in the simulator of the DTR paper: bytes are counted, nothing is aligned or forgotten.
    pub as_simulator: bool,
    /// The most time in recomputation, as a multiple of the step's own.
    pub limit: f64,
    /// Random seed.
    pub seed: u64,
}

/// A step that can be replayed.
#[derive(Clone, Debug)]
pub struct Recording {
    trace: Trace,
    /// As it was recorded, without snapshots.
    base: Base,
    /// Persistent bytes plus the largest working set, where it comes from a graph.
    floor: Option<Bytes>,
}

/// Reads a log of the DTR simulator, or any graph that [`input::graph`] reads, as a step run in its own order.
///
/// # Errors
///
/// [`Failure::Input`] names the place in the file.
pub fn recording(bytes: &[u8], options: &input::Options, device: &Device) -> Result<Recording, Failure> {
    if is_log(bytes) {
        let trace = trace(&simrd::read(bytes)?);
        return Ok(Recording { base: trace.base(), trace, floor: None });
    }
    let graph = input::graph(bytes, options)?;
    let costs = Costs::of(&graph, device);
    let trace = Trace::of_graph(&graph, |op| costs.time(op));
    let base = trace.base();
    let trace = trace.with_snapshots(|bytes| device.copy_time(bytes));
    Ok(Recording { trace, base, floor: Some(Floor::of(&graph, device.align).bytes) })
}

/// Whether this is a log of the DTR simulator.
pub(crate) fn is_log(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(256)];
    head.windows(13).any(|window| window == b"\"INSTRUCTION\"")
}

/// The graph of the step that a log tells of, as it runs without a budget.
///
/// # Errors
///
/// [`Failure::Input`] names the place in the file, or says that the log contradicts itself.
pub(crate) fn graph_of_log(bytes: &[u8]) -> Result<Graph, Failure> {
    let recorded = recorded(&trace(&simrd::read(bytes)?));
    Ok(recorded.map_err(|fault| FormatError::new("", format!("the log contradicts itself: {fault}")))?.graph)
}

/// What became of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Bytes the engine was allowed.
    pub budget: Bytes,
    /// The step without a budget.
    pub base: Base,
    /// What the engine did.
    pub report: ReplayReport,
    settings: Settings,
    /// The plan, if one was made.
    found: Option<Found>,
    /// The name of what planned.
    strategy: String,
}

impl Replayed {
    /// The profile and the plan that was made, as files.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if nothing was planned, or bytes were only counted.
    pub fn save(&self, device: &Device) -> Result<Saved, Failure> {
        let Some(found) = &self.found else {
            return Err(Failure::usage("nothing was planned that could be saved", "plan: `--mode planned`"));
        };
        let Settings { budget, align, allocator, options, .. } = &self.settings;
        if allocator == "ideal" {
            return Err(Failure::usage(
                format!("a plan has addresses, and the allocator `{allocator}` gives none"),
                "use one that does: `--allocator best-fit`",
            ));
        }
        Ok(profile::save(&found.plan, (*budget, *align), device, (&self.strategy, options.seed)))
    }

    /// What was tried for the plan, if one was made.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        self.found.as_ref().map_or(&[], |found| &found.tried)
    }
}

/// Replays `recording`; with `saved`, guided by that plan of an earlier run, else by one of `planner`'s where the goal
/// asks for one.
///
/// # Errors
///
/// [`Failure::Usage`] for unknown names; as [`profile::load`] for what was saved. A lack of room is an outcome.
pub fn replay_recording(
    recording: &Recording,
    goal: &ReplayGoal,
    device: &Device,
    saved: Option<&Saved>,
    planner: &mut StepPlanner,
) -> Result<Replayed, Failure> {
    let base = recording.base;
    let settings = match goal.budget {
        Some(budget) => settings(goal, resolve(recording, budget, device)?, recording.floor.is_some())?,
        None => unhindered(recording, goal)?,
    };
    let (budget, strategy) = (settings.budget, planner.name());
    let ran = match saved {
        Some(saved) => {
            let plan = profile::load(&saved.profile, &saved.plan, Some(budget), &[])?;
            let ran = replay_guided(&recording.trace, settings.clone(), goal.limit, Some(plan));
            ran.map(|report| (report, None))
        }
        None if goal.planned => replay_planned(&recording.trace, settings.clone(), goal.limit, planner),
        None => replay(&recording.trace, settings.clone(), goal.limit).map(|report| (report, None)),
    };
    let (report, found) = ran.map_err(|fault| match fault {
        Fault::Refused(refusal) => Failure::from(*refusal),
        fault => Failure::usage(fault.to_string(), "the recording contradicts itself"),
    })?;
    Ok(Replayed { budget, base, report: ReplayReport { base, ..report }, settings, found, strategy })
}

/// Bytes of a budget that the user has named.
fn resolve(recording: &Recording, budget: Budget, device: &Device) -> Result<Bytes, Failure> {
    if matches!(budget, Budget::AboveFloor(_)) && recording.floor.is_none() {
        return Err(Failure::usage(
            "a log has no floor to count from",
            "give a share of the peak: `--budget 50%`",
        ));
    }
    Ok(budget.resolve(device, recording.floor.unwrap_or_default(), recording.base.peak))
}

/// Settings with the least budget, up to a fortieth, at which nothing is evicted: from the height that the allocator
/// reaches when it is free to grow, upwards, since where it stops decides what it does.
fn unhindered(recording: &Recording, goal: &ReplayGoal) -> Result<Settings, Failure> {
    let addressed = recording.floor.is_some();
    let contradicts = |fault: Fault| Failure::usage(fault.to_string(), "the recording contradicts itself");
    let free = settings(goal, Bytes::MAX, addressed)?;
    let grown = replay(&recording.trace, free, goal.limit).map_err(contradicts)?;
    let mut budget = grown.stats.height.max(grown.stats.peak).max(recording.base.peak);
    for _ in 0..40 {
        let settings = settings(goal, budget, addressed)?;
        let report = replay(&recording.trace, settings.clone(), goal.limit).map_err(contradicts)?;
        if report.outcome == Outcome::Done && report.stats.evictions == 0 {
            return Ok(settings);
        }
        budget = budget + Bytes(budget.0 / 40);
    }
    settings(goal, budget, addressed)
}

/// `addressed`: the recording's sizes are those of real buffers; a log counts bytes only.
fn settings(goal: &ReplayGoal, budget: Bytes, addressed: bool) -> Result<Settings, Failure> {
    let known = |family: &str, name: &str| {
        Family::called(family).map_or(Ok(()), |family| family.strategy(name).map(|_| ()))
    };
    let mut settings = if goal.as_simulator {
        Settings::simulator(budget, &goal.evictor)
    } else {
        Settings { evictor: goal.evictor.clone(), ..Settings::new(budget) }
    };
    known("evict", &goal.evictor)?;
    settings.options = evict::Options { sieve: goal.sieve, seed: goal.seed, exponents: goal.exponents };
    if !addressed && !goal.as_simulator {
        "ideal".clone_into(&mut settings.allocator);
        settings.align = Bytes(1);
    }
    if let Some(name) = &goal.allocator {
        known("allocate", name)?;
        settings.allocator.clone_from(name);
    }
    if let Some(name) = &goal.dealloc {
        let modes = Dealloc::ALL.iter().map(|(_, name)| *name);
        settings.dealloc = Dealloc::by_name(name).ok_or_else(|| Unknown::new("mode", name, modes))?;
    }
    Ok(settings)
}

/// The trace of a log of the DTR simulator.
fn trace(log: &Log) -> Trace {
    let event = |event: &LogEvent| {
        Some(match event {
            LogEvent::Constant { size } => Event::Put { size: *size, role: Role::Constant },
            LogEvent::Call { kind, reads, results, time } => Event::Call {
                kind: *kind,
                reads: reads.clone(),
                outputs: results.iter().map(|r| r.view.map_or(Output::Fresh(r.size), Output::View)).collect(),
                time: *time,
                workspace: Bytes::ZERO,
                effect: Effect::Pure,
            },
            LogEvent::Share(tensor) => Event::Share(*tensor),
            LogEvent::Release(tensor) => Event::Release(*tensor),
            LogEvent::Backward => return None,
        })
    };
    let events = log.events.iter().filter_map(event).collect();
    Trace { events, kinds: log.kinds.clone(), held: log.held.clone(), ..Trace::default() }
}
