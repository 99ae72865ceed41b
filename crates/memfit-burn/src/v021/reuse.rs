//! Which of Flex's kernels write their output over their first operand where nobody else has its bytes.
//!
//! By reading burn-flex 0.21 with its feature `simd`: `ops/{unary,binary,float,int,activation}.rs`. All want an operand that is
//! contiguous from the start of its buffer. `powi_scalar` and `powf_scalar` are not among them: squares read their operand twice. Nor
//! are ops on truth values, which may take the second operand as well.

use burn_backend::DType;
use burn_ir::{BinaryOpIr, FloatOperationIr, NumericOperationIr, OperationIr, TensorIr};

use super::own::method;

/// Methods of ours with one operand, and with two of one shape.
const UNARY: [&str; 13] = [
    "relu",
    "gelu",
    "leaky_relu",
    "sigmoid",
    "hard_sigmoid",
    "log_sigmoid",
    "float_neg",
    "float_sign",
    "float_clamp_min",
    "float_clamp_max",
    "int_neg",
    "int_clamp_min",
    "int_clamp_max",
];
const BINARY: [&str; 4] = ["relu_backward", "gelu_backward", "sigmoid_backward", "log_sigmoid_backward"];

/// How many operands an element of the output is made from.
enum Reads<'a> {
    One,
    Two(&'a TensorIr, Fast),
}

/// Whether there is a kernel for a second operand of f32 that is repeated.
#[derive(PartialEq)]
enum Fast {
    Yes,
    No,
}

/// Whether `op` does so. `first`, `second`: whether these operands are contiguous from the start of their buffers.
pub(super) fn overwrites(op: &OperationIr, first: bool, second: Option<bool>) -> bool {
    let (Some(input), Some(output)) = (op.inputs().next(), op.outputs().next()) else { return false };
    if !first || input.shape != output.shape || input.dtype != output.dtype {
        return false;
    }
    match reads(op) {
        None => false,
        Some(Reads::One) => true,
        Some(Reads::Two(other, fast)) => {
            let repeats = || fast == Fast::Yes && input.dtype == DType::F32 && is_repeated(input, other);
            second == Some(true) && (other.shape == input.shape || repeats())
        }
    }
}

/// What `op` reads, if it is one of these.
fn reads(op: &OperationIr) -> Option<Reads<'_>> {
    match op {
        OperationIr::NumericFloat(_, op) | OperationIr::NumericInt(_, op) => numeric(op),
        OperationIr::Float(_, op) => {
            use FloatOperationIr as F;
            match op {
                F::Exp(_) | F::Log(_) | F::Log1p(_) | F::Erf(_) | F::Sqrt(_) | F::Recip(_) => {
                    Some(Reads::One)
                }
                F::Sin(_) | F::Sinh(_) | F::Cos(_) | F::Cosh(_) | F::Tan(_) | F::Tanh(_) => Some(Reads::One),
                F::ArcSin(_) | F::ArcSinh(_) | F::ArcCos(_) | F::ArcCosh(_) => Some(Reads::One),
                F::ArcTan(_) | F::ArcTanh(_) => Some(Reads::One),
                F::Round(_) | F::Floor(_) | F::Ceil(_) | F::Trunc(_) => Some(Reads::One),
                F::Powf(BinaryOpIr { rhs, .. }) | F::ArcTan2(BinaryOpIr { rhs, .. }) => {
                    Some(Reads::Two(rhs, Fast::No))
                }
                _ => None,
            }
        }
        OperationIr::Custom(op) if UNARY.contains(&method(op)) => Some(Reads::One),
        OperationIr::Custom(op) if BINARY.contains(&method(op)) => {
            op.inputs.get(1).map(|other| Reads::Two(other, Fast::No))
        }
        _ => None,
    }
}

fn numeric(op: &NumericOperationIr) -> Option<Reads<'_>> {
    use NumericOperationIr as N;
    match op {
        N::AddScalar(_) | N::SubScalar(_) | N::MulScalar(_) | N::DivScalar(_) | N::RemScalar(_) => {
            Some(Reads::One)
        }
        N::Abs(_) | N::Clamp(_) => Some(Reads::One),
        N::Add(op) | N::Sub(op) | N::Mul(op) | N::Div(op) => Some(Reads::Two(&op.rhs, Fast::Yes)),
        N::Rem(op) => Some(Reads::Two(&op.rhs, Fast::No)),
        _ => None,
    }
}

/// Whether `other`, which is contiguous, is a row that is repeated for all others of `input`, or has an element for each of its rows:
/// `detect_broadcast_pattern`.
fn is_repeated(input: &TensorIr, other: &TensorIr) -> bool {
    let (sizes, others) = (input.shape.as_slice(), other.shape.as_slice());
    if sizes.len() != others.len() || sizes.contains(&0) {
        return false;
    }
    // As many last dimensions are repeated, or one row is.
    let row = others.iter().take(others.len().saturating_sub(1)).all(|&size| size == 1);
    let inner = sizes.iter().zip(others).rev().take_while(|(size, other)| **size > 1 && **other == 1).count();
    let outer = sizes.len() - inner;
    (row && sizes.last() == others.last()) || (inner > 0 && sizes[..outer] == others[..outer])
}
