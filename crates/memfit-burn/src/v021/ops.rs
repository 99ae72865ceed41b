//! What memfit has to know of Burn's ops: names, effects, and which may overwrite an input.

use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use burn_backend::DType;
use burn_ir::{
    BaseOperationIr, ModuleOperationIr, NumericOperationIr, OperationIr, ScalarIr, TensorIr, TensorStatus,
};
use memfit::engine::Fault;
use memfit::ir::{Dtype, Effect, Need};
use rustc_hash::FxHasher;

use super::backend::base;
use super::draws::random;
use super::own::{self, method};
use super::quantized;

/// Bytes of `tensor`.
pub(crate) fn bytes(tensor: &TensorIr) -> u64 {
    let elements = tensor.shape.num_elements() as u64;
    match &tensor.dtype {
        DType::QFloat(scheme) => quantized::bytes(elements, scheme),
        dtype => elements.saturating_mul(dtype.size() as u64),
    }
}

/// `tensor`, to be read only.
pub(crate) fn read_only(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::ReadOnly, ..tensor.clone() }
}

/// What running `op` does besides.
pub(crate) fn effect(op: &OperationIr) -> Effect {
    match op {
        OperationIr::Init(_) | OperationIr::Drop(_) => Effect::Once,
        _ if random(op).is_some() => Effect::Seeded,
        _ => Effect::Pure,
    }
}

/// Whether `op` fills a tensor from nothing, and not with a mask. Parameters begin like this.
pub(crate) fn is_creation(op: &OperationIr) -> bool {
    if let Some(random) = random(op) {
        return !matches!(random.distribution, burn_backend::Distribution::Bernoulli(_));
    }
    matches!(base(op), Some(BaseOperationIr::Zeros(_) | BaseOperationIr::Ones(_) | BaseOperationIr::Empty(_)))
        || matches!(numeric(op), Some(NumericOperationIr::Full(_)))
}

fn numeric(op: &OperationIr) -> Option<&NumericOperationIr> {
    match op {
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => Some(numeric),
        _ => None,
    }
}

/// What `op` needs of each of its operands; nothing where that is everything. A ReLU lets through backward what was above zero, be it
/// in an op of ours or as Burn takes it apart, into comparisons; a pool knows by position what it has taken. Backends may do so in
/// ways of their own, but those that memfit runs were looked at.
pub(crate) fn needs(op: &OperationIr, needs: &mut Vec<Need>) {
    use NumericOperationIr as N;
    needs.clear();
    let (of, need) = match op {
        OperationIr::NumericFloat(_, N::LowerEqualElem(op) | N::GreaterElem(op)) if is_zero(op.rhs) => {
            (op.lhs.id, Need::Sign)
        }
        OperationIr::Module(ModuleOperationIr::MaxPool2dWithIndicesBackward(op)) => (op.x.id, Need::Shape),
        OperationIr::Custom(op) if method(op) == "relu_backward" => match op.inputs.first() {
            Some(output) => (output.id, Need::Sign),
            None => return,
        },
        _ => return,
    };
    // What else it reads of the same tensor may be more.
    let is_alone = op.inputs().filter(|input| input.id == of).count() == 1;
    let need = |input: &TensorIr| if input.id == of && is_alone { need } else { Need::Value };
    needs.extend(op.inputs().map(need));
}

fn is_zero(scalar: ScalarIr) -> bool {
    match scalar {
        ScalarIr::Float(value) => value == 0.0,
        ScalarIr::Int(value) => value == 0,
        ScalarIr::UInt(value) => value == 0,
        ScalarIr::Bool(_) => false,
    }
}

/// What the elements of a tensor are.
pub(crate) fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 | DType::Flex32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::Bf16,
        DType::I64 | DType::U64 => Dtype::I64,
        DType::I32 | DType::U32 => Dtype::I32,
        DType::I16 | DType::U16 => Dtype::I16,
        DType::I8 | DType::U8 => Dtype::I8,
        DType::Bool(_) | DType::QFloat(_) => Dtype::Other,
    }
}

/// Whether `op` may overwrite its first operand with its output, element by element.
pub(crate) fn overwrites(op: &OperationIr) -> bool {
    use NumericOperationIr as N;
    let (input, output) = match numeric(op) {
        Some(N::Add(op) | N::Sub(op) | N::Mul(op) | N::Div(op)) => (&op.lhs, &op.out),
        Some(N::AddScalar(op) | N::SubScalar(op) | N::MulScalar(op) | N::DivScalar(op)) => (&op.lhs, &op.out),
        _ => return false,
    };
    input.shape == output.shape && input.dtype == output.dtype
}

