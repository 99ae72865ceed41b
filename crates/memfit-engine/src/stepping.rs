//! Step after step: records each, recognises the sequence of its calls, plans it once it has settled, and guides the
//! next step that is expected to be the same.
//!
//! A host calls [`Stepper::begin`] and [`Stepper::end`] at its step boundaries and otherwise uses the engine as ever.
//! What a step is, is its [`sequence`]: ops, operands and sizes, without times and scratch memory, and without the numbers
//! that tensors happen to have. A sequence that has been seen as often as [`Options::settled`] says, within the last
//! [`Options::remembered`] ones, is planned at the end of that step. The next step is expected to be what last
//! followed on the present one, so a program that goes through several paths in turn is guided in each. Whatever
//! differs falls back to the online policy at the first difference (see [`Engine::follow`]). Plans come from a [`Planner`],
//! or from elsewhere; there is none that the judge has not passed.

use memfit_ir::{Bytes, Digest, Graph};

use crate::engine::{Engine, Settings};
use crate::fault::Fault;
use crate::host::Host;
use crate::log::Recorded;
use crate::offline::Portfolio;
use crate::plan::{StepPlan, repetitions};
use crate::planner::{Found, Planner, Tried};

/// How a [`Stepper`] works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often a sequence must have been seen before it is planned, itself included. At least 1.
    pub settled: u32,
    /// Sequences that are remembered, each with its plan if it has one; the one not seen for longest goes first.
    pub remembered: usize,
    /// Whether a step that is expected to be as the one before, which was guided, is not recorded: a record of ten
    /// thousand ops takes megabytes, and half as long as all else. A step that then leaves its plan is of no known sequence,
    /// and the next [`Options::remembered`] ones are recorded again.
    pub trusting: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { settled: 2, remembered: 16, trusting: false }
    }
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Which sequence it was; `None` for a step that was not recorded and left its plan.
    pub sequence: Option<Digest>,
    /// Whether there was a plan to follow, and whether it was followed to the end.
    pub expected: bool,
    /// See `expected`.
    pub guided: bool,
    /// Whether the sequence has settled, something ran again, and no plan was looked for so far.
    pub wants_plan: bool,
    /// Whether the sequence was planned at the end of this step.
    pub planned: bool,
    /// Ns in repetitions.
    pub recompute_ns: u64,
    /// Ns of waiting for copies and codecs.
    pub stall_ns: u64,
    /// Ns in repetitions and for copies that the plan for this sequence foresees, if there is one.
    pub predicted_ns: Option<u64>,
}

struct Known {
    sequence: Digest,
    /// How often; a plan from elsewhere may be for a step that has not come yet.
    seen: u32,
    /// What followed on it last.
    next: Option<Digest>,
    /// Plans so far.
    plans: u32,
    /// Steps of this sequence that went otherwise than the last plan has it, one after another.
    missed: u32,
    plan: Option<StepPlan>,
    /// Ns that it takes for repetitions and for copies, and the number of repetitions.
    ns: u64,
    repetitions: u64,
}

/// See the head of this module.
pub struct Stepper {
    options: Options,
    planner: Box<dyn Planner>,
    /// What became of the last search for a plan.
    tried: Vec<Tried>,
    /// The last one seen or added first.
    known: Vec<Known>,
    /// The one seen last.
    last: Option<Digest>,
    /// Plans made since one was followed to its end.
    unused: u32,
    /// The sequence whose plan is being followed; before this step: ns and number of repetitions, copies that did not fit.
    following: Option<Digest>,
    recomputed: u64,
    repetitions: u64,
    lost: u64,
    /// Before this step: ns of waiting for copies.
    stalled: u64,
    /// Whether the last step was guided to its end.
    steady: bool,
    /// Steps that are to be recorded, come what may.
    watched: usize,
    /// Whether the step at hand is recorded.
    recording: bool,
}

/// The name of the plan to run a step once more as it ran.
pub const AS_IT_RAN: &str = "as it ran";

/// Misses after which a plan is thrown away. More may be alive beside the step by then, say losses kept for a plot, so
/// another plan is made, with room to spare.
const MOST_MISSED: u32 = 3;

