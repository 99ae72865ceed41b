//! What a training program says to memfit: a budget, where steps end, and what has become of it.

use memfit::engine::{Fault, Planner, Recorded, Stats, StepPlan, Tried};
use memfit::profile::{self, Saved};
use memfit::{Bytes, Failure, Nanos, Parts};

use super::backend::{Backend, Device};
use super::channel::{caught, client};
use super::core::Core;
use super::host::Counters;
use super::steps::StepCounters;
use crate::settings::{Budget, Options};

/// What has been done on a device since [`enable`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The engine's account.
    pub engine: Stats,
    /// The most that tensors may take; none where there is no limit.
    pub budget: Option<Bytes>,
    /// The host's.
    pub host: Counters,
    /// Planned mode.
    pub steps: StepCounters,
    /// What a step by the last plan was predicted to take, if there is a plan that was made here.
    pub predicted: Option<Parts>,
    /// The median step that followed it, if one has.
    pub followed: Option<Parts>,
    /// Ns in ops of the backend, repetitions included.
    pub busy_ns: u64,
    /// Ns in memfit itself: what an op takes beyond what it takes the backend.
    pub own_ns: u64,
    /// Tensors that the program holds.
    pub tensors: usize,
    /// The most that memfit's own tables have taken: a row for each op that may run again, and how to run it.
    pub tables: u64,
}

/// From now on, tensors of `device` take at most `budget`: everything, in bytes, as a hard limit.
///
/// # Errors
///
/// [`Fault::BadCall`] if there are tensors on the device already.
pub fn enable<D: Device>(device: &D, budget: Budget) -> Result<(), Fault> {
    enable_with(device, Options { budget, ..Options::default() })
}

/// As [`enable`], with all there is to say.
///
/// # Errors
///
/// [`Fault::BadCall`] if there are tensors on the device already.
pub fn enable_with<D: Device>(device: &D, options: Options) -> Result<(), Fault> {
    client::<D::Backend>(device).with(|core| {
        // What a failed training has left is Burn's: its graphs go with the next one.
        if core.len() > 0 && !core.failed {
            let message = format!(
                "{} tensors are on the device already: enable memfit before the model is made",
                core.len()
            );
            return Err(Fault::BadCall(message));
        }
        // What ops take on this device they take whoever trains.
        let known = std::mem::take(&mut core.engine.host.profiles);
        *core = Core::new(device.clone(), options)?;
        core.engine.host.profiles = known;
        Ok(())
    })
}

/// A step of training ends here. Not needed for the budget; it lets the past go at once, and planned mode needs it.
///
/// # Errors
///
/// Any [`Fault`] while bringing back what the program holds.
pub fn step<D: Device>(device: &D) -> Result<(), Fault> {
    client::<D::Backend>(device).with(Core::step)
}

/// What has been done on `device`.
#[must_use]
pub fn report<D: Device>(device: &D) -> Report {
    client::<D::Backend>(device).with(|core| Report {
        engine: core.engine.stats(),
        budget: Some(core.options.budget).filter(|budget| *budget != Budget::UNLIMITED).map(Budget::bytes),
        host: core.engine.host.counters,
        steps: core.steps.counters,
        predicted: core.steps.of.timing().predicted(),
        followed: core.steps.of.timing().measured(),
        busy_ns: Nanos::from(core.engine.host.busy).0,
        own_ns: Nanos::from(core.own).0,
        tensors: core.len(),
        tables: core.table_bytes(),
    })
}

/// Why a copy in another tier was lost, of the last one since this was asked, if one was: a disk that is full, a file that was
/// cut. What it was of is computed again.
#[must_use]
pub fn take_lost<D: Device>(device: &D) -> Option<String> {
    client::<D::Backend>(device).with(|core| core.engine.take_lost().map(|error| error.to_string()))
}

/// Evicts all that can be computed again, whatever the budget: the hardest that a training can be put to.
pub fn evict_all<D: Device>(device: &D) {
    client::<D::Backend>(device).with(|core| core.engine.drop_all());
}

/// Counts the peak anew from what is in use now.
pub fn reset_peak<D: Device>(device: &D) {
    client::<D::Backend>(device).with(|core| {
        core.engine.reset_peak();
        core.engine.host.counters.working = 0;
    });
}

/// The last step, if [`Options::record`] asked for it.
#[must_use]
pub fn take_recorded<D: Device>(device: &D) -> Option<Recorded> {
    client::<D::Backend>(device).with(|core| core.steps.take_recorded())
}

/// The next step is expected to be that of `saved`, which an earlier run has left. The verifier checks the plan first: it may use the lossy
/// codecs that [`Options::lossy`] names, and no others.
///
/// # Errors
///
/// As [`profile::load`]: files that are damaged or wrong are refused.
pub fn load_plan<D: Device>(device: &D, saved: &Saved) -> Result<(), Failure> {
    let lossy = client::<D::Backend>(device).with(|core| core.engine.settings().limits(Bytes::ZERO).lossy);
    let plan = profile::load(&saved.profile, &saved.plan, None, &lossy)?;
    client::<D::Backend>(device).with(|core| core.steps.load(plan));
    Ok(())
}

/// The last plan and the step it is for, as files; none if there is no plan.
///
/// # Errors
///
/// [`Failure::Usage`] where the device that costs are told for is not known.
pub fn save_plan<D: Device>(device: &D) -> Result<Option<Saved>, Failure> {
    client::<D::Backend>(device).with(|core| core.steps.of.save(core.engine.settings().align))
}

/// The plan that is followed or was followed last, which the verifier has passed.
#[must_use]
pub fn last_plan<D: Device>(device: &D) -> Option<StepPlan> {
    client::<D::Backend>(device).with(|core| core.steps.of.last_plan().cloned())
}

/// Has `planner` make the plans of `device` from now on.
pub fn plan_with<D: Device>(device: &D, planner: Box<dyn Planner>) {
    client::<D::Backend>(device).with(|core| core.steps.of.set_planner(planner));
}

/// What was tried when a plan was made last.
#[must_use]
pub fn tried<D: Device>(device: &D) -> Vec<Tried> {
    client::<D::Backend>(device).with(|core| core.steps.of.tried().to_vec())
}

/// Does `work`, and turns memfit's panic about `device` into the fault it is about. Burn's tensor operations return no
/// results, so a budget that is too small ends them with a panic.
///
/// # Errors
///
/// The fault. Other panics go on.
pub fn attempt<D: Device, T>(device: &D, work: impl FnOnce() -> T) -> Result<T, Fault> {
    let outcome = caught(work);
    outcome.map_err(|panic| match client::<D::Backend>(device).with(|core| core.fault.take()) {
        Some(fault) => fault,
        None => std::panic::resume_unwind(panic),
    })
}

/// Keeps the trait in scope of the signatures above.
const _: fn() = || {
    fn is_backend<B: Backend>() {}
    is_backend::<burn_flex::Flex>();
};
