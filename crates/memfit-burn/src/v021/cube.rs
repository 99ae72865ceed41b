//! GPUs through CubeCL: CUDA, and what Wgpu runs on. Drivers are loaded at run time: this builds on any machine.
//!
//! CubeCL names no buffers, so which tensors share bytes is computed from strides, as its own ops do, and not checked. Its
//! pools keep what is given back: a budget bounds the bytes in use, and [`DeviceMemory::reserved`] says what the pools
//! hold. Each random op has a seed of its own, so a network with dropout draws other masks than without memfit, and the
//! same ones whatever the budget.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use burn_backend::{Bytes, DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use burn_ir::{BaseOperationIr, OperationIr, SliceOpIr, TensorHandle};
use burn_std::Strides;
use burn_std::tensor::{ReshapeAction, reshape_action};
#[cfg(feature = "cuda")]
use cubecl::cuda::CudaRuntime;
#[cfg(feature = "wgpu")]
use cubecl::wgpu::WgpuRuntime;

use super::backend::{Backend, Device, base};

#[cfg(feature = "cuda")]
pub use cubecl::cuda::CudaDevice;
#[cfg(feature = "wgpu")]
pub use cubecl::wgpu::WgpuDevice;

/// Burn's CUDA backend, without fusion: fused ops would hide from memfit what they keep.
#[cfg(feature = "cuda")]
pub type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

/// Burn's Wgpu backend, without fusion: fused ops would hide from memfit what they keep.
#[cfg(feature = "wgpu")]
pub type Wgpu = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// How a tensor lies in its buffer.
#[derive(Clone, Debug)]
pub struct Strided {
    shape: Shape,
    strides: Strides,
    /// Where a part of a buffer may begin.
    alignment: u64,
}

#[cfg(feature = "cuda")]
impl Device for CudaDevice {
    type Backend = Cuda;
}

#[cfg(feature = "wgpu")]
impl Device for WgpuDevice {
    type Backend = Wgpu;
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Backend for CubeBackend<R, F, I, BT> {
    type Layout = Strided;

    const HOST_DRAWS: bool = false;

    fn address(_handle: &CubeTensor<R>) -> Option<NonZeroUsize> {
        None
    }

    fn taken(_handle: &CubeTensor<R>) -> Option<u64> {
        None
    }

    fn layout(handle: &CubeTensor<R>) -> Strided {
        Strided {
            shape: handle.meta.shape().clone(),
            strides: handle.meta.strides().clone(),
            alignment: handle.client.properties().memory.alignment,
        }
    }

    type Saved = Infallible;

    /// Whether rows are padded is the allocator's to say, and may be another thing the next time: nothing is moved.
    fn save(_handle: &CubeTensor<R>) -> Option<(&[u8], Infallible)> {
        None
    }

    fn blank(_size: usize, saved: &Infallible) -> Bytes {
        match *saved {}
    }

    fn restore(_bytes: Bytes, saved: &Infallible) -> (TensorHandle<CubeTensor<R>>, DType) {
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

/// A backend whose device memory is in pools.
pub trait Pools: Backend {
    /// What the pools of `device` say; `None` if it doesn't answer.
    fn memory(device: &Self::Device) -> Option<DeviceMemory>;
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Pools for CubeBackend<R, F, I, BT> {
    fn memory(device: &R::CubeDevice) -> Option<DeviceMemory> {
        let usage = R::client(device).memory_usage().ok()?;
        Some(DeviceMemory { in_use: usage.bytes_in_use, reserved: usage.bytes_reserved })
    }
}

/// What the pools of `device` say; `None` if it doesn't answer.
#[must_use]
pub fn device_memory<D: Device<Backend: Pools>>(device: &D) -> Option<DeviceMemory> {
    D::Backend::memory(device)
}
