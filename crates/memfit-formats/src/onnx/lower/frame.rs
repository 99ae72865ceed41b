//! Names in sight: those of the graph, of one call of a function, or of a branch or body within them.

use std::collections::BTreeMap;

use memfit_ir::Role;

use super::super::call::Call;
use super::super::elem::Elem;
use super::super::proto::{AttributeProto, FunctionProto, GraphProto, ValueInfoProto};
use super::super::symbols::option;
use super::super::tensor::{Tensor, Trouble, refuse};
use super::{Lowered, Lowering, Storage};

/// What one list of nodes sees.
pub(super) struct Frame<'f, 'a> {
    pub(super) names: BTreeMap<&'a str, Tensor>,
    pub(super) attributes: BTreeMap<&'a str, &'a AttributeProto>,
    /// Types that the file declares for values in between and results.
    pub(super) declared: BTreeMap<&'a str, &'a ValueInfoProto>,
    /// Version of the default operator set, if it is said.
    pub(super) opset: Option<i64>,
    pub(super) prefix: String,
    /// The functions that are being called, outermost first.
    pub(super) calls: Vec<&'a FunctionProto>,
    /// What a branch or body sees besides its own names.
    pub(super) outer: Option<&'f Frame<'f, 'a>>,
    /// How many bodies that are planned on their own are around it.
    pub(super) level: usize,
    /// How many functions, branches and bodies are around it.
    pub(super) depth: usize,
}

impl<'f, 'a> Frame<'f, 'a> {
    pub(super) fn of_model(graph: &'a GraphProto, opset: Option<i64>) -> Frame<'f, 'a> {
        Frame {
            names: BTreeMap::new(),
            attributes: BTreeMap::new(),
            declared: types(graph),
            opset,
            prefix: String::new(),
            calls: Vec::new(),
            outer: None,
            level: 0,
            depth: 0,
        }
    }

    /// The frame of the branch or body `graph` of the node called `name` in this frame.
    pub(super) fn within(&'f self, graph: &'a GraphProto, name: &str, planned: bool) -> Frame<'f, 'a> {
        Frame {
            names: BTreeMap::new(),
            attributes: self.attributes.clone(),
            declared: types(graph),
            opset: self.opset,
            prefix: format!("{}{name}/", self.prefix),
            calls: self.calls.clone(),
            outer: Some(self),
            level: self.level + usize::from(planned),
            depth: self.depth + 1,
        }
    }

    /// Whether each node here is visited once, so that reading takes time in proportion to the file.
    pub(super) fn is_read_once(&self) -> bool {
        self.depth == 0
    }
}

fn types(graph: &GraphProto) -> BTreeMap<&str, &ValueInfoProto> {
    graph.value_info.iter().chain(&graph.output).map(|info| (info.name(), info)).collect()
}

/// Element types of the outputs of operators whose shape may depend on data, where that of operand 0 is wrong.
fn elems(call: &Call<'_>) -> Vec<Elem> {
    match call.node.op_type() {
        "NonZero" | "NonMaxSuppression" => vec![Elem::INT64],
        "ConstantOfShape" => vec![call.tensor("value").ok().flatten().map_or(Elem::FLOAT, |one| one.elem)],
        "OneHot" => call.optional(2).map(|values| values.elem).into_iter().collect(),
        name => {
            let first = call.optional(0).map(|x| x.elem);
            let rest = if name == "Split" { first } else { Some(Elem::INT64) };
            let outputs = call.node.output.len().saturating_sub(1);
            first.into_iter().chain(std::iter::repeat_n(rest, outputs).flatten()).collect()
        }
    }
}

