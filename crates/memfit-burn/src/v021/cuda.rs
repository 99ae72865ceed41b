//! CUDA through CubeCL. The driver is loaded at run time: this builds on any machine.
//!
//! CubeCL names no buffers, so which tensors share bytes is computed from strides, as its own ops do, and not checked. Its
//! pools keep what is given back: a budget bounds the bytes in use, and [`DeviceMemory::reserved`] says what the pools
//! hold. Each random op has a seed of its own, so a network with dropout draws other masks than without memfit, and the
//! same ones whatever the budget.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use burn_backend::{Bytes, DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use burn_ir::{BaseOperationIr, OperationIr, SliceOpIr, TensorHandle};
use burn_std::Strides;
use burn_std::tensor::{ReshapeAction, reshape_action};
use cubecl::Runtime as _;
use cubecl::cuda::CudaRuntime;

use super::backend::{Backend, Device, base};

pub use cubecl::cuda::CudaDevice;

/// Burn's CUDA backend, without fusion: fused ops would hide from memfit what they keep.
pub type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

/// How a tensor lies in its buffer.
#[derive(Clone, Debug)]
pub struct Strided {
    shape: Shape,
    strides: Strides,
    /// Where a part of a buffer may begin.
    alignment: u64,
}

impl Device for CudaDevice {
    type Backend = Cuda;
}

impl Backend for Cuda {
    type Layout = Strided;

    const HOST_DRAWS: bool = false;

    fn address(_handle: &CubeTensor<CudaRuntime>) -> Option<NonZeroUsize> {
        None
    }

    fn taken(_handle: &CubeTensor<CudaRuntime>) -> Option<u64> {
        None
    }

    fn layout(handle: &CubeTensor<CudaRuntime>) -> Strided {
        Strided {
            shape: handle.meta.shape().clone(),
            strides: handle.meta.strides().clone(),
            alignment: handle.client.properties().memory.alignment,
        }
    }

    type Saved = Infallible;

    /// Whether rows are padded is the allocator's to say, and may be another thing the next time: nothing is moved.
    fn save(_handle: &CubeTensor<CudaRuntime>) -> Option<(&[u8], Infallible)> {
        None
    }

    fn blank(_size: usize, saved: &Infallible) -> Bytes {
        match *saved {}
    }

    fn restore(_bytes: Bytes, saved: &Infallible) -> (TensorHandle<CubeTensor<CudaRuntime>>, DType) {
        match *saved {}
    }

    fn shares(op: &OperationIr, input: &Strided) -> bool {
        match base(op) {
            Some(BaseOperationIr::Reshape(reshape)) => {
                let action = reshape_action(&input.shape, &input.strides, &reshape.out.shape);
                !matches!(action, ReshapeAction::Recompute)
            }
            Some(
                BaseOperationIr::SwapDims(_)
                | BaseOperationIr::Permute(_)
                | BaseOperationIr::Expand(_)
                | BaseOperationIr::Unfold(_),
            ) => true,
            Some(BaseOperationIr::Slice(slice)) => slice_shares(slice, input),
            Some(BaseOperationIr::Cast(cast)) => cast.input.dtype == cast.out.dtype,
            _ => false,
        }
    }
}

/// Whether the part begins and ends where a part of a buffer may.
fn slice_shares(slice: &SliceOpIr, input: &Strided) -> bool {
    let (mut before, mut after) = (0, 0);
    for (at, range) in slice.ranges.iter().enumerate() {
        if range.step != 1 {
            return false;
        }
        let Some((&size, &stride)) = input.shape.iter().zip(input.strides.iter()).nth(at) else {
            return false;
        };
        let range = range.to_range(size);
        before += stride * range.start;
        after += stride * (size - range.end);
    }
    let bytes = |elements: usize| (elements * slice.out.dtype.size()) as u64;
    bytes(before).is_multiple_of(input.alignment) && bytes(after).is_multiple_of(input.alignment)
}

/// What a device's pools say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes of tensors and scratch memory.
    pub in_use: u64,
    /// Bytes that the pools have taken from the device.
    pub reserved: u64,
}

/// What `device`'s pools say; `None` if it doesn't answer.
#[must_use]
pub fn device_memory(device: &CudaDevice) -> Option<DeviceMemory> {
    let usage = CudaRuntime::client(device).memory_usage().ok()?;
    Some(DeviceMemory { in_use: usage.bytes_in_use, reserved: usage.bytes_reserved })
}
