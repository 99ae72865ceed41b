//! Recorded steps, run again in virtual time.
//!
//! A [`Trace`] is what a program did: tensors brought in, calls, references taken and given up. [`replay`] does it again
//! under a budget and reports what that costs. Source of the rules: Kirisame et al., "Dynamic Tensor Rematerialization"
//! (ICLR 2021), and its simulator.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Nanos, Tier};

use crate::call::{Call, TensorId};
use crate::engine::{Engine, Settings, Stats, Storing};
use crate::evict::{self, Evictor};
use crate::fault::Fault;
use crate::host::{Host, VirtualHost};
use crate::log::Recorded;
use crate::plan::StepPlan;
use crate::planner::{Found, Planner};
pub use crate::trace::{Base, Event, Trace};

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it ran.
    Done,
    /// There was no room.
    NoRoom(Fault),
    /// Recomputation took longer than the limit allows.
    Slow,
}

/// What a replay cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// How it ended.
    pub outcome: Outcome,
    /// Without a budget.
    pub base: Base,
    /// What the engine did.
    pub stats: Stats,
    /// Whether a plan was followed to the end.
    pub guided: bool,
}

impl ReplayReport {
    /// Total time over the time without a budget, minus 1, as the simulator counts: its clock starts at 1.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        (1.0 + self.time().0 as f64) / self.base.time.0.max(1) as f64 - 1.0
    }

    /// The time of all runs, copies for snapshots included; of a run that was cut short: all first ones, and what was
    /// recomputed by then.
    #[must_use]
    pub fn time(&self) -> Nanos {
        Nanos(self.base.time.0.max(self.stats.first_ns).saturating_add(self.stats.recompute_ns))
    }
}

/// Runs `trace` under `settings`. `limit` is the most recomputation as a multiple of the step's own time.
///
/// # Errors
///
/// Any [`Fault`] but a lack of room, which is an outcome.
pub fn replay(trace: &Trace, settings: Settings, limit: f64) -> Result<ReplayReport, Fault> {
    replay_guided(trace, settings, limit, None)
}

/// As [`replay`], following `plan` as far as the trace agrees with it.
///
/// # Errors
///
/// Any [`Fault`] but a lack of room, which is an outcome.
pub fn replay_guided(
    trace: &Trace,
    settings: Settings,
    limit: f64,
    plan: Option<StepPlan>,
) -> Result<ReplayReport, Fault> {
    let base = trace.base();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let patience = Nanos((limit * base.time.0 as f64) as u64);
    let mut engine = Engine::new(VirtualHost::of(&settings), Settings { patience, ..settings })?;
    if let Some(plan) = plan {
        engine.follow(plan);
    }
    let outcome = match drive(&mut engine, trace) {
        Ok(()) => Outcome::Done,
        Err(Fault::TooSlow(_)) => Outcome::Slow,
        Err(fault @ Fault::NoRoom(_)) => Outcome::NoRoom(fault),
        Err(fault) => return Err(fault),
    };
    Ok(ReplayReport { outcome, base, stats: engine.stats(), guided: engine.is_guided() })
}

/// Has `planner` plan `trace` as a step that has been recorded, and runs it guided by that plan, which comes along if
/// there is one.
///
/// # Errors
///
/// Any [`Fault`] but a lack of room, which is an outcome.
pub fn replay_planned(
    trace: &Trace,
    settings: Settings,
    limit: f64,
    planner: &mut dyn Planner,
) -> Result<(ReplayReport, Option<Found>), Fault> {
    let stuck = |outcome: Outcome| {
        let (base, stats) = (trace.base(), Stats::default());
        (ReplayReport { outcome, base, stats, guided: false }, None)
    };
    match planner.plan(&recorded(trace)?, &settings) {
        Ok(found) => {
            let report = replay_guided(trace, settings, limit, Some(found.plan.clone()))?;
            Ok((report, Some(found)))
        }
        Err(fault @ (Fault::NoRoom(_) | Fault::NoPlan(_))) => Ok(stuck(Outcome::NoRoom(fault))),
        Err(Fault::TooSlow(_) | Fault::OverAllowance) => Ok(stuck(Outcome::Slow)),
        Err(fault) => Err(fault),
    }
}

