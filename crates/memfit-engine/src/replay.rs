//! Recorded steps, run again in virtual time.
//!
//! A [`Trace`] is what a program did: tensors brought in, calls, references taken and given up. [`replay`] does it again
//! under a budget and reports what that costs. Source of the rules: Kirisame et al., "Dynamic Tensor Rematerialization"
//! (ICLR 2021), and its simulator.

use memfit_ir::{Bytes, Effect, Graph, Nanos, Role};

use crate::call::{Call, Output, TensorId};
use crate::engine::{Engine, Settings, Stats};
use crate::evict::{self, Evictor};
use crate::fault::Fault;
use crate::host::{Host, VirtualHost};
use crate::log::Recorded;
use crate::offline::{self, Effort};

/// One thing that a program did. Tensors are numbered in the order in which events make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Brought in the next tensor.
    Put {
        /// Bytes.
        size: Bytes,
        /// What it is to the step.
        role: Role,
    },
    /// Ran an op, which made the next `outputs.len()` tensors.
    Call {
        /// Index in [`Trace::kinds`].
        kind: usize,
        /// Tensors read.
        reads: Vec<u32>,
        /// What it made.
        outputs: Vec<Output>,
        /// How long it took.
        time: Nanos,
        /// Scratch bytes.
        workspace: Bytes,
        /// What it did besides.
        effect: Effect,
    },
    /// Took one more reference.
    Share(u32),
    /// Gave up a reference.
    Release(u32),
}

/// A recorded step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Names of ops.
    pub kinds: Vec<String>,
    /// Tensors that must be in memory together at the end, in the order in which they are asked for.
    pub held: Vec<u32>,
    /// Where the first tensors lay when the step began, in the order in which they are put; those after them, or all
    /// if it is empty, go where there is room.
    pub at: Vec<Bytes>,
}

/// What a step takes with all the memory in the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Σ time of the calls.
    pub time: Nanos,
    /// Most bytes in use, if everything goes at its last release.
    pub peak: Bytes,
    /// Calls.
    pub calls: usize,
}

/// For each value of `graph` the number of its tensor in [`Trace::of_graph`]: sources first, then by op.
pub(crate) fn numbering(graph: &Graph) -> Vec<u32> {
    let sources = graph.value_ids().filter(|&value| graph.value(value).producer.is_none());
    let made = graph.op_ids().flat_map(|op| graph.op(op).writes.iter().copied());
    let mut number = vec![u32::MAX; graph.value_count()];
    for (at, value) in (0u32..).zip(sources.chain(made)) {
        number[value.index()] = at;
    }
    number
}

impl Trace {
    /// The step of `graph` in its own order, every value released after its last reader, results held.
    #[must_use]
    pub fn of_graph(graph: &Graph, time: impl Fn(memfit_ir::OpId) -> Nanos) -> Trace {
        let mut trace = Trace::default();
        let number = numbering(graph);
        let mut left: Vec<usize> = graph.value_ids().map(|value| graph.value(value).readers.len()).collect();
        for value in graph.value_ids().filter(|&value| graph.value(value).producer.is_none()) {
            trace.events.push(Event::Put { size: graph.value(value).size, role: graph.value(value).role });
        }
        let mut kinds = std::collections::BTreeMap::new();
        for id in graph.op_ids() {
            let op = graph.op(id);
            let next = trace.kinds.len();
            let kind = *kinds.entry(op.kind).or_insert(next);
            if kind == next {
                trace.kinds.push(op.kind.to_owned());
            }
            let outputs = op.writes.iter().map(|&value| {
                let must = op.reuses.iter().find(|pair| pair.must && pair.output == value);
                match must.and_then(|pair| op.reads.iter().position(|&read| read == pair.input)) {
                    Some(at) => Output::InPlace(at),
                    None => Output::Fresh(graph.value(value).size),
                }
            });
            trace.events.push(Event::Call {
                kind,
                reads: op.reads.iter().map(|value| number[value.index()]).collect(),
                outputs: outputs.collect(),
                time: time(id),
                workspace: op.workspace,
                effect: op.effect,
            });
            let mut done = Vec::new();
            for &value in op.reads {
                left[value.index()] -= 1;
                if left[value.index()] == 0 {
                    done.push(value);
                }
            }
            done.extend(op.writes.iter().copied().filter(|value| left[value.index()] == 0));
            for value in done.into_iter().filter(|&value| !graph.is_result(value)) {
                trace.events.push(Event::Release(number[value.index()]));
            }
        }
        trace.held = graph.results().iter().map(|value| number[value.index()]).collect();
        trace
    }

