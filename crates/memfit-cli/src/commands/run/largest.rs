//! The largest batch that can be trained in a budget, with memfit and without.
//!
//! Two steps are recorded, of two batches. What grows with the batch grows in proportion, so they tell the sizes and times
//! of any other: the search is done in virtual time, and what it finds is trained.

use memfit::engine::replay::{Event, Trace, replay};
use memfit::engine::{Fault, Output as Made};
use memfit::{Bytes, Nanos, largest_that, objects};
use memfit_burn::Options;
use memfit_burn::zoo::{Seen, Training, Where};
use serde_json::json;

use super::{Profile, RunArgs, fault, measure, part, patience, profile, virtual_settings};
use crate::error::Error;
use crate::output::{Output, table};

/// Steps of the trial: the first, and one with the optimizer's state.
const STEPS: usize = 2;
const MOST: u64 = 4096;
/// The search ends when the largest batch is known to one part in so many.
const CLOSE: u64 = 64;
const BATCH: usize = 8;
/// The most recomputation, in steps: nobody wants to wait for more.
const LIMIT: f64 = 2.0;

/// Steps of two batches, and so of all.
struct Line {
    one: Profile,
    two: Profile,
}

/// What `BATCH` and twice that give, at `batch`.
fn between(one: u64, two: u64, batch: usize) -> u64 {
    let rise = (i128::from(two) - i128::from(one)) * (batch as i128 - BATCH as i128) / BATCH as i128;
    u64::try_from((i128::from(one) + rise).max(0)).unwrap_or(u64::MAX)
}

impl Line {
    /// What the tensors of `batch` take without a limit.
    fn peak(&self, batch: usize) -> Bytes {
        Bytes(between(self.one.peak.0, self.two.peak.0, batch))
    }

    /// The step of `batch`; `None` if the two steps do different things.
    fn step(&self, batch: usize) -> Option<Trace> {
        let (one, two) = (&self.one.trace, &self.two.trace);
        let mut step = one.clone();
        if one.kinds != two.kinds || one.events.len() != two.events.len() {
            return None;
        }
        let bytes = |one: Bytes, two: Bytes| Bytes(between(one.0, two.0, batch));
        for (event, (one, two)) in step.events.iter_mut().zip(one.events.iter().zip(&two.events)) {
            match (event, one, two) {
                (Event::Put { size, .. }, Event::Put { size: one, .. }, Event::Put { size: two, .. }) => {
                    *size = bytes(*one, *two);
                }
                (
                    Event::Call { time, outputs, workspace, .. },
                    Event::Call { kind, reads, time: t1, outputs: o1, workspace: w1, .. },
                    Event::Call { kind: kind2, reads: reads2, time: t2, outputs: o2, workspace: w2, .. },
                ) if kind == kind2 && reads == reads2 && o1.len() == o2.len() => {
                    *time = Nanos(between(t1.0, t2.0, batch).max(1));
                    *workspace = bytes(*w1, *w2);
                    for (output, (one, two)) in outputs.iter_mut().zip(o1.iter().zip(o2)) {
                        match (output, one, two) {
                            (Made::Fresh(size), Made::Fresh(one), Made::Fresh(two)) => {
                                *size = bytes(*one, *two);
                            }
                            (Made::Takes(size, _), Made::Takes(one, of), Made::Takes(two, over))
                                if of == over =>
                            {
                                *size = bytes(*one, *two);
                            }
                            (_, one, two) if one == two => {}
                            _ => return None,
                        }
                    }
                }
                (_, one, two) if one == two => {}
                _ => return None,
            }
        }
        Some(step)
    }
}

