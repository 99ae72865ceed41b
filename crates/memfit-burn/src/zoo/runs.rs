//! A training on a backend as it is, with Burn's own checkpointing, and within a budget.

use std::collections::VecDeque;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use memfit::engine::Recorded;
use memfit::profile::Saved;
use memfit::{Bytes, Failure};

use super::exact::{Apart, Sample};
use super::{Seen, Train, Trained, Training};
use crate::{
    Budget, Device, Fault, FlexDevice, Memfit, Mode, Options, Report, attempt, enable, enable_with,
    load_plan, report, save_plan, step, take_recorded,
};

/// What trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// Burn's backend Flex, on all cores.
    #[default]
    Cpu,
    /// The first CUDA device.
    #[cfg(feature = "cuda")]
    Cuda,
}

/// Gives back what the last training within a budget has left: memfit's tables.
///
/// # Errors
///
/// [`Fault::BadCall`] if there are tensors on the device.
pub fn clear(device: Where) -> Result<(), Fault> {
    match device {
        Where::Cpu => enable(&FlexDevice, Budget::UNLIMITED),
        #[cfg(feature = "cuda")]
        Where::Cuda => enable(&crate::CudaDevice::default(), Budget::UNLIMITED),
    }
}

/// As [`crate::take_lost`].
#[must_use]
pub fn take_lost(device: Where) -> Option<String> {
    match device {
        Where::Cpu => crate::take_lost(&FlexDevice),
        #[cfg(feature = "cuda")]
        Where::Cuda => crate::take_lost(&crate::CudaDevice::default()),
    }
}

/// Whether random numbers are within memfit those that the backend draws alone; else they are the same whatever the budget.
#[must_use]
pub fn draws_as_alone(device: Where) -> bool {
    fn on<D: Device>(_: &D) -> bool {
        <D::Backend as crate::Backend>::HOST_DRAWS
    }
    match device {
        Where::Cpu => on(&FlexDevice),
        #[cfg(feature = "cuda")]
        Where::Cuda => on(&crate::CudaDevice::default()),
    }
}

/// Trains without memfit.
pub fn plain(training: &Training, device: Where, seen: &mut dyn FnMut(Seen)) -> Trained {
    fn on<D: Device>(training: &Training, device: &D, seen: &mut dyn FnMut(Seen)) -> Trained {
        training.run::<Autodiff<D::Backend>>(device, seen)
    }
    match device {
        Where::Cpu => on(training, &FlexDevice, seen),
        #[cfg(feature = "cuda")]
        Where::Cuda => on(training, &crate::CudaDevice::default(), seen),
    }
}

/// Trains without memfit, with Burn's `BalancedCheckpointing`.
pub fn balanced(training: &Training, device: Where, seen: &mut dyn FnMut(Seen)) -> Trained {
    fn on<D: Device>(training: &Training, device: &D, seen: &mut dyn FnMut(Seen)) -> Trained {
        training.run::<Autodiff<D::Backend, BalancedCheckpointing>>(device, seen)
    }
    match device {
        Where::Cpu => on(training, &FlexDevice, seen),
        #[cfg(feature = "cuda")]
        Where::Cuda => on(training, &crate::CudaDevice::default(), seen),
    }
}

/// Trains as `options` say. The last step comes along if they ask for it.
///
/// # Errors
///
/// [`Fault::NoRoom`] if the budget is too small, [`Fault::TooSlow`] if patience ends.
pub fn within(
    training: &Training,
    device: Where,
    options: Options,
    seen: &mut dyn FnMut(Seen),
) -> Result<(Trained, Report, Option<Recorded>), Fault> {
    match device {
        Where::Cpu => within_on(training, &FlexDevice, options, seen),
        #[cfg(feature = "cuda")]
        Where::Cuda => within_on(training, &crate::CudaDevice::default(), options, seen),
    }
}

/// What tensors take with Burn's `BalancedCheckpointing`, by memfit's account. `options` say what counts.
///
/// # Errors
///
/// [`Fault::BadCall`] if there are tensors on the device.
pub fn balanced_peak(training: &Training, device: Where, options: Options) -> Result<Bytes, Fault> {
    fn on<D: Device>(training: &Training, device: &D, options: Options) -> Result<Bytes, Fault> {
        enable_with(device, options)?;
        attempt(device, || {
            training.run::<Autodiff<Memfit<D::Backend>, BalancedCheckpointing>>(device, &mut |_| {})
        })?;
        Ok(report(device).engine.peak)
    }
    match device {
        Where::Cpu => on(training, &FlexDevice, options),
        #[cfg(feature = "cuda")]
        Where::Cuda => on(training, &crate::CudaDevice::default(), options),
    }
}

