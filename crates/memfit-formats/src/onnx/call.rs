//! A node in front of its operator: operands, attributes, and the errors of asking for them.

use super::proto::{AttributeProto, NodeProto};
use super::tensor::{Known, Tensor, Trouble, axis, refuse};

/// Outputs in the node's order; fewer than the node has is an error of the node, more are ignored.
pub(super) type Answer = Result<Vec<Tensor>, Trouble>;

/// One use of an operator.
pub(super) struct Call<'a> {
    /// The node.
    pub(super) node: &'a NodeProto,
    /// Operands; `None` where an optional one is left out.
    pub(super) inputs: Vec<Option<Tensor>>,
    /// Attributes by name, those of a function's call put in place.
    pub(super) attributes: Vec<(&'a str, &'a AttributeProto)>,
    /// Version of the operator set the node is written for.
    pub(super) opset: i64,
}

/// ONNX's `AttributeType`s by number.
const TYPES: [&str; 15] = [
    "untyped",
    "float",
    "int",
    "string",
    "tensor",
    "graph",
    "floats",
    "ints",
    "strings",
    "tensors",
    "graphs",
    "sparse tensor",
    "sparse tensors",
    "type",
    "types",
];

impl Call<'_> {
    /// Operand `at`.
    pub(super) fn input(&self, at: usize) -> Result<&Tensor, Trouble> {
        self.optional(at).ok_or_else(|| Trouble::new(format!("operand {at} is missing")))
    }

    /// Operand `at`, if it's there.
    pub(super) fn optional(&self, at: usize) -> Option<&Tensor> {
        self.inputs.get(at).and_then(Option::as_ref)
    }

    /// Operand `at`, which must have `rank` dimensions.
    pub(super) fn ranked(
        &self,
        at: usize,
        rank: std::ops::RangeInclusive<usize>,
    ) -> Result<&Tensor, Trouble> {
        let tensor = self.input(at)?;
        if !rank.contains(&tensor.rank()) {
            let (low, high) = (rank.start(), rank.end());
            let needed = match (low, high) {
                (low, high) if low == high => format!("`{low}`"),
                (low, &usize::MAX) => format!("at least `{low}`"),
                (low, high) => format!("`{low}` to `{high}`"),
            };
            refuse!("operand {at} has `{}` dimensions, {needed} are needed", tensor.rank());
        }
        Ok(tensor)
    }

    /// The name of operand `at` in the file.
    pub(super) fn name(&self, at: usize) -> &str {
        self.node.input.get(at).map_or("", String::as_str)
    }

    /// The contents of operand `at`, which its operator needs to know a shape.
    pub(super) fn known(&self, at: usize) -> Result<&Known, Trouble> {
        let tensor = self.input(at)?;
        tensor.known.as_ref().ok_or_else(|| {
            let name = self.name(at);
            if tensor.constant {
                return Trouble::new(format!(
                    "its shape depends on the contents of `{name}`, which are not in this file or too long"
                ))
                .hint("keep small tensors inside the model file: data in other files is never opened");
            }
            run_time(format!("its shape depends on the contents of `{name}`, which only a run can tell"))
        })
    }

    /// The integers in operand `at`.
    pub(super) fn known_ints(&self, at: usize) -> Result<&[i64], Trouble> {
        match self.known(at)? {
            Known::Ints(ints) => Ok(ints),
            Known::Floats(_) => refuse!("operand {at} must hold integers"),
        }
    }

    /// The integers in operand `at`, if it's there.
    pub(super) fn optional_ints(&self, at: usize) -> Result<Option<&[i64]>, Trouble> {
        self.optional(at).map(|_| self.known_ints(at)).transpose()
    }

    /// The one integer in operand `at`.
    pub(super) fn known_int(&self, at: usize) -> Result<i64, Trouble> {
        match self.known_ints(at)? {
            &[one] => Ok(one),
            many => refuse!("operand {at} must be one integer, it is `{}`", many.len()),
        }
    }

    /// What attribute `name` is, if the node has it; `kind` is the number of its type.
    fn attribute(&self, name: &str, kind: usize) -> Result<Option<&AttributeProto>, Trouble> {
        let Some(&(_, found)) = self.attributes.iter().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let is = usize::try_from(found.r#type()).unwrap_or(usize::MAX);
        if is != kind && is != 0 {
            let is = TYPES.get(is).copied().unwrap_or("unknown type");
            refuse!("attribute `{name}` has type `{is}`, `{}` is needed", TYPES[kind]);
        }
        Ok(Some(found))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(known, _)| *known == name)
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, Trouble> {
        Ok(self.attribute(name, 2)?.map_or(default, AttributeProto::i))
    }

    /// A flag, written as 0 or 1.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Trouble> {
        Ok(self.int(name, default.into())? != 0)
    }

    /// A count that must not be negative.
    pub(super) fn count(&self, name: &str, default: u64) -> Result<u64, Trouble> {
        let Some(found) = self.attribute(name, 2)? else { return Ok(default) };
        u64::try_from(found.i())
            .map_err(|_| Trouble::new(format!("attribute `{name}` is negative: `{}`", found.i())))
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<&[i64]>, Trouble> {
        Ok(self.attribute(name, 7)?.map(|found| found.ints.as_slice()))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<&[f32]>, Trouble> {
        Ok(self.attribute(name, 6)?.map(|found| found.floats.as_slice()))
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f32>, Trouble> {
        Ok(self.attribute(name, 1)?.map(AttributeProto::f))
    }

    pub(super) fn string(&self, name: &str, default: &'static str) -> Result<&str, Trouble> {
        let Some(found) = self.attribute(name, 3)? else { return Ok(default) };
        std::str::from_utf8(found.s())
            .map_err(|_| Trouble::new(format!("attribute `{name}` is not UTF-8 text")))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<Tensor>, Trouble> {
        let Some(found) = self.attribute(name, 4)? else { return Ok(None) };
        let Some(tensor) = &found.t else { refuse!("attribute `{name}` holds no tensor") };
        Tensor::from_proto(tensor).map(Some).map_err(|trouble| Trouble {
            message: format!("attribute `{name}`: {}", trouble.message),
            ..trouble
        })
    }

    /// The axis in attribute `name`, as an index below `rank`.
    pub(super) fn axis(&self, name: &str, default: i64, rank: usize) -> Result<usize, Trouble> {
        axis(self.int(name, default)?, rank)
    }

    /// The axes in attribute `name` or, since some version, in operand `at`.
    pub(super) fn axes(&self, name: &str, at: usize) -> Result<Option<&[i64]>, Trouble> {
        match self.ints(name)? {
            Some(axes) => Ok(Some(axes)),
            None => self.optional_ints(at),
        }
    }
}

/// A shape that only a run can tell. A declared shape of the output, if there is one, is taken instead.
pub(super) fn run_time(message: impl Into<String>) -> Trouble {
    Trouble { run_time: true, ..Trouble::new(message) }
        .hint("declare the output's largest shape in the model's value_info")
}
