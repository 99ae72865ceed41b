//! What a program needs, and another budget while it runs.

use memfit::engine::replay::{Outcome, Trace, replay};
use memfit::engine::{Fault, Recorded, Settings};
use memfit::{Bytes, Floor};

use super::backend::{Backend, Device};
use super::channel::client;
use super::core::Core;
use super::steps::Steps;
use crate::settings::{Budget, Mode};

/// What a step of training needs, from a record of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The most bytes that tensors take without a limit.
    pub peak: Bytes,
    /// What outlives the step, and the largest working set of one op; or the most that can't go while an op runs, where that is more: what
    /// the program holds of another network, or of a batch, stays as well. No budget below does, unless parameters and state may be in
    /// other memory between their uses.
    pub floor: Bytes,
    /// The least budget in which the engine gets through the step online, in virtual time and to a thousandth. What is evicted
    /// depends on measured times, so a training may need a little more.
    pub least: Bytes,
}

impl Needs {
    /// What a recorded step needs.
    #[must_use]
    pub fn of(recorded: &Recorded) -> Needs {
        let floor = Floor::of(&recorded.graph, Bytes(1)).bytes.max(unavoidable(&recorded.trace));
        let peak = recorded.trace.base().peak.max(floor);
        Needs { peak, floor, least: least_budget(&recorded.trace, floor, peak) }
    }

    /// A budget of `share` of what lies between floor and peak, above the floor: 0.6 for `floor+60%`.
    #[must_use]
    pub fn above_floor(&self, share: f64) -> Budget {
        let above = self.peak.saturating_sub(self.floor);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        Budget::of(self.floor.0 + (above.0 as f64 * share) as u64)
    }
}

/// The least budget from `floor` to `peak` in which the engine gets through the step of `trace` online, in virtual time and to a thousandth.
#[must_use]
pub fn least_budget(trace: &Trace, floor: Bytes, peak: Bytes) -> Bytes {
    let does = |budget: Bytes| {
        replay(trace, counting(budget), MOST_TIMES).is_ok_and(|report| report.outcome == Outcome::Done)
    };
    let (mut too_small, mut enough) = (floor.0.saturating_sub(1), peak.0);
    while enough - too_small.min(enough) > enough / 1000 + 1 {
        let middle = too_small + (enough - too_small) / 2;
        if does(Bytes(middle)) {
            enough = middle;
        } else {
            too_small = middle;
        }
    }
    Bytes(enough)
}

/// As Burn's tensors are counted: bytes, without addresses.
fn counting(budget: Bytes) -> Settings {
    Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) }
}

/// The most that can't go while an op of `trace` runs, with what the op takes.
fn unavoidable(trace: &Trace) -> Bytes {
    let report = replay(trace, counting(Budget::UNLIMITED.bytes()), MOST_TIMES);
    report.map_or(Bytes::ZERO, |report| report.stats.unavoidable)
}

/// Who takes longer than that many plain steps for one does not get through it.
const MOST_TIMES: f64 = 20.0;

/// What the last recorded step of `device` needs; `None` if none was recorded. Takes [`crate::Options::record`] and the end of a
/// step, [`crate::step`], twice or more.
///
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use memfit_burn::{Flex, FlexDevice, Memfit, Options, enable_with, needs, step};
///
/// enable_with(&FlexDevice, Options { record: true, ..Options::default() })?;
/// for _ in 0..2 {
///     let x = Tensor::<Autodiff<Memfit<Flex>>, 1>::ones([1024], &FlexDevice).require_grad();
///     let _gradients = x.exp().sin().sum().backward();
///     step(&FlexDevice)?;
/// }
/// let needs = needs(&FlexDevice).unwrap();
/// assert!(needs.floor <= needs.least && needs.least <= needs.peak);
/// # Ok::<(), memfit_burn::Fault>(())
/// ```
#[must_use]
pub fn needs<D: Device>(device: &D) -> Option<Needs> {
    client::<D::Backend>(device).with(|core| core.steps.recorded().map(Needs::of))
}

/// The budget of `device` is `budget` from now on, in mid-training too. A smaller one evicts what has to go; plans for another
/// budget are no longer followed.
///
/// # Errors
///
/// [`Fault::NoRoom`] if what can't go is larger: then the budget stays as it was.
pub fn set_budget<D: Device>(device: &D, budget: Budget) -> Result<(), Fault> {
    client::<D::Backend>(device).with(|core| core.set_budget(budget))
}

/// Nothing is evicted any more on `device`: there is no budget, and no mode but online. All that the program holds is there again,
/// and what it was made from is forgotten. [`set_budget`] begins anew.
///
/// # Errors
///
/// Any [`Fault`] while bringing back what the program holds.
pub fn disable<D: Device>(device: &D) -> Result<(), Fault> {
    client::<D::Backend>(device).with(|core| {
        core.set_budget(Budget::UNLIMITED)?;
        (core.options.mode, core.options.record) = (Mode::Online, false);
        core.cut()
    })
}

impl<B: Backend> Core<B> {
    fn set_budget(&mut self, budget: Budget) -> Result<(), Fault> {
        self.engine.diverge();
        if self.steps.of.is_open() {
            let Steps { of, began, .. } = &mut self.steps;
            match of.end(&mut self.engine, || began.elapsed()) {
                // What is held and has no room comes back when it is read.
                Ok(_) | Err(Fault::NoRoom(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.engine.set_budget(budget.bytes())?;
        self.options.budget = budget;
        self.steps.renew(&self.options)
    }
}
