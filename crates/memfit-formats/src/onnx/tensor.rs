//! What is known of a tensor before the model runs: element type, shape, and small contents.

use std::rc::Rc;

use super::elem::{Class, Elem};
use super::proto;

/// Contents of at most this many elements are followed through the graph. Shapes are far shorter; position
/// tables and masks of a sequence may be as long.
pub(super) const MAX_KNOWN: u64 = 4096;

/// The most dimensions of a tensor.
pub(super) const MAX_RANK: usize = 64;

/// Where in `TensorProto.data_location` the contents are in another file.
const EXTERNAL: i32 = 1;

/// Why a node, an input or an initializer was refused; whoever knows its name adds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// Whether a declared shape would help, as the shape depends on data.
    pub(super) run_time: bool,
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), hint: None, run_time: false }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Trouble {
        Trouble { hint: Some(hint.into()), ..self }
    }
}

/// Leaves the function with a [`Trouble`].
macro_rules! refuse {
    ($($message:tt)*) => { return Err($crate::onnx::tensor::Trouble::new(format!($($message)*))) };
}
pub(super) use refuse;

/// Contents, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    /// Integers and truth values.
    Ints(Rc<[i64]>),
    /// Floating-point numbers.
    Floats(Rc<[f64]>),
}

impl Known {
    pub(super) fn len(&self) -> usize {
        match self {
            Known::Ints(all) => all.len(),
            Known::Floats(all) => all.len(),
        }
    }

    /// The elements at `indices`; `None` if one lies outside.
    pub(super) fn pick(&self, indices: &[usize]) -> Option<Known> {
        match self {
            Known::Ints(all) => {
                indices.iter().map(|&at| all.get(at).copied()).collect::<Option<_>>().map(Known::Ints)
            }
            Known::Floats(all) => {
                indices.iter().map(|&at| all.get(at).copied()).collect::<Option<_>>().map(Known::Floats)
            }
        }
    }
}

/// A tensor as shape inference sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) elem: Elem,
    pub(super) shape: Vec<u64>,
    /// Its contents, where they are small and the same in every run.
    pub(super) known: Option<Known>,
    /// Whether the contents are the same in every run, known or not.
    pub(super) constant: bool,
    /// The storage it is a view of; `None` for what has been computed just now.
    pub(super) storage: Option<usize>,
}

impl Tensor {
    /// The result of a computation.
    pub(super) fn new(elem: Elem, shape: Vec<u64>) -> Tensor {
        Tensor { elem, shape, known: None, constant: false, storage: None }
    }

    /// A constant; `None` for contents that are too long to follow.
    pub(super) fn constant(elem: Elem, shape: Vec<u64>, known: Option<Known>) -> Tensor {
        Tensor { elem, shape, known, constant: true, storage: None }
    }

    /// A vector of `int64`, as shapes are.
    pub(super) fn vector(values: Vec<i64>) -> Tensor {
        Tensor::constant(Elem::INT64, vec![values.len() as u64], Some(Known::Ints(values.into())))
    }

    /// The same bytes under another shape of as many elements.
    pub(super) fn viewed(&self, shape: Vec<u64>) -> Tensor {
        Tensor { shape, ..self.clone() }
    }

    /// A tensor of the same element type that had to be computed.
    pub(super) fn like(&self, shape: Vec<u64>) -> Tensor {
        Tensor::new(self.elem, shape)
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    pub(super) fn count(&self) -> Result<u64, Trouble> {
        product(&self.shape)
    }

    /// Bytes it occupies.
    pub(super) fn bytes(&self) -> Result<u64, Trouble> {
        let bits = self.count()?.checked_mul(self.elem.bits());
        bits.map(|bits| bits.div_ceil(8)).ok_or_else(|| overflow(&self.shape))
    }

    /// Reads a tensor out of a file. Contents in another file stay unknown: it is never opened.
    pub(super) fn from_proto(proto: &proto::TensorProto) -> Result<Tensor, Trouble> {
        let Some(elem) = Elem::by_code(proto.data_type()) else {
            refuse!("`{}` is not an element type", proto.data_type());
        };
        let shape = dims(&proto.dims)?;
        let count = product(&shape)?;
        let mut known = None;
        if count <= MAX_KNOWN && proto.data_location() != EXTERNAL {
            known = contents(proto, elem);
            if let Some(known) = &known
                && known.len() as u64 != count
            {
                refuse!("its contents are `{}` elements, its dimensions say `{count}`", known.len());
            }
        }
        Ok(Tensor::constant(elem, shape, known))
    }
}

/// Contents of a small tensor, of a type in which shapes and factors are given.
fn contents(proto: &proto::TensorProto, elem: Elem) -> Option<Known> {
    fn ints<const N: usize>(raw: &[u8], read: impl Fn([u8; N]) -> Option<i64>) -> Option<Known> {
        let (chunks, rest) = raw.as_chunks::<N>();
        let all = chunks.iter().map(|&chunk| read(chunk)).collect::<Option<Rc<[i64]>>>()?;
        rest.is_empty().then_some(Known::Ints(all))
    }
    let floats = |all: Rc<[f64]>| Some(Known::Floats(all));
    if let Some(raw) = proto.raw_data.as_deref() {
        return match elem.name() {
            "int64" => ints(raw, |chunk| Some(i64::from_le_bytes(chunk))),
            "uint64" => ints(raw, |chunk| i64::try_from(u64::from_le_bytes(chunk)).ok()),
            "int32" => ints(raw, |chunk| Some(i32::from_le_bytes(chunk).into())),
            "uint32" => ints(raw, |chunk| Some(u32::from_le_bytes(chunk).into())),
            "int16" => ints(raw, |chunk| Some(i16::from_le_bytes(chunk).into())),
            "uint16" => ints(raw, |chunk| Some(u16::from_le_bytes(chunk).into())),
            "int8" => ints(raw, |chunk| Some(i8::from_le_bytes(chunk).into())),
            "uint8" | "bool" => ints(raw, |chunk: [u8; 1]| Some(chunk[0].into())),
            "float" => {
                floats(raw.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk).into()).collect())
            }
            "double" => floats(raw.as_chunks().0.iter().map(|&chunk| f64::from_le_bytes(chunk)).collect()),
            _ => None,
        };
    }
    let known = match elem.name() {
        "int64" => Known::Ints(proto.int64_data.as_slice().into()),
        "uint64" | "uint32" => {
            Known::Ints(proto.uint64_data.iter().map(|&all| i64::try_from(all).ok()).collect::<Option<_>>()?)
        }
        "int32" | "int16" | "uint16" | "int8" | "uint8" | "bool" => {
            Known::Ints(proto.int32_data.iter().map(|&all| all.into()).collect())
        }
        "float" => Known::Floats(proto.float_data.iter().map(|&all| all.into()).collect()),
        "double" => Known::Floats(proto.double_data.as_slice().into()),
        _ => return None,
    };
    // Nothing at all: dropped as too long, or stripped by whoever made the file.
    (known.len() > 0 || proto.dims.contains(&0)).then_some(known)
}

