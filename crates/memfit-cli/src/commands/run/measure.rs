//! One training, measured.

use std::time::Duration;

use memfit::engine::{Fault, Recorded};
use memfit::{Bytes, Nanos};
use memfit_burn::zoo::{self, Seen, Trained, Training, Where};
use memfit_burn::{Options, Report};

use super::{heap, processor};

/// What was seen of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) loss: f32,
    pub(super) time: Duration,
    /// Time on processors, with all that was done between the steps.
    processor: Option<Duration>,
    /// Most heap bytes, beyond those before the training.
    pub(super) peak: Bytes,
}

/// What was seen of a training.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) trained: Trained,
    pub(super) steps: Vec<Step>,
    /// Most heap bytes, beyond those before the training.
    pub(super) peak: Bytes,
    /// Why the last copy that was lost was.
    pub(super) lost: Option<String>,
    /// Codecs that lose something by which the last plan holds tensors.
    pub(super) lossy: Vec<&'static str>,
}

impl Measured {
    /// The median time of the steps; the first is left out where there are others: it also makes the state of the
    /// optimizer.
    pub(super) fn time(&self) -> Nanos {
        self.median(|step| Some(step.time)).unwrap_or_default()
    }

    /// The same for the time on processors.
    pub(super) fn processor(&self) -> Option<Nanos> {
        self.median(|step| step.processor)
    }

    fn median(&self, of: impl Fn(&Step) -> Option<Duration>) -> Option<Nanos> {
        let from = usize::from(self.steps.len() > 1);
        let mut times: Vec<Duration> = self.steps[from..].iter().filter_map(of).collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2)?;
        Some(Nanos(u64::try_from(median.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn losses(&self) -> Vec<f32> {
        self.steps.iter().map(|step| step.loss).collect()
    }
}

fn bytes(count: usize) -> Bytes {
    Bytes(count as u64)
}

/// Runs `work`, which tells of its steps.
fn measured<T>(
    device: Where,
    progress: &dyn Fn(&Seen),
    work: impl FnOnce(&mut dyn FnMut(Seen)) -> Result<(Trained, T), Fault>,
) -> Result<(Measured, T), Fault> {
    zoo::clear(device)?;
    heap::window();
    let before = heap::current();
    let mut steps: Vec<Step> = Vec::new();
    let mut most = 0;
    let mut started = processor::time();
    let (trained, rest) = work(&mut |seen| {
        let window = heap::window();
        most = most.max(window);
        let now = processor::time();
        let processor = now.zip(started).map(|(now, started)| now.saturating_sub(started));
        started = now;
        let peak = bytes(window.saturating_sub(before));
        steps.push(Step { loss: seen.loss, time: seen.time, processor, peak });
        progress(&seen);
    })?;
    most = most.max(heap::window());
    let (lost, lossy) = (zoo::take_lost(device), zoo::lossy(device));
    Ok((Measured { trained, steps, peak: bytes(most.saturating_sub(before)), lost, lossy }, rest))
}

/// Without memfit; with Burn's own checkpointing if `balanced`.
pub(super) fn plain(
    training: &Training,
    device: Where,
    balanced: bool,
    progress: &dyn Fn(&Seen),
) -> Result<Measured, Fault> {
    let work = |seen: &mut dyn FnMut(Seen)| {
        let run = if balanced { zoo::balanced } else { zoo::plain };
        Ok((run(training, device, seen), ()))
    };
    measured(device, progress, work).map(|(measured, ())| measured)
}

/// What tensors take with Burn's own checkpointing; with scratch, if that counts.
pub(super) fn balanced_peak(training: &Training, device: Where, options: Options) -> Result<Bytes, Fault> {
    zoo::balanced_peak(training, device, Options { meter: Some(heap::METER), ..options })
}

/// As `options` say.
pub(super) fn within(
    training: &Training,
    device: Where,
    options: Options,
    progress: &dyn Fn(&Seen),
) -> Result<(Measured, Report, Option<Recorded>), Fault> {
    let options = Options { meter: Some(heap::METER), ..options };
    // A budget that is too small ends in a panic, which is caught, and said in other words.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = measured(device, progress, |seen| {
        zoo::within(training, device, options, seen)
            .map(|(trained, report, recorded)| (trained, (report, recorded)))
    });
    std::panic::set_hook(hook);
    outcome.map(|(measured, (report, recorded))| (measured, report, recorded))
}
