//! Step after step: records each, recognises the sequence of its calls, plans it once it has settled, and guides the
//! next step that is expected to be the same.
//!
//! A host calls [`Stepper::begin`] and [`Stepper::end`] at its step boundaries and otherwise uses the engine as ever.
//! What a step is, is its [`sequence`]: ops, operands and sizes, without times and without the numbers that tensors
//! happen to have. A sequence that has been seen as often as [`Options::settled`] says, within the last
//! [`Options::remembered`] ones, is planned at the end of that step. The next step is expected to be what last
//! followed on the present one, so a program that goes through several paths in turn is guided in each. Whatever
//! differs falls back to the online policy at the first difference (see [`Engine::guide`]).

use memfit_ir::{Bytes, Digest, Graph};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;
use crate::log::Recorded;
use crate::offline::{self, Effort};

/// How a [`Stepper`] works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often a sequence must have been seen before it is planned, itself included. At least 1.
    pub settled: u32,
    /// Sequences that are remembered, each with its plan if it has one; the one not seen for longest goes first.
    pub remembered: usize,
    /// For the planner.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Options { settled: 2, remembered: 16, effort: Effort::default() }
    }
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Which sequence it was.
    pub sequence: Digest,
    /// Whether a plan was followed to the end.
    pub guided: bool,
    /// Whether the sequence was planned at the end of this step.
    pub planned: bool,
    /// Ns in repetitions.
    pub recompute_ns: u64,
    /// Ns in repetitions that the plan for this sequence foresees, if there is one.
    pub predicted_ns: Option<u64>,
}

#[derive(Debug)]
struct Known {
    sequence: Digest,
    seen: u32,
    /// What followed on it last.
    next: Option<Digest>,
    /// Whether a plan was looked for.
    tried: bool,
    /// Steps of this sequence that its plan could not be followed in.
    missed: u32,
    plan: Option<Recorded>,
    predicted_ns: u64,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Stepper {
    options: Options,
    /// The last one seen first.
    known: Vec<Known>,
    /// The sequence whose plan is being followed, and what was recomputed before this step.
    following: Option<Digest>,
    recomputed: u64,
}

/// Misses after which a plan is thrown away, and the sequence left to the online policy.
const MOST_MISSED: u32 = 3;

impl Stepper {
    /// One that knows no sequence.
    #[must_use]
    pub fn new(options: Options) -> Stepper {
        Stepper { options, ..Stepper::default() }
    }

    /// Adds a plan from an earlier run. The first step is expected to be this one.
    pub fn add(&mut self, plan: Recorded, predicted_ns: u64) {
        let sequence = sequence(&plan.graph);
        self.known.retain(|known| known.sequence != sequence);
        let (seen, next, tried, missed) = (self.options.settled, Some(sequence), true, 0);
        self.known.insert(0, Known { sequence, seen, next, tried, missed, plan: Some(plan), predicted_ns });
        self.known.truncate(self.options.remembered.max(1));
    }

    /// The plans there are, that of the last sequence first.
    pub fn plans(&self) -> impl Iterator<Item = &Recorded> {
        self.known.iter().filter_map(|known| known.plan.as_ref())
    }

    /// Begins a step of `engine`, guided if a plan is expected to fit.
    ///
    /// # Errors
    ///
    /// As [`Engine::begin_step`].
    pub fn begin<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<(), Fault> {
        engine.diverge();
        engine.begin_step()?;
        self.recomputed = engine.stats().recompute_ns;
        let expected = self.known.first().map(|last| last.next.unwrap_or(last.sequence));
        let expected = self.known.iter().find(|known| Some(known.sequence) == expected);
        self.following = None;
        if let Some(Known { plan: Some(plan), sequence, .. }) = expected {
            self.following = Some(*sequence);
            engine.guide(plan.clone());
        }
        Ok(())
    }

    /// Ends the step that [`Stepper::begin`] began. A sequence that has settled is planned here; where no plan is
    /// found the online policy goes on.
    ///
    /// # Errors
    ///
    /// As [`Engine::end_step`].
    pub fn end<H: Host>(&mut self, engine: &mut Engine<'_, H>) -> Result<Stepped, Fault> {
        let ended = engine.end_step();
        let guided = engine.is_guided();
        engine.diverge();
        let recorded = ended?;
        let recompute_ns = engine.stats().recompute_ns - self.recomputed;
        let sequence = sequence(&recorded.graph);
        if let Some(last) = self.known.first_mut() {
            last.next = Some(sequence);
        }
        let at = self.known.iter().position(|known| known.sequence == sequence);
        let mut known = match at {
            Some(at) => self.known.remove(at),
            None => {
                Known { sequence, seen: 0, next: None, tried: false, missed: 0, plan: None, predicted_ns: 0 }
            }
        };
        known.seen = known.seen.saturating_add(1);
        if self.following == Some(sequence) && !guided {
            known.missed += 1;
            if known.missed >= MOST_MISSED {
                known.plan = None;
            }
        }
        // Where nothing ran again there is nothing to gain.
        let planned = known.seen >= self.options.settled && !known.tried && recompute_ns > 0;
        if planned {
            known.tried = true;
            match offline::plan(&recorded.trace, &engine.settings, &self.options.effort) {
                Ok(plan) => {
                    known.predicted_ns = plan.stats.recompute_ns;
                    known.plan = Some(plan.recorded);
                }
                Err(Fault::NoRoom(_) | Fault::TooSlow(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let planned = planned && known.plan.is_some();
        let predicted_ns = known.plan.is_some().then_some(known.predicted_ns);
        self.known.insert(0, known);
        self.known.truncate(self.options.remembered.max(1));
        Ok(Stepped { sequence, guided, planned, recompute_ns, predicted_ns })
    }
}

/// What the ops of `graph` do to which operands, whatever their times, names and numbers: equal for two steps
/// exactly if a plan for the one can be followed in the other. Sources count in the order in which ops read them.
#[must_use]
pub fn sequence(graph: &Graph) -> Digest {
    let mut hasher = Digest::hasher("memfit step sequence 1");
    let mut number = vec![u64::MAX; graph.value_count()];
    let mut next = 0;
    for id in graph.op_ids() {
        let op = graph.op(id);
        hasher.text(op.kind).text(op.effect.name()).number(op.workspace.0);
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
    // What no op touches is there all the same.
    let mut idle: Vec<Bytes> = graph
        .value_ids()
        .filter(|value| number[value.index()] == u64::MAX)
        .map(|value| graph.value(value).size)
        .collect();
    idle.sort_unstable();
    hasher.list(idle.into_iter().map(|size| size.0));
    let mut results: Vec<u64> = graph.results().iter().map(|value| number[value.index()]).collect();
    results.sort_unstable();
    hasher.list(results.into_iter());
    hasher.finish()
}