impl<'a> Lowering<'a> {
    /// What `name` means to the nodes of `frame`: the innermost value that is called so. What is captured from
    /// around a body becomes an operand of the body.
    pub(super) fn find(&mut self, name: &str, frame: &Frame<'_, 'a>) -> Result<Option<Tensor>, Trouble> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(tensor) = frame.names.get(name) {
            return Ok(Some(tensor.clone()));
        }
        let Some(outer) = frame.outer else { return Ok(None) };
        let Some(mut tensor) = self.find(name, outer)? else { return Ok(None) };
        if let Some(storage) = tensor.storage.filter(|_| outer.level != frame.level) {
            tensor.storage = Some(self.capture(frame.level, storage)?);
        }
        Ok(Some(tensor))
    }

    fn level(&mut self, level: usize) -> &mut Lowered {
        match self.around.get_mut(level) {
            Some(lowered) => lowered,
            None => &mut self.lowered,
        }
    }

    /// Storage `at` of the level above `level`, as a storage of `level` that costs nothing there.
    pub(super) fn capture(&mut self, level: usize, at: usize) -> Result<usize, Trouble> {
        if let Some(&known) = self.level(level).captured.get(&at) {
            return Ok(known);
        }
        let outer = &self.level(level - 1).storages[at];
        let role = if outer.role.is_persistent() { outer.role } else { Role::Input };
        let storage =
            Storage { name: outer.name.clone(), tensor: outer.tensor.clone(), role, elsewhere: true };
        self.text += storage.name.len();
        if self.text > super::MAX_TEXT {
            refuse!("the names in its functions, branches and bodies are too long");
        }
        let here = self.level(level);
        let index = here.storages.len();
        here.storages.push(storage);
        here.captured.insert(at, index);
        Ok(index)
    }

    /// Adds a storage to the level at hand. What persists lives around all bodies, which capture it.
    pub(super) fn store(&mut self, storage: Storage) -> Result<usize, Trouble> {
        let persists = storage.role.is_persistent();
        let target = if persists { self.level(0) } else { &mut self.lowered };
        let mut at = target.storages.len();
        target.storages.push(storage);
        if persists {
            for level in 1..=self.around.len() {
                at = self.capture(level, at)?;
            }
        }
        Ok(at)
    }

    /// The number that the user gives for dimension `axis` of `name`.
    pub(super) fn told_dim(&self, name: &str, axis: usize, frame: &Frame<'_, 'a>) -> Option<u64> {
        let of = |name: &str| self.symbols.given(&format!("{name}[{axis}]"));
        of(name).or_else(|| of(&format!("{}{name}", frame.prefix)))
    }

    /// The shape that the user gives for `name`, all dimensions of it.
    fn told_shape(&self, name: &str, frame: &Frame<'_, 'a>) -> Option<Vec<u64>> {
        let dims: Vec<u64> = (0..).map_while(|axis| self.told_dim(name, axis, frame)).collect();
        (!dims.is_empty()).then_some(dims)
    }

    /// The largest type of `name`, of which a run decides the shape: with the user's numbers, else as declared.
    pub(super) fn told(&self, name: &str, elem: Option<Elem>, frame: &Frame<'_, 'a>) -> Option<Tensor> {
        let declared = || frame.declared.get(name).and_then(|info| self.symbols.tensor(info).ok());
        match (self.told_shape(name, frame), elem) {
            (Some(shape), Some(elem)) => Some(Tensor::new(elem, shape)),
            (Some(shape), None) => Some(Tensor { shape, ..declared()? }),
            (None, _) => declared(),
        }
    }

    /// Types of the outputs of `call` where their shapes depend on data.
    ///
    /// # Errors
    ///
    /// `trouble`, which says why, with what would help as its hint.
    pub(super) fn bounded(
        &self,
        call: &Call<'_>,
        frame: &Frame<'_, 'a>,
        trouble: Trouble,
    ) -> Result<Vec<Tensor>, Trouble> {
        let elems = elems(call);
        let mut outputs = Vec::new();
        for (at, name) in call.node.output.iter().enumerate() {
            // An output without a name is no value; what it would be does not matter.
            let told = if name.is_empty() { Some(Tensor::new(Elem::INT64, Vec::new())) } else { None };
            let Some(output) = told.or_else(|| self.told(name, elems.get(at).copied(), frame)) else {
                return Err(trouble.hint(match frame.declared.get(name.as_str()) {
                    Some(info) if self.symbols.open(info).next().is_some() => {
                        let open: Vec<String> = self.symbols.open(info).map(|dim| option(&dim)).collect();
                        format!("give the most that it may be: `{}`", open.join(" "))
                    }
                    _ => format!(
                        "give the largest shape of its output, each dimension: `{}`, …; or declare it in the model's \
                         value_info",
                        option(&format!("{name}[0]"))
                    ),
                }));
            };
            outputs.push(output);
        }
        Ok(outputs)
    }
}
