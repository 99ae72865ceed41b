//! How arguments and results of own ops are handed over: tensors by their handles, values as numbers.

use std::ops::Range;

use burn_backend::ops::{GridSampleOptions, GridSamplePaddingMode, InterpolateMode};
use burn_backend::{BoolDType, BoolStore, DType, FloatDType, IntDType, Scalar, Shape};

use super::backend::Backend;
use super::own::{Bool, Call, Float, Int, Kind, Made, Quantized, T, Taking};

macro_rules! tensors {
    ($($kind:ident: $inner:ident, $tensor:ident, $handle:ident;)*) => {$(
        impl<B: Backend> Kind<B> for $kind {
            type Outer = T<B>;
            type Inner = B::$inner;
            fn give(tensor: T<B>, call: &mut Call<B>) {
                call.tensor(tensor);
            }
            fn take(from: &mut Taking<'_, B>) -> Option<B::$inner> {
                from.tensor().map(B::$tensor)
            }
        }

        impl<B: Backend> Made<B> for $kind {
            type Outer = T<B>;
            type Inner = B::$inner;
            fn outer(made: &mut impl Iterator<Item = T<B>>) -> T<B> {
                made.next().expect("as many tensors as shapes")
            }
            fn put(made: B::$inner, to: &mut Vec<B::Handle>) {
                to.push(B::$handle(made));
            }
        }
    )*};
}

tensors! {
    Float: FloatTensorPrimitive, float_tensor, float_tensor_handle;
    Int: IntTensorPrimitive, int_tensor, int_tensor_handle;
    Bool: BoolTensorPrimitive, bool_tensor, bool_tensor_handle;
    Quantized: QuantizedTensorPrimitive, quantized_tensor, quantized_tensor_handle;
}

impl<B: Backend, One: Made<B>, Other: Made<B>> Made<B> for (One, Other) {
    type Outer = (One::Outer, Other::Outer);
    type Inner = (One::Inner, Other::Inner);
    fn outer(made: &mut impl Iterator<Item = T<B>>) -> Self::Outer {
        (One::outer(made), Other::outer(made))
    }
    fn put((one, other): Self::Inner, to: &mut Vec<B::Handle>) {
        One::put(one, to);
        Other::put(other, to);
    }
}

impl<B: Backend, K: Kind<B>> Kind<B> for Option<K> {
    type Outer = Option<K::Outer>;
    type Inner = Option<K::Inner>;
    fn give(value: Self::Outer, call: &mut Call<B>) {
        call.number(u64::from(value.is_some()));
        if let Some(value) = value {
            K::give(value, call);
        }
    }
    fn take(from: &mut Taking<'_, B>) -> Option<Self::Inner> {
        if from.number()? == 0 { Some(None) } else { K::take(from).map(Some) }
    }
}

/// Values that are written down: how, and how they are read.
macro_rules! values {
    ($($ty:ty: |$value:ident, $call:ident| $give:expr, |$from:ident| $take:expr;)*) => {$(
        impl<B: Backend> Kind<B> for $ty {
            type Outer = $ty;
            type Inner = $ty;
            fn give($value: $ty, $call: &mut Call<B>) {
                $give;
            }
            fn take($from: &mut Taking<'_, B>) -> Option<$ty> {
                $take
            }
        }
    )*};
}

/// The place of `value` in `list`.
fn place<V: PartialEq>(list: &[V], value: &V) -> u64 {
    list.iter().position(|one| one == value).map_or(u64::MAX, |at| at as u64)
}

fn at<V: Copy>(list: &[V], place: u64) -> Option<V> {
    list.get(usize::try_from(place).ok()?).copied()
}

const INTS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];
const FLOATS: [DType; 5] = [DType::F64, DType::F32, DType::Flex32, DType::F16, DType::BF16];
const BOOLS: [DType; 3] =
    [DType::Bool(BoolStore::Native), DType::Bool(BoolStore::U8), DType::Bool(BoolStore::U32)];
const PADDINGS: [GridSamplePaddingMode; 3] =
    [GridSamplePaddingMode::Zeros, GridSamplePaddingMode::Border, GridSamplePaddingMode::Reflection];

values! {
    usize: |value, call| { call.number(value as u64); call.given.numbers.push(value) },
        |from| from.number()?.try_into().ok();
    bool: |value, call| call.number(value.into()), |from| Some(from.number()? != 0);
    f64: |value, call| call.number(value.to_bits()), |from| Some(f64::from_bits(from.number()?));
    Scalar: |value, call| {
        let (kind, bits) = match value {
            Scalar::Float(value) => (0, value.to_bits()),
            Scalar::Int(value) => (1, value.cast_unsigned()),
            Scalar::UInt(value) => (2, value),
            Scalar::Bool(value) => (3, value.into()),
        };
        call.number(kind);
        call.number(bits)
    }, |from| {
        let (kind, bits) = (from.number()?, from.number()?);
        Some(match kind {
            0 => Scalar::Float(f64::from_bits(bits)),
            1 => Scalar::Int(bits.cast_signed()),
            2 => Scalar::UInt(bits),
            _ => Scalar::Bool(bits != 0),
        })
    };
    IntDType: |value, call| { call.given.dtype = Some(value.into()); call.number(place(&INTS, &value.into())) },
        |from| at(&INTS, from.number()?).map(IntDType::from);
    FloatDType: |value, call| { call.given.dtype = Some(value.into()); call.number(place(&FLOATS, &value.into())) },
        |from| at(&FLOATS, from.number()?).map(FloatDType::from);
    BoolDType: |value, call| { call.given.dtype = Some(value.into()); call.number(place(&BOOLS, &value.into())) },
        |from| at(&BOOLS, from.number()?).map(BoolDType::from);
    Shape: |value, call| {
        call.number(value.num_dims() as u64);
        value.iter().for_each(|&size| call.number(size as u64));
        call.given.shape = Some(value)
    }, |from| {
        let rank = from.number()?;
        let sizes = (0..rank).map(|_| from.number()?.try_into().ok());
        sizes.collect::<Option<Vec<usize>>>().map(Shape::from)
    };
    Range<i64>: |value, call| {
        call.number(value.start.cast_unsigned());
        call.number(value.end.cast_unsigned());
        call.given.range = Some(value)
    }, |from| Some(from.number()?.cast_signed()..from.number()?.cast_signed());
    GridSampleOptions: |value, call| {
        call.number(match value.mode {
            InterpolateMode::Nearest => 0,
            InterpolateMode::Bilinear => 1,
            InterpolateMode::Bicubic => 2,
            InterpolateMode::Lanczos3 => 3,
        });
        call.number(place(&PADDINGS, &value.padding_mode));
        call.number(value.align_corners.into())
    }, |from| {
        let mode = match from.number()? {
            0 => InterpolateMode::Nearest,
            1 => InterpolateMode::Bilinear,
            2 => InterpolateMode::Bicubic,
            _ => InterpolateMode::Lanczos3,
        };
        let padding_mode = at(&PADDINGS, from.number()?)?;
        Some(GridSampleOptions { mode, padding_mode, align_corners: from.number()? != 0 })
    };
}