/// Dimensions as they stand in a file.
pub(super) fn dims(dims: &[i64]) -> Result<Vec<u64>, Trouble> {
    if dims.len() > MAX_RANK {
        refuse!("`{}` dimensions; more than {MAX_RANK} are not supported", dims.len());
    }
    lengths(dims)
}

/// Non-negative numbers, as many as there are.
pub(super) fn lengths(all: &[i64]) -> Result<Vec<u64>, Trouble> {
    let dim =
        |&dim: &i64| u64::try_from(dim).map_err(|_| Trouble::new(format!("dimension `{dim}` is negative")));
    all.iter().map(dim).collect()
}

/// Number of elements of `shape`.
pub(super) fn product(shape: &[u64]) -> Result<u64, Trouble> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).ok_or_else(|| overflow(shape))
}

fn overflow(shape: &[u64]) -> Trouble {
    Trouble::new(format!("the size of shape `{}` overflows 64 bits", show(shape)))
}

/// `2×16×768`, as people write shapes; `scalar` for rank 0.
pub(super) fn show(shape: &[u64]) -> String {
    if shape.is_empty() {
        return "scalar".to_owned();
    }
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("×")
}

/// The shape that two operands have together: aligned at the last dimension, a 1 or an absent one is repeated.
pub(super) fn broadcast(a: &[u64], b: &[u64]) -> Result<Vec<u64>, Trouble> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut shape = long.to_vec();
    for (dim, &other) in shape.iter_mut().rev().zip(short.iter().rev()) {
        *dim = match (*dim, other) {
            (same, other) if same == other => same,
            (1, other) => other,
            (dim, 1) => dim,
            _ => refuse!("shapes `{}` and `{}` do not broadcast", show(a), show(b)),
        };
    }
    Ok(shape)
}

/// An axis as ONNX counts it, from the end if negative, as an index below `rank`.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, Trouble> {
    let index = if axis < 0 {
        rank.checked_sub(usize::try_from(axis.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(axis).ok()
    };
    match index {
        Some(index) if index < rank => Ok(index),
        _ => refuse!("axis `{axis}` is outside of `{rank}` dimensions"),
    }
}

/// Whether a tensor of `elem` holds numbers that [`Known::Ints`] holds.
pub(super) fn is_int(elem: Elem) -> bool {
    matches!(elem.class(), Class::Int | Class::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_and_overflow_is_told() {
        assert_eq!(broadcast(&[2, 1, 4], &[3, 1]), Ok(vec![2, 3, 4]));
        assert_eq!(broadcast(&[], &[0]), Ok(vec![0]));
        assert_eq!(broadcast(&[2], &[3]).unwrap_err().message, "shapes `2` and `3` do not broadcast");
        assert_eq!(product(&[1 << 40, 0, 1 << 40]), Ok(0));
        assert_eq!(
            product(&[1 << 40, 1 << 40]).unwrap_err().message,
            "the size of shape `1099511627776×1099511627776` overflows 64 bits"
        );
        assert!(Tensor::new(Elem::FLOAT, vec![1 << 60]).bytes().is_err());
    }

    #[test]
    fn axes_count_from_both_ends() {
        assert_eq!((axis(-1, 3), axis(2, 3)), (Ok(2), Ok(2)));
        for wrong in [3, -4, i64::MIN, i64::MAX] {
            assert!(axis(wrong, 3).is_err());
        }
    }

    #[test]
    fn contents_come_from_either_place_and_must_fit() {
        let mut proto = proto::TensorProto { dims: vec![2], data_type: Some(7), ..Default::default() };
        assert_eq!(Tensor::from_proto(&proto).unwrap().known, None);
        proto.int64_data = vec![3, -1];
        assert_eq!(Tensor::from_proto(&proto).unwrap().known, Some(Known::Ints([3, -1].into())));
        proto.int64_data.clear();
        proto.raw_data = Some([3i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
        assert_eq!(Tensor::from_proto(&proto).unwrap().known, Some(Known::Ints([3, -1].into())));
        proto.dims = vec![3];
        assert_eq!(
            Tensor::from_proto(&proto).unwrap_err().message,
            "its contents are `2` elements, its dimensions say `3`"
        );
        proto.data_location = Some(EXTERNAL);
        assert_eq!(Tensor::from_proto(&proto).unwrap().known, None);
    }
}
