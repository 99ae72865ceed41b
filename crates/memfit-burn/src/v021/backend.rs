//! What memfit needs to know of a backend beyond its IR: which tensors share bytes, and how numbers are drawn.

use std::num::NonZeroUsize;

use burn_backend::quantization::{QuantScheme, QuantStore};
use burn_backend::{Bytes, DType, Distribution, QTensorPrimitive as _, TensorData};
use burn_flex::{Flex, FlexDevice, FlexQTensor, FlexTensor, Layout};
use burn_ir::{
    BackendIr, BaseOperationIr, HandleKind, ModuleOperationIr, NumericOperationIr, OperationIr, RandomOpIr,
    TensorHandle,
};

use super::own::method;
use super::{quantized, reuse};

/// A Burn backend that memfit can run.
pub trait Backend: BackendIr {
    /// What decides whether an op on a tensor makes a view: its strides.
    type Layout: Send + 'static;

    /// Whether random numbers are drawn by memfit, from the stream that this backend itself would have drawn from.
    /// Else each random op has a seed of its own, which is replayed.
    const HOST_DRAWS: bool;

    /// Whether it has Burn's default for the gradients of convolutions' weights, and slices that are views: what the default slices out
    /// of a larger tensor keeps the bytes of all of it, so these ops are recorded one by one.
    const SLICES_WEIGHT_GRADIENTS: bool = false;

    /// The distribution that a random op draws from, where memfit draws for it.
    fn distribution(op: &RandomOpIr) -> Distribution {
        op.distribution
    }

    /// How this backend keeps what is to be quantised by `scheme`; `None` where memfit runs no quantised tensors on it.
    fn quantizes(_scheme: QuantScheme) -> Option<QuantScheme> {
        None
    }

    /// The address of the bytes behind `handle`, whatever names that address; `None` if it can't be known.
    fn address(handle: &Self::Handle) -> Option<NonZeroUsize>;

    /// Bytes of the whole buffer behind `handle`; `None` if they can't be known.
    fn taken(handle: &Self::Handle) -> Option<u64>;

    /// Gives the outputs of `op` the types that this backend makes, where Burn's router declares others.
    fn declare(_op: &mut OperationIr) {}

    /// The strides of `handle`.
    fn layout(handle: &Self::Handle) -> Self::Layout;

    /// How the bytes behind a handle are to be read.
    type Saved: Clone + Send + 'static;

    /// All bytes behind `handle`, as they lie in memory, and what makes a handle like it of a copy of them. `None` if they
    /// can't be read as they are, or `handle` is a part of what is there.
    fn save(handle: &Self::Handle) -> Option<(&[u8], Self::Saved)>;

    /// Memory of `size` bytes, all zero, that [`Backend::restore`] takes as it is.
    fn blank(size: usize, saved: &Self::Saved) -> Bytes;

    /// A handle like the one that [`Backend::save`] was given, of `bytes`, and its type of elements.
    fn restore(bytes: Bytes, saved: &Self::Saved) -> (TensorHandle<Self::Handle>, DType);

    /// Whether the output of `op` will share the bytes of its first input, which is laid out as `input`.
    fn shares(op: &OperationIr, input: &Self::Layout) -> bool;

    /// Whether `op` certainly writes its output over its first operand, if nobody else has the bytes of that: with operands that are
    /// laid out as `first` and, if there is another, `second`.
    fn overwrites(_op: &OperationIr, _first: &Self::Layout, _second: Option<&Self::Layout>) -> bool {
        false
    }
}

/// A device of which the backend can be inferred.
pub trait Device: burn_backend::DeviceOps {
    /// Its backend.
    type Backend: Backend<Device = Self>;
}

impl Device for FlexDevice {
    type Backend = Flex;
}

/// The base op in `op`, for any kind of element.
pub(crate) fn base(op: &OperationIr) -> Option<&BaseOperationIr> {
    match op {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => Some(base),
        _ => None,
    }
}

/// The tensor behind `handle`, which has all bytes but the scales.
fn flex(handle: &HandleKind<Flex>) -> &FlexTensor {
    match handle {
        HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => tensor,
        HandleKind::Quantized(tensor) => tensor.tensor(),
    }
}

/// The scheme and the scales of a quantised tensor.
fn scales(handle: &HandleKind<Flex>) -> Option<(QuantScheme, &[f32])> {
    match handle {
        HandleKind::Quantized(tensor) => Some((*tensor.scheme(), tensor.scales())),
        _ => None,
    }
}

impl Backend for Flex {
    /// Whether it is contiguous and starts where its buffer starts.
    type Layout = bool;

    const HOST_DRAWS: bool = true;

    const SLICES_WEIGHT_GRADIENTS: bool = true;

    fn address(handle: &Self::Handle) -> Option<NonZeroUsize> {
        // The first byte of the buffer, not of the tensor: all views of a buffer have it in common.
        NonZeroUsize::new(flex(handle).bytes().as_ptr().addr())
    }

    fn taken(handle: &Self::Handle) -> Option<u64> {
        let of_scales = scales(handle).map_or(0, |(_, scales)| size_of_val(scales));
        Some((flex(handle).bytes().len() + of_scales) as u64)
    }

    fn quantizes(scheme: QuantScheme) -> Option<QuantScheme> {
        Some(scheme.with_store(QuantStore::Native))
    }

