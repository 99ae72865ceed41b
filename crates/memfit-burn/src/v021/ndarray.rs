//! Burn's backend over `ndarray`.
//!
//! Only transposed axes share bytes here: shapes, slices and broadcasts are copies. Whether a tensor is all of its buffer can't be
//! seen from outside, so nothing is stored in other memory or encoded: what goes is computed again.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use burn_backend::{Bytes, DType, Distribution};
use burn_ir::{BaseOperationIr, HandleKind, OperationIr, RandomOpIr, TensorHandle};
use burn_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};

use super::backend::{Backend, Device, base};

impl Device for NdArrayDevice {
    type Backend = NdArray;
}

/// What `$ask` says of the array in a handle, whatever its elements are.
macro_rules! of_array {
    ($handle:expr, |$array:ident| $ask:expr) => {
        of_array!($handle, |$array| $ask, F64 F32 I64 I32 I16 I8 U64 U32 U16 U8 Bool)
    };
    ($handle:expr, |$array:ident| $ask:expr, $($of:ident)*) => {{
        let (HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor)) = $handle else {
            return None;
        };
        match tensor { $(NdArrayTensor::$of($array) => $ask,)* }
    }};
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

    fn address(handle: &HandleKind<NdArray>) -> Option<NonZeroUsize> {
        NonZeroUsize::new(of_array!(handle, |array| array.view().as_ptr().addr()))
    }

    /// Of what it holds: its buffer may be larger.
    fn taken(handle: &HandleKind<NdArray>) -> Option<u64> {
        Some(of_array!(handle, |array| array.view().iter().map(|element| size_of_val(element) as u64).sum()))
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
