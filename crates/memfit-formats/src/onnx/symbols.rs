//! Declared types: of inputs, and of outputs whose shape depends on data. Symbolic dimensions get their numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::elem::Elem;
use super::proto::tensor_shape_proto::{Dimension, dimension::Value};
use super::proto::{GraphProto, ValueInfoProto};
use super::tensor::{MAX_RANK, Tensor, Trouble, refuse};
use crate::FormatError;

/// The most open dimensions that an error names.
const MOST_NAMED: usize = 16;

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

    /// That all dimensions of `inputs` have numbers.
    ///
    /// # Errors
    ///
    /// Names those that have none, in the order of the inputs.
    pub(super) fn all_known<'i>(
        &self,
        inputs: impl Iterator<Item = &'i ValueInfoProto>,
    ) -> Result<(), FormatError> {
        let mut open: Vec<String> = Vec::new();
        for name in inputs.flat_map(symbols) {
            if open.len() < MOST_NAMED && !self.0.contains_key(&name) && !open.contains(&name) {
                open.push(name);
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let (dimensions, have) = if open.len() == 1 { ("dimension", "has") } else { ("dimensions", "have") };
        let quoted: Vec<String> = open.iter().map(|name| format!("`{name}`")).collect();
        let plain = |name: &String| name.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
        let option = |name: &String| {
            if plain(name) { format!("--dim {name}=8") } else { format!("--dim '{name}=8'") }
        };
        let options: Vec<String> = open.iter().map(option).collect();
        let message = format!("the {dimensions} {} of the inputs {have} no number", quoted.join(", "));
        Err(FormatError::new("", message).hint(format!("choose them: `{}`", options.join(" "))))
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
            Some(Value::DimValue(dim)) if *dim != OPEN => {
                u64::try_from(*dim).map_err(|_| Trouble::new(format!("dimension {at} is negative: `{dim}`")))
            }
            _ => self.bound(&name(info, at, dim)),
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
    let open = |dim: &Dimension| !matches!(dim.value, Some(Value::DimValue(dim)) if dim != OPEN);
    let open = dimensions(info).iter().enumerate().filter(move |(_, dim)| open(dim));
    open.map(|(at, dim)| name(info, at, dim))
}

/// The number that Paddle writes for a dimension that is open.
const OPEN: i64 = -1;

/// How an open dimension is called on the command line: `?`, which some exporters write for each, is no name.
fn name(info: &ValueInfoProto, at: usize, dim: &Dimension) -> String {
    match &dim.value {
        Some(Value::DimParam(name)) if !name.is_empty() && name != "?" => name.clone(),
        _ => format!("{}[{at}]", info.name()),
    }
}

fn dimensions(info: &ValueInfoProto) -> &[Dimension] {
    let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[], |shape| &shape.dim)
}
