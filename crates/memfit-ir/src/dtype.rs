//! What the elements of a tensor are.

/// The element type of a tensor, as far as cost and size need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE double.
    F64,
    /// IEEE single.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Any 8-bit float.
    F8,
    /// Signed or unsigned 64-bit integer.
    I64,
    /// Signed or unsigned 32-bit integer.
    I32,
    /// Signed or unsigned 16-bit integer.
    I16,
    /// Signed or unsigned 8-bit integer.
    I8,
    /// One byte for each truth value.
    Bool,
    /// Two singles.
    C64,
    /// Two doubles.
    C128,
    /// Anything else, counted in single bytes (packed quantised data, strings, opaque state).
    Other,
}

impl Dtype {
    /// Every dtype with its name in files.
    pub const ALL: [(Dtype, &str); 13] = [
        (Dtype::F64, "f64"),
        (Dtype::F32, "f32"),
        (Dtype::F16, "f16"),
        (Dtype::Bf16, "bf16"),
        (Dtype::F8, "f8"),
        (Dtype::I64, "i64"),
        (Dtype::I32, "i32"),
        (Dtype::I16, "i16"),
        (Dtype::I8, "i8"),
        (Dtype::Bool, "bool"),
        (Dtype::C64, "c64"),
        (Dtype::C128, "c128"),
        (Dtype::Other, "other"),
    ];

    /// Name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Dtype::ALL.iter().find(|(dtype, _)| *dtype == self).map_or("other", |(_, name)| name)
    }

    /// The dtype called `name` in files.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
    }

    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::C128 => 16,
            Dtype::F64 | Dtype::I64 | Dtype::C64 => 8,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::Bf16 | Dtype::I16 => 2,
            Dtype::F8 | Dtype::I8 | Dtype::Bool | Dtype::Other => 1,
        }
    }
}
