//! Declared types: of inputs, and of outputs whose shape depends on data. Symbolic dimensions get their numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::elem::Elem;
use super::proto::tensor_shape_proto::{Dimension, dimension::Value};
use super::proto::{GraphProto, ValueInfoProto};
use super::tensor::{MAX_RANK, Tensor, Trouble, refuse};
use crate::FormatError;

/// The numbers of symbolic dimensions.
pub(super) struct Symbols<'a>(&'a BTreeMap<String, u64>);

impl<'a> Symbols<'a> {
    /// Takes the user's numbers for the dimensions of `graph`.
    ///
    /// # Errors
    ///
    /// If one is given for a dimension that the graph doesn't have.
    pub(super) fn new(
        bounds: &'a BTreeMap<String, u64>,
        graph: &GraphProto,
    ) -> Result<Symbols<'a>, FormatError> {
        if bounds.is_empty() {
            return Ok(Symbols(bounds));
        }
        let of_inputs: BTreeSet<String> = graph.input.iter().flat_map(symbols).collect();
        let others: BTreeSet<String> =
            graph.output.iter().chain(&graph.value_info).flat_map(symbols).collect();
        if let Some(wrong) = bounds.keys().find(|name| !of_inputs.contains(*name) && !others.contains(*name))
        {
            let known: Vec<String> = of_inputs.iter().take(8).map(|name| format!("`{name}`")).collect();
            let error = FormatError::new("", format!("no dimension of this model is called `{wrong}`"));
            return Err(if known.is_empty() {
                error.hint("all dimensions of its inputs are numbers")
            } else {
                error.hint(format!("its inputs have {}", known.join(", ")))
            });
        }
        Ok(Symbols(bounds))
    }

    /// The tensor that `info` declares.
    pub(super) fn tensor(&self, info: &ValueInfoProto) -> Result<Tensor, Trouble> {
        let Some(declared) = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref()) else {
            refuse!("only tensors are supported; this is a sequence, a map, an optional or nothing");
        };
        let Some(elem) = Elem::by_code(declared.elem_type()) else {
            refuse!("`{}` is not an element type", declared.elem_type());
        };
        if declared.shape.is_none() {
            refuse!("its shape is not declared");
        }
        let dims = dimensions(info);
        if dims.len() > MAX_RANK {
            refuse!("`{}` dimensions; more than {MAX_RANK} are not supported", dims.len());
        }
        let dim = |(at, dim): (usize, &Dimension)| match &dim.value {
            Some(Value::DimValue(dim)) => {
                u64::try_from(*dim).map_err(|_| Trouble::new(format!("dimension {at} is negative: `{dim}`")))
            }
            Some(Value::DimParam(name)) if !name.is_empty() => self.bound(name),
            _ => self.bound(&unnamed(info, at)),
        };
        Ok(Tensor::new(elem, dims.iter().enumerate().map(dim).collect::<Result<_, _>>()?))
    }

    fn bound(&self, name: &str) -> Result<u64, Trouble> {
        self.0.get(name).copied().ok_or_else(|| {
            Trouble::new(format!("symbolic dimension `{name}` has no bound"))
                .hint(format!("give it a number: `--dim {name}=8`"))
        })
    }
}

/// Names of the dimensions of `info` that are not numbers.
fn symbols(info: &ValueInfoProto) -> impl Iterator<Item = String> {
    dimensions(info).iter().enumerate().filter_map(|(at, dim)| match &dim.value {
        Some(Value::DimValue(_)) => None,
        Some(Value::DimParam(name)) if !name.is_empty() => Some(name.clone()),
        _ => Some(unnamed(info, at)),
    })
}

/// How a dimension without name or number is called on the command line.
fn unnamed(info: &ValueInfoProto, at: usize) -> String {
    format!("{}[{at}]", info.name())
}

fn dimensions(info: &ValueInfoProto) -> &[Dimension] {
    let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[], |shape| &shape.dim)
}