/// Plans after which a sequence is left to the online policy.
const MOST_PLANS: u32 = 4;

/// Plans that may go unused before only what comes again is planned: a program that goes another way each time needs none.
const MOST_UNUSED: u32 = 2;

/// The share of the budget that each plan after the first leaves unused more than the one before: one in so many.
const SPARE: u64 = 128;

impl Default for Stepper {
    fn default() -> Self {
        Stepper::new(Options::default(), Box::new(Portfolio::default()))
    }
}

impl Stepper {
    /// One that knows no sequence, and has `planner` make its plans.
    #[must_use]
    pub fn new(options: Options, planner: Box<dyn Planner>) -> Stepper {
        Stepper {
            options,
            planner,
            tried: Vec::new(),
            known: Vec::new(),
            last: None,
            unused: 0,
            following: None,
            recomputed: 0,
            stalled: 0,
            repetitions: 0,
            lost: 0,
            steady: false,
            watched: 0,
            recording: false,
        }
    }

    /// Has `planner` make plans from now on.
    pub fn set_planner(&mut self, planner: Box<dyn Planner>) {
        self.planner = planner;
    }

    /// Adds a plan from elsewhere, an earlier run or another rank. The next step is expected to be this one.
    pub fn add(&mut self, plan: StepPlan) {
        let ns = plan.repeated_ns();
        self.know(sequence(plan.graph())).take(plan, ns);
    }

    /// The plans there are, that of the last sequence first.
    pub fn plans(&self) -> impl Iterator<Item = &StepPlan> {
        self.known.iter().filter_map(|known| known.plan.as_ref())
    }

    /// Ns in repetitions and for copies in the plan of the sequence that was seen or added last, if it has one.
    #[must_use]
    pub fn predicted_ns(&self) -> Option<u64> {
        self.known.first().and_then(Known::predicted_ns)
    }

    /// What was tried when a plan was last looked for: names, and ns in repetitions of what was found.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }

    /// Begins a step of `engine`, guided if a plan is expected to fit.
    ///
    /// # Errors
    ///
    /// As [`Engine::begin_step`].
    pub fn begin<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<(), Fault> {
        engine.diverge();
        let expected = self.expected();
        let known = self.known.iter().find(|known| Some(known.sequence) == expected);
        let plan = known.and_then(|known| known.plan.clone());
        let again = self.steady && self.watched == 0 && expected == self.last && plan.is_some();
        self.recording = !(self.options.trusting && again);
        engine.looks = !again;
        if self.recording {
            engine.begin_step()?;
        } else {
            engine.end_log();
            engine.cut()?;
        }
        let stats = engine.stats();
        (self.recomputed, self.repetitions, self.lost) = (stats.recompute_ns, stats.recomputes, stats.lost);
        self.stalled = stats.stall_ns;
        self.following = plan.is_some().then_some(expected).flatten();
        if let Some(plan) = plan {
            engine.follow(plan);
        }
        Ok(())
    }

    /// What followed on the last sequence before; or else one that a plan was added for and that is yet to come, as
    /// the steady state after a first step; or else the same again.
    fn expected(&self) -> Option<Digest> {
        let last = self.known.iter().find(|known| Some(known.sequence) == self.last);
        let to_come = || self.known.iter().find(|known| known.seen == 0).map(|known| known.sequence);
        last.and_then(|last| last.next).or_else(to_come).or(self.last)
    }

    /// Ends the step that [`Stepper::begin`] began. A sequence that has settled is planned here.
    ///
    /// # Errors
    ///
    /// As [`Engine::end_step`].
    pub fn end<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<Stepped, Fault> {
        let (mut stepped, recorded) = self.close(engine)?;
        if stepped.wants_plan
            && let Some(recorded) = recorded
        {
            stepped.predicted_ns = Some(self.settle(&recorded, &engine.settings)?);
            stepped.planned = true;
        }
        Ok(stepped)
    }