pub(super) fn run(
    args: &RunArgs,
    training: &Training,
    device: Where,
    common: Options,
    output: &Output,
) -> Result<(), Error> {
    let quiet = |what: String| move |_: &Seen| output.progress(&what);
    let with = |batch: usize| Training { batch, steps: STEPS, gradients: false, ..*training };
    let recorded =
        |batch: usize| profile(&with(batch), device, common, &quiet(format!("recording a batch of {batch}")));
    let line = Line { one: recorded(BATCH)?, two: recorded(2 * BATCH)? };
    let budget = match args.budget {
        None | Some(memfit::Budget::Device | memfit::Budget::AboveFloor(_)) => line.one.peak,
        Some(memfit::Budget::Bytes(bytes)) => bytes,
        Some(memfit::Budget::OfPeak(share)) => part(line.one.peak, share),
    };
    let fits = |batch: usize| {
        let Some(step) = line.step(batch) else {
            let message = "the steps of two batches do different things".to_owned();
            return Err(Error::Training(message));
        };
        let report = replay(&step, virtual_settings(budget), LIMIT).map_err(fault)?;
        Ok(report.outcome == memfit::engine::replay::Outcome::Done)
    };
    let without = search(BATCH, |batch| Ok(line.peak(batch) <= budget))?;
    let mut within = search(without.max(1), fits)?;
    // What was found is trained; where real times make the online policy choose otherwise, a little less.
    let at_eight = measure::plain(&with(BATCH), device, false, &quiet("without memfit".to_owned()));
    let at_eight = at_eight.map_err(fault)?;
    let mut trained = None;
    while within > 0 {
        let training = with(within);
        // Time grows with the batch.
        let patience = patience(&at_eight, training.steps * within.div_ceil(BATCH));
        let options = Options { budget: memfit_burn::Budget::of(budget.0), patience, ..common };
        trained = train(&training, device, options, &quiet(format!("training a batch of {within}")))?;
        if trained.is_some() {
            break;
        }
        within -= within.div_ceil(16);
    }
    let ratio = within as f64 / without.max(1) as f64;
    let peak = trained.as_ref().map(|(_, peak)| *peak);
    let heap = trained.as_ref().map(|(measured, _)| measured.peak);
    let time = trained.as_ref().map(|(measured, _)| measured.time());
    if output.json {
        return output.object(&json!({
            "schema": objects::SCHEMA,
            "command": "run",
            "status": if within > 0 { "fits" } else { "infeasible" },
            "model": training.model.name(),
            "budget_bytes": budget.0,
            "base_max_batch": without,
            "max_batch": within,
            "ratio": ratio,
            "peak_bytes": peak.map(|peak| peak.0),
            "measured_peak_bytes": heap.map(|heap| heap.0),
            "time_ns": time.map(|time| time.0),
            "base_time_ns": at_eight.time().0,
            "seed": training.seed,
        }));
    }
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let head = ["", "batch", "tensors", "heap peak", "step"];
    let rows = vec![
        vec![
            "without memfit".to_owned(),
            without.to_string(),
            line.peak(without).to_string(),
            text((without == BATCH).then(|| at_eight.peak.to_string())),
            text((without == BATCH).then(|| at_eight.time().to_string())),
        ],
        vec![
            "with memfit".to_owned(),
            within.to_string(),
            text(peak.map(|peak| peak.to_string())),
            text(heap.map(|heap| heap.to_string())),
            text(time.map(|time| time.to_string())),
        ],
    ];
    let first = format!("{} in {budget}: the largest batch\n\n", training.model.name());
    output.print(&format!("{first}{}\n{ratio:.2} times as many\n", table(&head, &[], rows)))
}

/// Trains as `options` say; `None` if it does not fit, or takes too long.
fn train(
    training: &Training,
    device: Where,
    options: Options,
    progress: &dyn Fn(&Seen),
) -> Result<Option<(measure::Measured, Bytes)>, Error> {
    match measure::within(training, device, options, progress) {
        Ok((measured, report, _)) => Ok(Some((measured, report.engine.peak))),
        Err(Fault::NoRoom(_) | Fault::TooSlow(_)) => Ok(None),
        Err(other) => Err(fault(other)),
    }
}

/// The largest batch that `fits`, from a first guess.
fn search(guess: usize, mut fits: impl FnMut(usize) -> Result<bool, Error>) -> Result<usize, Error> {
    let batch = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    largest_that(guess as u64, (MOST, CLOSE), |rows| fits(batch(rows))).map(batch)
}
