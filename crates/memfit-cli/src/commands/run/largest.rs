//! The largest batch that can be trained in a budget, with memfit and without.

use memfit::Bytes;
use memfit::engine::Fault;
use memfit_burn::Options;
use memfit_burn::zoo::{Seen, Training, Where};
use serde_json::json;

use super::{RunArgs, fault, measure, part, patience};
use crate::error::Error;
use crate::output::{Output, table};

/// Steps of a trial: the first, and one with the optimizer's state.
const STEPS: usize = 2;
const MOST: usize = 1024;
const BATCH: usize = 8;

pub(super) fn run(args: &RunArgs, training: &Training, device: Where, output: &Output) -> Result<(), Error> {
    let quiet = |what: String| move |_: &Seen| output.progress(&what);
    let with = |batch: usize| Training { batch, steps: STEPS, gradients: false, ..*training };
    let counted = |batch: usize| {
        let options = Options::default();
        let ran =
            measure::within(&with(batch), device, options, &quiet(format!("batch {batch} without a limit")));
        ran.map(|(measured, report, _)| (measured, report.engine.peak)).map_err(fault)
    };
    let (at_eight, peak) = counted(BATCH)?;
    let budget = match args.budget {
        None | Some(memfit::Budget::Device | memfit::Budget::AboveFloor(_)) => peak,
        Some(memfit::Budget::Bytes(bytes)) => bytes,
        Some(memfit::Budget::OfPeak(share)) => part(peak, share),
    };
    // Without memfit: what a batch takes grows in proportion, so few trials find it.
    let without = search(BATCH, |batch| Ok(counted(batch)?.1 <= budget))?;
    let within = search(without.max(1), |batch| fits(&with(batch), device, budget, &at_eight, &quiet))?;
    let ratio = within as f64 / without.max(1) as f64;
    if output.json {
        return output.object(&json!({
            "schema": "memfit-run-max-batch/1",
            "status": if within > 0 { "fits" } else { "infeasible" },
            "model": training.model.name(),
            "budget_bytes": budget.0,
            "base_max_batch": without,
            "max_batch": within,
            "ratio": ratio,
            "seed": training.seed,
        }));
    }
    let row = |name: &str, batch: usize| vec![name.to_owned(), batch.to_string()];
    let head = format!("{} in {budget}: the largest batch\n", training.model.name());
    let rows = vec![row("without memfit", without), row("with memfit", within)];
    output.print(&format!("{head}{}{ratio:.2} times as many\n", table(&[], &[], rows)))
}

fn fits<P: Fn(&Seen)>(
    training: &Training,
    device: Where,
    budget: Bytes,
    at_eight: &measure::Measured,
    progress: &impl Fn(String) -> P,
) -> Result<bool, Error> {
    // Time grows with the batch; recomputing everything several times over is not what anybody wants.
    let scale = training.batch.div_ceil(BATCH);
    let options = Options {
        budget: memfit_burn::Budget::of(budget.0),
        patience: patience(at_eight, training.steps * scale),
        ..Options::default()
    };
    let progress = progress(format!("batch {} within {budget}", training.batch));
    match measure::within(training, device, options, &progress) {
        Ok(_) => Ok(true),
        Err(Fault::NoRoom(_) | Fault::TooSlow(_)) => Ok(false),
        Err(other) => Err(fault(other)),
    }
}

/// The largest batch that `fits`, from a first guess: doubling, then halving the interval.
fn search(guess: usize, mut fits: impl FnMut(usize) -> Result<bool, Error>) -> Result<usize, Error> {
    let (mut good, mut bad) = (0, guess);
    while bad <= MOST && fits(bad)? {
        (good, bad) = (bad, 2 * bad);
    }
    while bad > good + 1 && bad - good > good / 32 {
        let middle = good + (bad - good) / 2;
        if fits(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}