    /// As [`Stepper::end`], and leaves it to the caller to [settle](Stepper::settle) or [add](Stepper::add) a plan:
    /// ranks that train together follow one. There is no record of a step that was not recorded.
    ///
    /// # Errors
    ///
    /// As [`Engine::end_step`].
    pub fn close<H: Host>(
        &mut self,
        engine: &mut Engine<'_, H>,
    ) -> Result<(Stepped, Option<Recorded>), Fault> {
        let ended =
            if self.recording { engine.end_step().map(Some) } else { engine.restore_held().map(|_| None) };
        let guided = engine.has_followed();
        engine.carry(ended.as_ref().ok().and_then(Option::as_ref));
        engine.diverge();
        let recorded = ended?;
        let recompute_ns = engine.stats().recompute_ns - self.recomputed;
        self.watched = self.watched.saturating_sub(1);
        let sequence = match &recorded {
            Some(recorded) => Some(sequence(&recorded.graph)),
            None if guided => self.following,
            None => None,
        };
        // What the plan would encode has become too dense for the room it has there: that plan is out of date.
        let lost = engine.stats().lost > self.lost;
        // More ran again than it says, for want of room.
        let repeated = engine.stats().recomputes - self.repetitions;
        let planned = self.known.iter().find(|known| Some(known.sequence) == self.following);
        let strayed = planned.is_some_and(|known| repeated > known.repetitions);
        let as_planned = guided && !lost && !strayed;
        self.steady = as_planned && sequence == self.following;
        if guided {
            self.unused = 0;
        }
        let mut stepped = Stepped {
            sequence,
            expected: self.following.is_some(),
            guided,
            wants_plan: false,
            planned: false,
            recompute_ns,
            stall_ns: engine.stats().stall_ns - self.stalled,
            predicted_ns: None,
        };
        match sequence {
            Some(sequence) => {
                self.saw(sequence, as_planned, &mut stepped);
                // Where nothing ran again, or waited, there is nothing to gain.
                stepped.wants_plan &= recompute_ns > 0 || stepped.stall_ns > 0;
            }
            None => self.watched = self.options.remembered,
        }
        Ok((stepped, recorded))
    }

