//! Quantised tensors: how many bytes they have, which ops make views of them, and how what is lent to such ops is written down.
//!
//! Burn's router knows none of them, so each op on them is one of ours ([`super::own`]), and their handles are kept beside the runner.

use std::borrow::Borrow;

use burn_backend::quantization::{
    QuantLevel, QuantScheme, QuantStore, QuantizationParametersPrimitive as Parameters,
};
use burn_backend::{DType, Slice};
use burn_ir::CustomOpIr;
use memfit::engine::Fault;

use super::backend::Backend;
use super::decorator::Memfit;
use super::own::{Call, Kind, Taking, method};

/// How data of this type is kept: the scheme of quantised ones is the backend's.
pub(super) fn kept<B: Backend>(dtype: DType) -> Result<DType, Fault> {
    let refused = || Fault::BadCall("quantized tensors are not supported on this backend".to_owned());
    match dtype {
        DType::QFloat(scheme) => B::quantizes(scheme).map(DType::QFloat).ok_or_else(refused),
        dtype => Ok(dtype),
    }
}

/// Bytes of `elements` that are quantised by `scheme`, with a scale of four bytes for each block.
pub(super) fn bytes(elements: u64, scheme: &QuantScheme) -> u64 {
    let values = match scheme.store {
        // Smaller ones are not packed.
        QuantStore::Native => elements,
        QuantStore::PackedU32(_) => packed(elements, scheme).div_ceil(4).saturating_mul(4),
        QuantStore::PackedNative(_) => packed(elements, scheme),
    };
    let scales = match scheme.level {
        QuantLevel::Tensor => 1,
        QuantLevel::Block(block) => elements.div_ceil((block.num_elements() as u64).max(1)),
    };
    values.saturating_add(scales.saturating_mul(size_of::<f32>() as u64))
}

fn packed(elements: u64, scheme: &QuantScheme) -> u64 {
    elements.saturating_mul(scheme.size_bits_value() as u64).div_ceil(8)
}

/// Whether `op` shows what its input holds, which has one scale and is `contiguous` or not, where slices, axes and broadcasts are views.
pub(super) fn is_view(op: &CustomOpIr, contiguous: bool) -> bool {
    let Some(DType::QFloat(scheme)) = op.inputs.first().map(|input| input.dtype) else { return false };
    // Else it is quantised anew.
    scheme.level == QuantLevel::Tensor
        && match method(op) {
            "q_reshape" => contiguous,
            "q_swap_dims" | "q_permute" | "q_flip" | "q_expand" => true,
            "q_slice" => {
                let mut numbers = op.id.split(' ').skip(1).map_while(|number| number.parse().ok());
                slices(&mut || numbers.next()).is_some_and(|slices| slices.iter().all(|slice| slice.step > 0))
            }
            _ => false,
        }
}

/// An argument that is lent to a method.
pub(super) trait Lent<B: Backend> {
    type Owned: Borrow<Self>;
    /// Writes it down.
    fn give(&self, call: &mut Call<B>);
    /// Reads it again; `None` if that is not what was written.
    fn take(from: &mut Taking<'_, B>) -> Option<Self::Owned>;
}

/// The scheme to quantise by, byte by byte. What is made has the type that the backend makes of it.
impl<B: Backend> Lent<B> for QuantScheme {
    type Owned = QuantScheme;

    fn give(&self, call: &mut Call<B>) {
        let dtype = kept::<B>(DType::QFloat(*self)).unwrap_or_else(|fault| panic!("memfit: {fault}"));
        call.given.dtype = Some(dtype);
        let bytes = bincode::serde::encode_to_vec(self, bincode::config::standard());
        let bytes = bytes.unwrap_or_else(|error| panic!("memfit: can't write `{self:?}` down: {error}"));
        call.number(bytes.len() as u64);
        bytes.into_iter().for_each(|byte| call.number(byte.into()));
    }

    fn take(from: &mut Taking<'_, B>) -> Option<QuantScheme> {
        let bytes =
            (0..from.number()?).map(|_| from.number()?.try_into().ok()).collect::<Option<Vec<u8>>>()?;
        Some(bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).ok()?.0)
    }
}

/// Axes.
impl<B: Backend> Lent<B> for [usize] {
    type Owned = Vec<usize>;

    fn give(&self, call: &mut Call<B>) {
        call.number(self.len() as u64);
        self.iter().for_each(|&axis| call.number(axis as u64));
        call.given.numbers.extend_from_slice(self);
    }

    fn take(from: &mut Taking<'_, B>) -> Option<Vec<usize>> {
        (0..from.number()?).map(|_| from.number()?.try_into().ok()).collect()
    }
}

/// How many, and of each where it starts, whether it has an end, the end, and the step.
impl<B: Backend> Lent<B> for [Slice] {
    type Owned = Vec<Slice>;

    fn give(&self, call: &mut Call<B>) {
        call.number(self.len() as u64);
        for slice in self {
            call.number((slice.start as i64).cast_unsigned());
            call.number(slice.end.is_some().into());
            call.number((slice.end.unwrap_or(0) as i64).cast_unsigned());
            call.number((slice.step as i64).cast_unsigned());
        }
        call.given.slices = self.to_vec();
    }

    fn take(from: &mut Taking<'_, B>) -> Option<Vec<Slice>> {
        slices(&mut || from.number())
    }
}

fn slices(next: &mut dyn FnMut() -> Option<u64>) -> Option<Vec<Slice>> {
    let signed = |number: u64| isize::try_from(number.cast_signed()).ok();
    let count = next()?;
    (0..count)
        .map(|_| {
            let (start, has_end) = (signed(next()?)?, next()? != 0);
            let (end, step) = (signed(next()?)?, signed(next()?)?);
            Some(Slice { start, end: has_end.then_some(end), step })
        })
        .collect()
}

/// The scales to quantise by.
pub enum Scales {}

impl<B: Backend> Kind<B> for Scales {
    type Outer = Parameters<Memfit<B>>;
    type Inner = Parameters<B>;

    fn give(value: Parameters<Memfit<B>>, call: &mut Call<B>) {
        call.tensor(value.scales);
    }

    fn take(from: &mut Taking<'_, B>) -> Option<Parameters<B>> {
        Some(Parameters { scales: B::float_tensor(from.tensor()?) })
    }
}