    fn declare(op: &mut OperationIr) {
        // Indices are of this type on this backend, whatever the router asks for; those of floats are cast to what is asked for.
        const INDICES: DType = if cfg!(target_pointer_width = "32") { DType::I32 } else { DType::I64 };
        use ModuleOperationIr::{MaxPool1dWithIndices, MaxPool2dWithIndices};
        use NumericOperationIr::{ArgMax, ArgMin, MaxDimWithIndices, MinDimWithIndices};
        let (indices, dtype) = match op {
            OperationIr::Module(MaxPool1dWithIndices(op)) => (&mut op.out_indices, DType::I64),
            OperationIr::Module(MaxPool2dWithIndices(op)) => (&mut op.out_indices, DType::I64),
            OperationIr::NumericInt(_, ArgMax(op) | ArgMin(op)) => (&mut op.out, INDICES),
            OperationIr::NumericInt(_, MaxDimWithIndices(op) | MinDimWithIndices(op)) => {
                (&mut op.out_indices, INDICES)
            }
            OperationIr::Custom(op) if ["int_argsort", "int_sort_with_indices"].contains(&method(op)) => {
                let Some(indices) = op.outputs.last_mut() else { return };
                (indices, INDICES)
            }
            _ => return,
        };
        indices.dtype = dtype;
    }

    fn layout(handle: &Self::Handle) -> bool {
        let tensor = flex(handle);
        tensor.is_contiguous() && tensor.layout().start_offset() == 0
    }

    /// Of a quantised tensor, its scheme and scale too. Many scales would stay where they are, so such a tensor is not moved.
    type Saved = (Layout, DType, Option<(QuantScheme, f32)>);

    fn save(handle: &Self::Handle) -> Option<(&[u8], Self::Saved)> {
        let scale = match scales(handle) {
            Some((scheme, &[scale])) => Some((scheme, scale)),
            Some(_) => return None,
            None => None,
        };
        let tensor = flex(handle);
        let (layout, dtype, bytes) = (tensor.layout(), tensor.dtype(), tensor.bytes());
        let whole = layout.shape().num_elements() * dtype.size() == bytes.len();
        whole.then(|| (bytes, (layout.clone(), dtype, scale)))
    }

    fn blank(size: usize, (_, dtype, _): &Self::Saved) -> Bytes {
        // Bytes that were not allocated for the type of the elements would be copied to others that are: twice the memory.
        match dtype.size() {
            8 => Bytes::from_elems(vec![0_u64; size / 8]),
            4 => Bytes::from_elems(vec![0_u32; size / 4]),
            2 => Bytes::from_elems(vec![0_u16; size / 2]),
            _ => Bytes::from_elems(vec![0_u8; size]),
        }
    }

    fn restore(bytes: Bytes, (layout, dtype, scale): &Self::Saved) -> (TensorHandle<Self::Handle>, DType) {
        let tensor = FlexTensor::new(bytes, layout.clone(), *dtype);
        let shape = layout.shape().clone();
        if let &Some((scheme, scale)) = scale {
            let handle = HandleKind::Quantized(FlexQTensor::new(tensor, scheme, vec![scale]));
            return (TensorHandle { handle, shape }, DType::QFloat(scheme));
        }
        let handle = if dtype.is_float() {
            HandleKind::Float(tensor)
        } else if dtype.is_bool() {
            HandleKind::Bool(tensor)
        } else {
            HandleKind::Int(tensor)
        };
        (TensorHandle { handle, shape }, *dtype)
    }

    fn shares(op: &OperationIr, input: &bool) -> bool {
        if let OperationIr::Custom(op) = op {
            return quantized::is_view(op, *input);
        }
        match base(op) {
            Some(BaseOperationIr::Reshape(_)) => *input,
            Some(
                BaseOperationIr::SwapDims(_)
                | BaseOperationIr::Permute(_)
                | BaseOperationIr::Flip(_)
                | BaseOperationIr::Expand(_)
                | BaseOperationIr::Unfold(_),
            ) => true,
            Some(BaseOperationIr::Slice(slice)) => slice.ranges.iter().all(|range| range.step > 0),
            Some(BaseOperationIr::Cast(cast)) => cast.input.dtype == cast.out.dtype,
            Some(BaseOperationIr::RepeatDim(repeat)) => repeat.times == 1,
            _ => false,
        }
    }

    fn overwrites(op: &OperationIr, first: &bool, second: Option<&bool>) -> bool {
        reuse::overwrites(op, *first, second.copied())
    }
}

/// A copy of the bytes behind `handle`, in memory of its own.
pub(crate) fn copy<B: Backend>(
    handle: B::Handle,
    shape: burn_backend::Shape,
    dtype: DType,
) -> Option<TensorData> {
    let tensor = TensorHandle { handle, shape };
    let data = if dtype.is_float() {
        burn_backend::read_sync(B::float_into_data(B::float_tensor(tensor)))
    } else if dtype.is_int() {
        burn_backend::read_sync(B::int_into_data(B::int_tensor(tensor)))
    } else if let DType::QFloat(_) = dtype {
        burn_backend::read_sync(B::q_into_data(B::quantized_tensor(tensor)))
    } else {
        burn_backend::read_sync(B::bool_into_data(B::bool_tensor(tensor)))
    };
    data.ok()
}