/// How far the gradients of the last steps of a training as `options` say are from exact ones: of `count` steps, or all. It's a training
/// of its own, which follows the plan in `saved` where it can, and for which the parameters and gradients of these steps are kept; the
/// exact ones are those of the backend alone.
///
/// # Errors
///
/// As [`within`], and [`Fault::BadCall`] for a plan that the verifier refuses.
pub fn gradients(
    training: &Training,
    device: Where,
    options: Options,
    (saved, count): (Option<&Saved>, usize),
) -> Result<Vec<Apart>, Fault> {
    fn on<D: Device>(
        training: &Training,
        device: &D,
        options: Options,
        (saved, count): (Option<&Saved>, usize),
    ) -> Result<Vec<Apart>, Fault> {
        let mut last = VecDeque::new();
        let mut keep = |sample| {
            last.push_back(sample);
            if last.len() > count {
                last.pop_front();
            }
        };
        enable_with(device, options)?;
        if let Some(saved) = saved {
            load_plan(device, saved).map_err(|failure| Fault::BadCall(failure.to_string()))?;
        }
        trained(device, options, |seen| {
            let sampled: &mut dyn FnMut(Sample) = &mut keep;
            training.with::<Autodiff<Memfit<D::Backend>>, _>(
                device,
                Train::<Autodiff<Memfit<D::Backend>>> {
                    training: *training,
                    device,
                    seen,
                    sampled: Some(sampled),
                },
            )
        })?;
        Ok(last.iter().filter_map(|sample| sample.apart::<Autodiff<D::Backend>>(training, device)).collect())
    }
    match device {
        Where::Cpu => on(training, &FlexDevice, options, (saved, count)),
        #[cfg(feature = "cuda")]
        Where::Cuda => on(training, &crate::CudaDevice::default(), options, (saved, count)),
    }
}

/// Names of the codecs that lose something by which the last plan holds tensors.
#[must_use]
pub fn lossy(device: Where) -> Vec<&'static str> {
    let plan = match device {
        Where::Cpu => crate::last_plan(&FlexDevice),
        #[cfg(feature = "cuda")]
        Where::Cuda => crate::last_plan(&crate::CudaDevice::default()),
    };
    let codecs = plan.map(|plan| plan.program().lossy()).unwrap_or_default();
    codecs.into_iter().map(memfit::ir::Codec::name).collect()
}

/// The last plan and the step that it is for, as files; none if there is no plan.
///
/// # Errors
///
/// As [`save_plan`].
pub fn saved(device: Where) -> Result<Option<Saved>, Failure> {
    match device {
        Where::Cpu => save_plan(&FlexDevice),
        #[cfg(feature = "cuda")]
        Where::Cuda => save_plan(&crate::CudaDevice::default()),
    }
}

/// What `train` gives, within the budget that is enabled; it's handed what is to be told of each step.
fn trained<D: Device, T>(
    device: &D,
    options: Options,
    train: impl FnOnce(&mut dyn FnMut(Seen)) -> T,
) -> Result<T, Fault> {
    let ends = options.record || options.mode == Mode::Planned;
    let mut fault = None;
    let mut seen = |_: Seen| {
        if ends && let Err(error) = step(device) {
            fault.get_or_insert(error);
        }
    };
    let trained = attempt(device, || train(&mut seen))?;
    fault.map_or(Ok(trained), Err)
}

fn within_on<D: Device>(
    training: &Training,
    device: &D,
    options: Options,
    seen: &mut dyn FnMut(Seen),
) -> Result<(Trained, Report, Option<Recorded>), Fault> {
    enable_with(device, options)?;
    let trained = trained(device, options, |end| {
        training.run::<Autodiff<Memfit<D::Backend>>>(device, &mut |at| {
            end(at);
            seen(at);
        })
    })?;
    Ok((trained, report(device), take_recorded(device)))
}