/// Whether `op` is how optimizers write a parameter: a difference or a sum, or its decay. The backward passes of
/// Burn's ops never do so with a tensor that they were kept.
pub(crate) fn is_update(op: &OperationIr) -> bool {
    use NumericOperationIr as N;
    let numeric = numeric(op);
    matches!(numeric, Some(N::Add(_) | N::Sub(_) | N::AddScalar(_) | N::SubScalar(_) | N::MulScalar(_)))
}

/// A number for the [`name`] of `op`: equal for two ops exactly if their names are.
pub(crate) fn code(op: &OperationIr) -> u64 {
    /// Numbers of variants, one after the other: there are fewer than 2¹⁶ to an enum.
    struct Digits(u64);
    impl Hasher for Digits {
        fn write(&mut self, bytes: &[u8]) {
            let low = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte));
            self.0 = (self.0 << 16) | (low(bytes) & 0xFFFF);
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut digits = Digits(0);
    discriminant(op).hash(&mut digits);
    match op {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => {
            discriminant(op).hash(&mut digits);
        }
        OperationIr::NumericFloat(_, op) | OperationIr::NumericInt(_, op) => {
            discriminant(op).hash(&mut digits);
        }
        OperationIr::Bool(op) => discriminant(op).hash(&mut digits),
        OperationIr::Int(op) => discriminant(op).hash(&mut digits),
        OperationIr::Float(_, op) => discriminant(op).hash(&mut digits),
        OperationIr::Module(op) => discriminant(op).hash(&mut digits),
        _ => {}
    }
    if let OperationIr::Custom(op) = op {
        // Other digits than those of a variant, which are few.
        let mut hasher = FxHasher::default();
        own::method(op).hash(&mut hasher);
        return hasher.finish() | 1 << 63;
    }
    digits.finish()
}

/// `fault` of `op`, of a `kind`, which says what it makes where there is no room for that.
pub(super) fn with_shapes(mut fault: Fault, kind: &str, op: Option<&OperationIr>) -> Fault {
    if let (Fault::NoRoom(no_room), Some(op)) = (&mut fault, op)
        && no_room.op == kind
    {
        let shape = |made: &TensorIr| format!("{:?}{:?}", made.dtype, made.shape.as_slice()).to_lowercase();
        let made: Vec<String> = op.outputs().map(shape).collect();
        if !made.is_empty() {
            no_room.op = format!("{kind} -> {}", made.join(", "));
        }
    }
    fault
}

/// The name of `op`, as in `Module.Conv2d`.
pub(crate) fn name(op: &OperationIr) -> String {
    /// Ends the writing where the fields of the op begin.
    struct Head<'a> {
        text: &'a mut String,
        open: u32,
    }
    impl Write for Head<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for c in text.chars() {
                match c {
                    '(' if self.open == 0 => {
                        self.open = 1;
                        self.text.push('.');
                    }
                    '(' | '{' => return Err(std::fmt::Error),
                    // The type of the elements stands before the op.
                    ',' => self.text.truncate(self.text.find('.').map_or(0, |at| at + 1)),
                    ' ' | '\n' => {}
                    c => self.text.push(c),
                }
            }
            Ok(())
        }
    }
    if let OperationIr::Custom(op) = op {
        return format!("Backend.{}", own::method(op));
    }
    let mut text = String::new();
    // That writing ends early is meant.
    let _ended = write!(Head { text: &mut text, open: 0 }, "{op:?}");
    text
}

#[cfg(test)]
mod tests {
    use burn_backend::DType;
    use burn_ir::{FloatOperationIr, ReduceOpIr, TensorId, UnaryOpIr};

    use super::*;

    #[test]
    fn codes_are_as_distinct_as_names() {
        let tensor = || TensorIr {
            id: TensorId::new(1),
            shape: [2].into(),
            status: TensorStatus::ReadOnly,
            dtype: DType::F32,
        };
        let unary = || UnaryOpIr { input: tensor(), out: tensor() };
        let reduce = || ReduceOpIr { input: tensor(), out: tensor() };
        let ops = [
            OperationIr::Float(DType::F32, FloatOperationIr::Exp(unary())),
            OperationIr::Float(DType::F64, FloatOperationIr::Exp(unary())),
            OperationIr::Float(DType::F32, FloatOperationIr::Log(unary())),
            OperationIr::NumericFloat(DType::F32, NumericOperationIr::Abs(unary())),
            OperationIr::NumericInt(DType::I32, NumericOperationIr::Abs(unary())),
            OperationIr::NumericFloat(DType::F32, NumericOperationIr::Sum(reduce())),
            OperationIr::Drop(tensor()),
        ];
        assert_eq!(name(&ops[0]), "Float.Exp");
        for one in &ops {
            for other in &ops {
                assert_eq!(code(one) == code(other), name(one) == name(other), "{one:?} and {other:?}");
            }
        }
    }
}
