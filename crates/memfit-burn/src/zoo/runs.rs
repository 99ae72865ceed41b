//! A training on a backend as it is, with Burn's own checkpointing, and within a budget.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use memfit::Bytes;
use memfit::engine::Recorded;

use super::{Seen, Trained, Training};
use crate::{
    Budget, Device, Fault, FlexDevice, Memfit, Mode, Options, Report, attempt, enable, enable_with, report,
    step, take_recorded,
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

fn within_on<D: Device>(
    training: &Training,
    device: &D,
    options: Options,
    seen: &mut dyn FnMut(Seen),
) -> Result<(Trained, Report, Option<Recorded>), Fault> {
    enable_with(device, options)?;
    let ends = options.record || options.mode == Mode::Planned;
    let mut fault = None;
    let mut seen = |at: Seen| {
        if ends && let Err(error) = step(device) {
            fault.get_or_insert(error);
        }
        seen(at);
    };
    let trained = attempt(device, || training.run::<Autodiff<Memfit<D::Backend>>>(device, &mut seen))?;
    match fault {
        Some(fault) => Err(fault),
        None => Ok((trained, report(device), take_recorded(device))),
    }
}
