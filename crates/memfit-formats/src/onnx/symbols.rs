//! Declared types: of inputs, and of outputs whose shape depends on data. Symbolic dimensions get their numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::elem::Elem;
use super::proto::tensor_shape_proto::{Dimension, dimension::Value};
use super::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use super::tensor::{Known, MAX_RANK, Tensor, Trouble, is_int, refuse};
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
        model: &ModelProto,
        graph: &GraphProto,
    ) -> Result<Symbols<'a>, FormatError> {
        if bounds.is_empty() {
            return Ok(Symbols(bounds));
        }
        let of_inputs: BTreeSet<String> = graph.input.iter().flat_map(symbols).collect();
        let mut others = Others::default();
        others.graph(graph);
        // Integers that a run is given: `--dim n=10` says what is in them.
        let given = graph.input.iter().filter(|info| is_one_integer(info));
        others.dims.extend(given.map(|info| info.name().to_owned()));
        model.functions.iter().for_each(|function| others.nodes(&function.node));
        if let Some(wrong) = bounds.keys().find(|name| !of_inputs.contains(*name) && !others.have(name)) {
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
        let options: Vec<String> = open.iter().map(|name| option(name)).collect();
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

    /// The user's number for `name`.
    pub(super) fn given(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// `tensor`, the input called `name`, with the content that the user gives it, if it is one integer.
    pub(super) fn content(&self, name: &str, tensor: Tensor) -> Tensor {
        match self.given(name).and_then(|number| i64::try_from(number).ok()) {
            Some(number) if is_int(tensor.elem) && tensor.count().is_ok_and(|count| count == 1) => {
                Tensor::constant(tensor.elem, tensor.shape, Some(Known::Ints([number].into())))
            }
            _ => tensor,
        }
    }

    /// Names of the dimensions of `info` that have no number.
    pub(super) fn open(&self, info: &ValueInfoProto) -> impl Iterator<Item = String> {
        symbols(info).filter(|name| !self.0.contains_key(name))
    }

    fn bound(&self, name: &str) -> Result<u64, Trouble> {
        self.0.get(name).copied().ok_or_else(|| {
            Trouble::new(format!("symbolic dimension `{name}` has no bound"))
                .hint(format!("give it a number: `--dim {name}=8`"))
        })
    }
}

/// How a number is given for `dim`.
pub(super) fn option(dim: &str) -> String {
    let plain = dim.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
    if plain { format!("--dim {dim}=8") } else { format!("--dim '{dim}=8'") }
}

/// What can have a number besides inputs: declared dimensions, and those of whatever a node makes.
#[derive(Default)]
struct Others<'a> {
    dims: BTreeSet<String>,
    made: BTreeSet<&'a str>,
}

impl<'a> Others<'a> {
    fn graph(&mut self, graph: &'a GraphProto) {
        self.dims.extend(graph.output.iter().chain(&graph.value_info).flat_map(symbols));
        self.nodes(&graph.node);
    }

    fn nodes(&mut self, nodes: &'a [NodeProto]) {
        for node in nodes {
            self.made.extend(node.output.iter().map(String::as_str));
            // As deep as the file was allowed to nest.
            node.attribute.iter().filter_map(|attribute| attribute.g.as_deref()).for_each(|g| self.graph(g));
        }
    }

    /// Whether `name` is a declared dimension or `value[axis]`; within functions and bodies names have a prefix.
    fn have(&self, name: &str) -> bool {
        let axis = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
        let value = axis.filter(|(_, axis)| axis.parse::<u8>().is_ok()).map(|(value, _)| value);
        let made = |value: &str| {
            let ends = value.match_indices('/').map(|(at, _)| &value[at + 1..]);
            std::iter::once(value).chain(ends).any(|end| self.made.contains(end))
        };
        self.dims.contains(name) || value.is_some_and(made)
    }
}

/// Whether the input that `info` declares is one integer or truth value.
fn is_one_integer(info: &ValueInfoProto) -> bool {
    let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    let one = |dim: &Dimension| matches!(dim.value, Some(Value::DimValue(1)));
    tensor.is_some_and(|tensor| {
        Elem::by_code(tensor.elem_type()).is_some_and(is_int)
            && tensor.shape.as_ref().is_some_and(|shape| shape.dim.iter().all(one))
    })
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
