//! Element types by their ONNX code.

use memfit_ir::Dtype;

/// What a number of a type is, as far as folding and roles ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A floating-point or complex number.
    Float,
    /// A signed or unsigned integer.
    Int,
    /// A truth value.
    Bool,
    /// A string: it has no size that a planner could count.
    Text,
}

use Class::{Bool, Float, Int, Text};

/// `(ONNX code, name, dtype of the graph, bits, class)`. Types below 8 bits are packed, except the 6-bit floats,
/// which are counted as a byte each.
const ELEMS: [(i32, &str, Dtype, u64, Class); 28] = [
    (1, "float", Dtype::F32, 32, Float),
    (2, "uint8", Dtype::I8, 8, Int),
    (3, "int8", Dtype::I8, 8, Int),
    (4, "uint16", Dtype::I16, 16, Int),
    (5, "int16", Dtype::I16, 16, Int),
    (6, "int32", Dtype::I32, 32, Int),
    (7, "int64", Dtype::I64, 64, Int),
    (8, "string", Dtype::Other, 8, Text),
    (9, "bool", Dtype::Bool, 8, Bool),
    (10, "float16", Dtype::F16, 16, Float),
    (11, "double", Dtype::F64, 64, Float),
    (12, "uint32", Dtype::I32, 32, Int),
    (13, "uint64", Dtype::I64, 64, Int),
    (14, "complex64", Dtype::C64, 64, Float),
    (15, "complex128", Dtype::C128, 128, Float),
    (16, "bfloat16", Dtype::Bf16, 16, Float),
    (17, "float8e4m3fn", Dtype::F8, 8, Float),
    (18, "float8e4m3fnuz", Dtype::F8, 8, Float),
    (19, "float8e5m2", Dtype::F8, 8, Float),
    (20, "float8e5m2fnuz", Dtype::F8, 8, Float),
    (21, "uint4", Dtype::Other, 4, Int),
    (22, "int4", Dtype::Other, 4, Int),
    (23, "float4e2m1", Dtype::Other, 4, Float),
    (24, "float8e8m0", Dtype::F8, 8, Float),
    (25, "uint2", Dtype::Other, 2, Int),
    (26, "int2", Dtype::Other, 2, Int),
    (27, "float6e2m3", Dtype::Other, 8, Float),
    (28, "float6e3m2", Dtype::Other, 8, Float),
];

/// An element type; always one of the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elem(usize);

impl Elem {
    pub(super) const FLOAT: Elem = Elem(0);
    pub(super) const UINT8: Elem = Elem(1);
    pub(super) const INT32: Elem = Elem(5);
    pub(super) const INT64: Elem = Elem(6);
    pub(super) const BOOL: Elem = Elem(8);

    /// The type with ONNX's number `code`.
    pub(super) fn by_code(code: i32) -> Option<Elem> {
        ELEMS.iter().position(|row| row.0 == code).map(Elem)
    }

    pub(super) fn code(self) -> i32 {
        ELEMS[self.0].0
    }

    pub(super) fn name(self) -> &'static str {
        ELEMS[self.0].1
    }

    pub(super) fn dtype(self) -> Dtype {
        ELEMS[self.0].2
    }

    pub(super) fn bits(self) -> u64 {
        ELEMS[self.0].3
    }

    pub(super) fn class(self) -> Class {
        ELEMS[self.0].4
    }

    pub(super) fn is_float(self) -> bool {
        self.class() == Float
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_in_their_order() {
        for (at, row) in ELEMS.iter().enumerate() {
            assert_eq!(usize::try_from(row.0).unwrap(), at + 1, "{}", row.1);
            assert!(row.3 < 8 || row.3 == 8 * row.2.bytes(), "{}", row.1);
        }
        assert_eq!((Elem::INT64.name(), Elem::BOOL.name(), Elem::INT32.name()), ("int64", "bool", "int32"));
        assert_eq!(Elem::by_code(0), None);
    }
}