    /// The step that [`Stepper::begin`] began ends by an error: no plan is followed any more, and what is held comes back as far as
    /// there is room. The next step is recorded.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] while bringing back, but for there being no room.
    pub fn abandon<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<(), Fault> {
        engine.diverge();
        let ended = engine.restore_held();
        if ended.is_ok() {
            engine.discard_all();
        }
        engine.end_log();
        self.steady = false;
        match ended {
            Ok(_) | Err(Fault::NoRoom(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// `sequence` was what has just been stepped through; `as_planned` if all was as its plan has it.
    fn saw(&mut self, sequence: Digest, as_planned: bool, stepped: &mut Stepped) {
        let last = self.last.replace(sequence);
        if let Some(last) = self.known.iter_mut().find(|known| Some(known.sequence) == last) {
            last.next = Some(sequence);
        }
        let missed = self.following == Some(sequence) && !as_planned;
        let settled = self.options.settled.max(if self.unused < MOST_UNUSED { 1 } else { 2 });
        let known = self.know(sequence);
        known.seen = known.seen.saturating_add(1);
        if missed {
            known.missed += 1;
            if known.missed >= MOST_MISSED {
                known.plan = None;
            }
        } else if as_planned {
            known.missed = 0;
        }
        let unplanned = known.plan.is_none() && known.plans < MOST_PLANS;
        stepped.wants_plan = known.seen >= settled && unplanned;
        stepped.predicted_ns = known.predicted_ns();
    }

    /// Plans `recorded`, which ran within `settings`. Where no cheaper way is found it's to be run again as it ran: what
    /// has fitted once fits again, which can't be said of a policy that sees no more than the present. Returns the ns of
    /// repetitions and copies in the plan that is kept.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan`], except for there being no plan.
    pub fn settle(&mut self, recorded: &Recorded, settings: &Settings) -> Result<u64, Fault> {
        let sequence = sequence(&recorded.graph);
        let plans = self.know(sequence).plans;
        let spare = Bytes(settings.budget.0 / SPARE * u64::from(plans));
        let settings = Settings { budget: settings.budget.saturating_sub(spare), ..settings.clone() };
        self.plan(recorded, &settings)?;
        let as_it_ran = recorded.cost_ns();
        let known = self.know(sequence);
        let dearer = known.predicted_ns().is_none_or(|ns| ns > as_it_ran && plans == 0);
        if dearer && !recorded.moved_home {
            let plan = self.planner.adopt(recorded, &settings)?;
            self.tried.push(Tried { name: AS_IT_RAN.to_owned(), recompute_ns: Some(as_it_ran) });
            self.know(sequence).take(plan, as_it_ran);
        }
        Ok(self.know(sequence).predicted_ns().unwrap_or(as_it_ran))
    }

    /// Looks for a plan for `recorded` within `settings`, and keeps it. False if none was found.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan`], except for there being no plan.
    pub fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<bool, Fault> {
        let found = self.planner.plan(recorded, settings);
        self.keep(recorded, found)
    }

    /// As [`Stepper::plan`], by another planner.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan`], except for there being no plan.
    pub fn plan_by(
        &mut self,
        planner: &mut dyn Planner,
        recorded: &Recorded,
        settings: &Settings,
    ) -> Result<bool, Fault> {
        let found = planner.plan(recorded, settings);
        self.keep(recorded, found)
    }

    fn keep(&mut self, recorded: &Recorded, found: Result<Found, Fault>) -> Result<bool, Fault> {
        self.unused += 1;
        self.tried.clear();
        self.know(sequence(&recorded.graph)).plans += 1;
        match found {
            Ok(Found { plan, ns, tried }) => {
                self.tried = tried;
                self.know(sequence(&recorded.graph)).take(plan, ns);
                Ok(true)
            }
            Err(Fault::NoPlan(name)) => {
                self.tried.push(Tried { name, recompute_ns: None });
                Ok(false)
            }
            Err(Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::OverAllowance) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// What is known of `sequence`, which is the last one to be forgotten from now on.
    fn know(&mut self, sequence: Digest) -> &mut Known {
        let known = match self.known.iter().position(|known| known.sequence == sequence) {
            Some(at) => self.known.remove(at),
            None => Known::new(sequence),
        };
        self.known.insert(0, known);
        self.known.truncate(self.options.remembered.max(1));
        &mut self.known[0]
    }
}

impl Known {
    fn new(sequence: Digest) -> Known {
        Known { sequence, seen: 0, next: None, plans: 0, missed: 0, plan: None, ns: 0, repetitions: 0 }
    }

    fn take(&mut self, plan: StepPlan, ns: u64) {
        self.repetitions = repetitions(plan.graph(), plan.program()).count() as u64;
        (self.missed, self.plan, self.ns) = (0, Some(plan), ns);
    }

    fn predicted_ns(&self) -> Option<u64> {
        self.plan.as_ref().map(|_| self.ns)
    }
}

/// What the ops of `graph` do to which operands, whatever their times, names and numbers: equal for two steps
/// exactly if a plan for the one can be followed in the other, given room. Sources count in the order in which ops read
/// them; what no op touches, and scratch memory, do not count.
#[must_use]
pub fn sequence(graph: &Graph) -> Digest {
    let mut hasher = Digest::hasher("memfit step sequence 1");
    let mut number = vec![u64::MAX; graph.value_count()];
    let mut next = 0;
    for id in graph.op_ids() {
        let op = graph.op(id);
        hasher.text(op.kind).text(op.effect.name());
        for list in [op.reads, op.writes] {
            hasher.number(list.len() as u64);
            for &value in list {
                let slot = &mut number[value.index()];
                if *slot == u64::MAX {
                    *slot = next;
                    next += 1;
                }
                hasher.number(*slot).number(graph.value(value).size.0);
            }
        }
        let places = op.reuses.iter().filter(|pair| pair.must);
        hasher.list(places.flat_map(|pair| [pair.input, pair.output]).map(|value| number[value.index()]));
    }
    let results = graph.results().iter().map(|value| number[value.index()]);
    let mut results: Vec<u64> = results.filter(|&number| number != u64::MAX).collect();
    results.sort_unstable();
    hasher.list(results.into_iter());
    hasher.finish()
}