    /// Time and peak without a budget.
    #[must_use]
    pub fn base(&self) -> Base {
        let mut base = Base::default();
        // For each tensor its storage; for each storage its bytes and references.
        let (mut storage_of, mut storages): (Vec<usize>, Vec<(Bytes, usize)>) = (Vec::new(), Vec::new());
        let mut live = Bytes::ZERO;
        for event in &self.events {
            match event {
                Event::Put { size, .. } => {
                    storage_of.push(storages.len());
                    storages.push((*size, 1));
                    live += *size;
                    base.peak = base.peak.max(live);
                }
                Event::Call { reads, outputs, time, workspace, .. } => {
                    for output in outputs {
                        let of = |at: usize| storage_of.get(*reads.get(at)? as usize).copied();
                        let (size, grows) = match *output {
                            Output::Fresh(size) => (size, true),
                            Output::InPlace(at) => {
                                let Some(old) = of(at) else { continue };
                                (std::mem::take(&mut storages[old].0), false)
                            }
                            Output::View(at) => {
                                let Some(storage) = of(at) else { continue };
                                storage_of.push(storage);
                                storages[storage].1 += 1;
                                continue;
                            }
                        };
                        storage_of.push(storages.len());
                        storages.push((size, 1));
                        if grows {
                            live += size;
                        }
                    }
                    base.peak = base.peak.max(live + *workspace);
                    base.time = base.time + *time;
                    base.calls += 1;
                }
                Event::Share(tensor) => {
                    if let Some(storage) = storage_of.get(*tensor as usize) {
                        storages[*storage].1 += 1;
                    }
                }
                Event::Release(tensor) => {
                    let Some(&storage) = storage_of.get(*tensor as usize) else { continue };
                    let (size, held) = &mut storages[storage];
                    *held = held.saturating_sub(1);
                    if *held == 0 {
                        live = live.saturating_sub(*size);
                    }
                }
            }
        }
        base
    }
}

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
    plan: Option<Recorded>,
) -> Result<ReplayReport, Fault> {
    let base = trace.base();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let patience = Nanos((limit * base.time.0 as f64) as u64);
    let mut engine = Engine::new(VirtualHost::default(), Settings { patience, ..settings })?;
    if let Some(plan) = plan {
        engine.guide(plan);
    }
    let outcome = match drive(&mut engine, trace) {
        Ok(()) => Outcome::Done,
        Err(Fault::TooSlow(_)) => Outcome::Slow,
        Err(fault @ Fault::NoRoom(_)) => Outcome::NoRoom(fault),
        Err(fault) => return Err(fault),
    };
    Ok(ReplayReport { outcome, base, stats: engine.stats(), guided: engine.is_guided() })
}

/// Plans `trace` as a step that has been recorded, and runs it guided by that plan, which comes along if there is
/// one.
///
/// # Errors
///
/// Any [`Fault`] but a lack of room, which is an outcome.
pub fn replay_planned(
    trace: &Trace,
    settings: Settings,
    limit: f64,
    effort: &Effort,
) -> Result<(ReplayReport, Option<Recorded>), Fault> {
    let stuck = |outcome: Outcome| {
        let (base, stats) = (trace.base(), Stats::default());
        (ReplayReport { outcome, base, stats, guided: false }, None)
    };
    match offline::plan(trace, &settings, effort) {
        Ok(planned) => {
            let report = replay_guided(trace, settings, limit, Some(planned.recorded.clone()))?;
            Ok((report, Some(planned.recorded)))
        }
        Err(fault @ Fault::NoRoom(_)) => Ok(stuck(Outcome::NoRoom(fault))),
        Err(Fault::TooSlow(_) | Fault::OverAllowance) => Ok(stuck(Outcome::Slow)),
        Err(fault) => Err(fault),
    }
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
    let settings = Settings { log: true, ..settings };
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
    let mut tensors: Vec<TensorId> = Vec::new();
    let mut reads_now: Vec<TensorId> = Vec::new();
    let of = |tensors: &[TensorId], number: u32| {
        tensors.get(number as usize).copied().ok_or(Fault::Unknown(TensorId(number)))
    };
    for event in &trace.events {
        match event {
            Event::Put { size, role } => {
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
                    &Call { kind, reads: &reads_now, outputs, time, workspace, effect },
                    &mut tensors,
                )?;
            }
            Event::Share(tensor) => engine.share(of(&tensors, *tensor)?)?,
            Event::Release(tensor) => engine.del(of(&tensors, *tensor)?)?,
        }
    }
    for &tensor in &trace.held {
        engine.pin(of(&tensors, tensor)?)?;
    }
    Ok(())
}
