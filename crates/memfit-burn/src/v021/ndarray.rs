//! Burn's backend over `ndarray`.
//!
//! Only transposed axes share bytes here: shapes, slices and broadcasts are copies. Whether a tensor is all of its buffer can't be
//! seen from outside, so nothing is stored in other memory or encoded: what goes is computed again.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use burn_backend::quantization::QuantScheme;
use burn_backend::{Bytes, DType, Distribution, Element as _, TensorMetadata as _};
use burn_ir::{BaseOperationIr, HandleKind, NumericOperationIr, OperationIr, RandomOpIr, TensorHandle};
use burn_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};

use super::backend::{Backend, Device, base};

impl Device for NdArrayDevice {
    type Backend = NdArray;
}

/// The array behind `handle`, but for quantised ones.
fn array(handle: &HandleKind<NdArray>) -> Option<&NdArrayTensor> {
    match handle {
        HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => Some(tensor),
        HandleKind::Quantized(_) => None,
    }
}

impl Backend for NdArray {
    /// Whether an op makes a view does not depend on how its operand lies.
    type Layout = ();

    const HOST_DRAWS: bool = true;

    fn distribution(op: &RandomOpIr) -> Distribution {
        match op.distribution {
            Distribution::Default if !op.out.dtype.is_float() => Distribution::Uniform(0.0, 255.0),
            distribution => distribution,
        }
    }

    fn quantizes(scheme: QuantScheme) -> Option<QuantScheme> {
        Some(scheme)
    }

    fn address(handle: &HandleKind<NdArray>) -> Option<NonZeroUsize> {
        macro_rules! start {
            ($($of:ident)*) => {
                match array(handle)? { $(NdArrayTensor::$of(array) => array.view().as_ptr().addr(),)* }
            };
        }
        NonZeroUsize::new(start!(F64 F32 I64 I32 I16 I8 U64 U32 U16 U8 Bool))
    }

    /// Of what it holds: its buffer may be larger.
    fn taken(handle: &HandleKind<NdArray>) -> Option<u64> {
        array(handle).map(|tensor| (tensor.shape().num_elements() * tensor.dtype().size()) as u64)
    }

    fn declare(op: &mut OperationIr) {
        // Indices are of its type of integers, whatever they index; those of floats are cast to what is asked for.
        if let OperationIr::NumericInt(_, NumericOperationIr::ArgMax(op) | NumericOperationIr::ArgMin(op)) =
            op
        {
            op.out.dtype = i64::dtype();
        }
    }

    fn layout(_handle: &HandleKind<NdArray>) {}

    type Saved = Infallible;

    fn save(_handle: &HandleKind<NdArray>) -> Option<(&[u8], Infallible)> {
        None
    }

    fn blank(_size: usize, saved: &Infallible) -> Bytes {
        match *saved {}
    }

    fn restore(_bytes: Bytes, saved: &Infallible) -> (TensorHandle<HandleKind<NdArray>>, DType) {
        match *saved {}
    }

    fn shares(op: &OperationIr, _input: &()) -> bool {
        match base(op) {
            Some(BaseOperationIr::SwapDims(_) | BaseOperationIr::Permute(_)) => true,
            Some(BaseOperationIr::Cast(cast)) => cast.input.dtype == cast.out.dtype,
            _ => false,
        }
    }
}