/// Runs `trace` under `settings` by `plan`; what was done, if it could be followed to the end. Where a source was away in between
/// and has come back somewhere else, which is no step that could be followed by itself, that is what the plan has.
///
/// # Errors
///
/// Any [`Fault`] but a lack of room, of time, or of what was freed too soon, which is no end.
pub fn followed(
    trace: &Trace,
    settings: Settings,
    plan: StepPlan,
) -> Result<Option<(Recorded, Stats)>, Fault> {
    let settings = Settings { log: true, ..settings };
    let mut engine = Engine::new(VirtualHost::of(&settings), settings)?;
    let homes = homes(&plan);
    engine.follow(plan.clone());
    let ended = drive_from(&mut engine, trace, &homes).and_then(|()| engine.end_step());
    let guided = engine.has_followed();
    match ended {
        Ok(recorded) if recorded.moved_home => {
            let layout = recorded.layout.is_some().then(|| plan.layout().clone());
            let (graph, program) = (plan.graph().clone(), plan.program().clone());
            let planned = Recorded { graph, program, layout, moved_home: false, ..recorded };
            Ok(guided.then(|| (planned, engine.stats())))
        }
        Ok(recorded) => Ok(guided.then(|| (recorded, engine.stats()))),
        Err(Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::OverAllowance | Fault::Lost(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// `trace` as it runs with all the memory in the world.
///
/// # Errors
///
/// [`Fault::BadCall`] if it contradicts itself.
pub fn recorded(trace: &Trace) -> Result<Recorded, Fault> {
    let all =
        Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(Bytes(u64::MAX / 4)) };
    let (recorded, _) = record(trace, Settings { forget: false, ..all })?;
    Ok(Recorded { trace: Trace { at: trace.at.clone(), ..recorded.trace }, ..recorded })
}

/// Runs `trace` under `settings` and returns the log, with everything that is held at the end in memory together.
///
/// # Errors
///
/// Any [`Fault`].
pub fn record(trace: &Trace, settings: Settings) -> Result<(Recorded, Stats), Fault> {
    let entry = evict::by_name(&settings.evictor);
    let entry = entry.ok_or_else(|| Fault::BadCall(format!("there is no evictor `{}`", settings.evictor)))?;
    let evictor = (entry.make)(&settings.options);
    let (recorded, stats) = attempt(trace, settings, evictor);
    recorded.map(|recorded| (recorded, stats))
}

/// As [`record`], with a policy of its caller's; and what was done, even where it failed.
pub(crate) fn attempt(
    trace: &Trace,
    settings: Settings,
    evictor: Box<dyn Evictor + '_>,
) -> (Result<Recorded, Fault>, Stats) {
    // The host has no memory for copies.
    let settings = Settings { log: true, storing: Storing::Never, parking: false, ..settings };
    match Engine::with_evictor(VirtualHost::default(), settings, evictor) {
        Ok(mut engine) => {
            let driven = drive(&mut engine, trace);
            let outcome = driven.and_then(|()| engine.end_step());
            (outcome, engine.stats())
        }
        Err(fault) => (Err(fault), Stats::default()),
    }
}

/// Hands `trace` to `engine`; what it holds at the end is pinned.
///
/// # Errors
///
/// Any [`Fault`].
pub fn drive<H: Host>(engine: &mut Engine<'_, H>, trace: &Trace) -> Result<(), Fault> {
    drive_from(engine, trace, &BTreeMap::new())
}

/// By number of a tensor: where `plan` has it when the step begins, if not in device memory.
fn homes(plan: &StepPlan) -> BTreeMap<u32, Tier> {
    let program = plan.program();
    let copies = program.parked.iter().map(|copy| program.copies[copy.index()]);
    let home = |copy: memfit_ir::HostCopy| Some((copy.content.value()?.0, copy.tier));
    copies.filter_map(home).collect()
}

/// As [`drive`]; what is in `homes` begins in another tier.
fn drive_from<H: Host>(
    engine: &mut Engine<'_, H>,
    trace: &Trace,
    homes: &BTreeMap<u32, Tier>,
) -> Result<(), Fault> {
    let mut tensors: Vec<TensorId> = Vec::new();
    let mut reads_now: Vec<TensorId> = Vec::new();
    let of = |tensors: &[TensorId], number: u32| {
        tensors.get(number as usize).copied().ok_or(Fault::Unknown(TensorId(number)))
    };
    for event in &trace.events {
        match event {
            Event::Put { size, role } => {
                let home = u32::try_from(tensors.len()).ok().and_then(|number| homes.get(&number));
                if let Some(&tier) = home {
                    tensors.push(engine.put_parked(*size, *role, tier)?);
                    continue;
                }
                tensors.push(engine.put_at(*size, *role, trace.at.get(tensors.len()).copied())?);
            }
            Event::Call { kind, reads, outputs, time, workspace, effect } => {
                reads_now.clear();
                for &read in reads {
                    reads_now.push(of(&tensors, read)?);
                }
                let kind = trace.kinds.get(*kind).map_or("", String::as_str);
                let (time, workspace, effect) = (*time, *workspace, *effect);
                engine.apply(
                    &Call { kind, reads: &reads_now, outputs, time, workspace, effect, ..Call::default() },
                    &mut tensors,
                )?;
            }
            Event::Share(tensor) => engine.share(of(&tensors, *tensor)?)?,
            Event::Release(tensor) => engine.del(of(&tensors, *tensor)?)?,
        }
    }
    for &tensor in &trace.held {
        let held = of(&tensors, tensor)?;
        // What is at home elsewhere ends the step there.
        if !engine.is_parked(held) {
            engine.pin(held)?;
        }
    }
    Ok(())
}
