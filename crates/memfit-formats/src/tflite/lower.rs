//! From operators to the graph: views resolved, variables mutated, weights left out.

use std::collections::BTreeMap;

use memfit_ir::{
    Bytes, Dtype, Effect, Graph, GraphBuilder, GraphError, OpSpec, Reuse, Role, ValueId, ValueSpec,
};

use super::schema::{Kind, Operator, Subgraph, place};
use super::{Model, TfliteOptions};
use crate::{FormatError, brief};

/// Which memory each tensor has, by index; tensors that are views of each other have one.
pub(super) struct Storages {
    /// For each tensor the tensor whose memory it has; `None` where it needs none of the arena.
    pub(super) of: Vec<Option<usize>>,
    /// Whether a tensor's memory is handed to the caller.
    pub(super) is_output: Vec<bool>,
}

/// Makes the graph of `subgraph`.
pub(super) fn lower(subgraph: &Subgraph<'_>, options: &TfliteOptions) -> Result<Model, FormatError> {
    check_dims(subgraph, options)?;
    let storages = Storages::of(subgraph)?;
    let mut made = Lowering {
        subgraph,
        builder: GraphBuilder::new(brief(&String::from_utf8_lossy(subgraph.name), 200)),
        values: vec![None; subgraph.tensors.len()],
        tensors: vec![None; subgraph.tensors.len()],
        storages: &storages,
        is_open: subgraph.inputs.iter().any(|&input| !subgraph.tensors[input].open.is_empty()),
        mutated: vec![0; subgraph.tensors.len()],
        ops: 0,
    };
    let mut is_input = vec![false; subgraph.tensors.len()];
    subgraph.inputs.iter().for_each(|&index| is_input[index] = true);
    for (index, tensor) in subgraph.tensors.iter().enumerate() {
        let is_input = is_input[index] && tensor.kind == Kind::Arena;
        if is_input || tensor.kind == Kind::Variable {
            made.value(index, if is_input { Role::Input } else { Role::State })?;
        }
    }
    for (at, operator) in subgraph.operators.iter().enumerate() {
        made.operator(operator).map_err(|error| {
            let place = if error.place.is_empty() {
                format!("op {at} ({})", brief(&operator.name(), 200))
            } else {
                format!("op {at} ({}): {}", brief(&operator.name(), 200), error.place)
            };
            FormatError { place, ..error }
        })?;
    }
    for &index in &subgraph.outputs {
        let Some(root) = storages.of[index] else { continue };
        let Some(value) = made.values[root] else {
            return Err(FormatError::new(place(subgraph.tensors[index].name), "an output that no op makes"));
        };
        made.builder.result(value).map_err(refused)?;
    }
    for index in 0..subgraph.tensors.len() {
        made.tensors[index] = storages.of[index].and_then(|root| made.tensors[root]);
    }
    let graph: Graph = made.builder.finish().map_err(refused)?;
    Ok(Model { graph, tensors: made.tensors, beside: subgraph.beside })
}

fn refused(error: GraphError) -> FormatError {
    FormatError::new("", error.to_string())
}

/// How an open dimension is called.
fn dimension(name: &[u8], axis: usize) -> String {
    format!("{}[{axis}]", brief(&String::from_utf8_lossy(name), 200))
}

/// That the numbers given for open dimensions are those the file has sizes for, and that each input's has one.
fn check_dims(subgraph: &Subgraph<'_>, options: &TfliteOptions) -> Result<(), FormatError> {
    const MOST_NAMED: usize = 16;
    let mut open: BTreeMap<String, i32> = BTreeMap::new();
    for &input in &subgraph.inputs {
        let tensor = &subgraph.tensors[input];
        for &axis in tensor.open.iter().filter(|_| tensor.kind == Kind::Arena) {
            open.insert(dimension(tensor.name, axis), tensor.shape[axis]);
        }
    }
    if let Some(wrong) = options.dims.keys().find(|name| !open.contains_key(*name)) {
        let error = FormatError::new(
            "",
            format!("no input of this model has an open dimension `{}`", brief(wrong, 200)),
        );
        let names: Vec<String> = open.keys().take(8).map(|name| format!("`{name}`")).collect();
        return Err(if names.is_empty() {
            error.hint("all dimensions of its inputs are numbers")
        } else {
            error.hint(format!("its inputs have {}", names.join(", ")))
        });
    }
    let missing: Vec<(&String, i32)> = open
        .iter()
        .filter(|(name, _)| !options.dims.contains_key(*name))
        .map(|(name, &size)| (name, size))
        .collect();
    if !missing.is_empty() {
        let named: Vec<String> =
            missing.iter().take(MOST_NAMED).map(|(name, _)| format!("`{name}`")).collect();
        let given: Vec<String> =
            missing.iter().take(MOST_NAMED).map(|(name, size)| format!("--dim '{name}={size}'")).collect();
        return Err(FormatError::new(
            "",
            format!("open dimensions of the inputs have no number: {}", named.join(", ")),
        )
        .hint(format!(
            "the file has the sizes of all tensors for `{}`; for others, convert the model with fixed shapes",
            given.join(" ")
        )));
    }
    for (name, &size) in &options.dims {
        if open.get(name).is_none_or(|&held| u64::try_from(held) != Ok(size)) {
            let held = open.get(name).copied().unwrap_or_default();
            return Err(FormatError::new(
                "",
                format!(
                    "`{}` is `{held}` in this file, which has the sizes of all tensors for that alone",
                    brief(name, 200)
                ),
            )
            .hint("convert the model with fixed shapes of the size you want"));
        }
    }
    Ok(())
}

impl Storages {
    /// Resolves views.
    pub(super) fn of(subgraph: &Subgraph<'_>) -> Result<Storages, FormatError> {
        let tensors = &subgraph.tensors;
        let lies = |kind: Kind| matches!(kind, Kind::Arena | Kind::Variable);
        let mut of: Vec<Option<usize>> =
            tensors.iter().enumerate().map(|(index, tensor)| lies(tensor.kind).then_some(index)).collect();
        let mut is_made = vec![false; tensors.len()];
        subgraph.inputs.iter().for_each(|&index| is_made[index] = true);
        for operator in &subgraph.operators {
            if let Some((from, to)) = view(operator, subgraph)?
                && is_made[from]
                && !is_made[to]
            {
                of[to] = of[from];
            }
            operator.outputs.iter().for_each(|&index| is_made[index] = true);
        }
        let mut is_output = vec![false; tensors.len()];
        for &index in &subgraph.outputs {
            if let Some(root) = of[index] {
                is_output[root] = true;
            }
        }
        Ok(Storages { of, is_output })
    }
}

/// The input and the output of a view: both in the arena, and of one size.
fn view(operator: &Operator<'_>, subgraph: &Subgraph<'_>) -> Result<Option<(usize, usize)>, FormatError> {
    let (Some(&Some(from)), [to]) = (operator.inputs.first(), operator.outputs.as_slice()) else {
        return Ok(None);
    };
    let (source, target) = (&subgraph.tensors[from], &subgraph.tensors[*to]);
    if !operator.is_view() || source.kind != Kind::Arena || target.kind != Kind::Arena || from == *to {
        return Ok(None);
    }
    Ok((source.bytes()? == target.bytes()?).then_some((from, *to)))
}

/// What an op touches.
#[derive(Default)]
struct Operands {
    reads: Vec<ValueId>,
    writes: Vec<ValueId>,
    /// Bytes that it reads and writes, weights included.
    moved: u64,
    /// Variables that it writes over, as the tensors they are.
    mutated: Vec<usize>,
}

struct Lowering<'s, 'a> {
    subgraph: &'s Subgraph<'a>,
    builder: GraphBuilder,
    /// For the memory of each tensor, the value that is in it now.
    values: Vec<Option<ValueId>>,
    /// The first that was.
    tensors: Vec<Option<ValueId>>,
    storages: &'s Storages,
    /// Whether an input is open, so that tensors may be that follow from it.
    is_open: bool,
    /// For each tensor, how many ops there were when a variable in it was mutated last.
    mutated: Vec<usize>,
    ops: usize,
}

impl Lowering<'_, '_> {
    /// A new value in the memory of tensor `root`.
    fn value(&mut self, root: usize, role: Role) -> Result<ValueId, FormatError> {
        let tensor = &self.subgraph.tensors[root];
        let id = self.builder.value(ValueSpec {
            name: String::from_utf8_lossy(tensor.name).into_owned(),
            size: Bytes(tensor.bytes()?),
            dtype: tensor.elem.map_or(Dtype::Other, |elem| elem.dtype),
            shape: tensor.dims(),
            role,
            ..ValueSpec::default()
        });
        let id = id.map_err(refused)?;
        self.values[root] = Some(id);
        self.tensors[root].get_or_insert(id);
        Ok(id)
    }

    /// Whether this op had not mutated variable `root` yet.
    fn mutates(&mut self, root: usize) -> bool {
        std::mem::replace(&mut self.mutated[root], self.ops) != self.ops
    }

    fn operator(&mut self, operator: &Operator<'_>) -> Result<(), FormatError> {
        if operator.is_control() {
            let message = "control flow and calls of other subgraphs are not supported";
            return Err(
                FormatError::new("", message).hint("convert the model without them, for instance unrolled")
            );
        }
        self.ops += 1;
        let mut operands = Operands::default();
        self.read(operator, &mut operands)?;
        if let Some((from, to)) = view(operator, self.subgraph)?
            && self.storages.of[from] == self.storages.of[to]
        {
            return Ok(());
        }
        self.write(operator, &mut operands)?;
        let Operands { reads, mut writes, moved, mutated } = operands;
        let mut reuses = self.shared(operator, &reads, writes.first().copied())?;
        for root in mutated {
            let before = self.values[root];
            let after = self.value(root, Role::State)?;
            writes.push(after);
            reuses.extend(before.map(|input| Reuse { input, output: after, must: true }));
        }
        if reads.is_empty() && writes.is_empty() && !operator.is_once() {
            return Ok(());
        }
        let tensors = &self.subgraph.tensors;
        let named = operator.outputs.first().or(operator.inputs.iter().flatten().next());
        let name = named.map(|&index| String::from_utf8_lossy(tensors[index].name).into_owned());
        let computed = operator.outputs.first().and_then(|&index| tensors[index].elem);
        let op = OpSpec {
            name: name.unwrap_or_default(),
            kind: operator.name(),
            flops: operator.flops(self.subgraph),
            moved: Bytes(moved),
            dtype: computed.map_or(Dtype::Other, |elem| elem.dtype),
            effect: match () {
                () if operator.is_once() => Effect::Once,
                () if operator.is_seeded() => Effect::Seeded,
                () => Effect::Pure,
            },
            reads,
            writes,
            reuses,
            ..OpSpec::default()
        };
        self.builder.op(op).map(|_| ()).map_err(refused)
    }

    /// What an op reads.
    fn read(&mut self, operator: &Operator<'_>, operands: &mut Operands) -> Result<(), FormatError> {
        for (at, index) in operator.inputs.iter().enumerate() {
            let Some(index) = *index else { continue };
            let tensor = &self.subgraph.tensors[index];
            if tensor.kind == Kind::Handle {
                continue;
            }
            // What is in the file is read, and has no place in the arena.
            let bytes = tensor.bytes()?;
            operands.moved = operands.moved.saturating_add(bytes);
            let Some(root) = self.storages.of[index] else { continue };
            let Some(value) = self.values[root] else {
                if bytes == 0 {
                    continue;
                }
                return Err(FormatError::new(place(tensor.name), "it is read before an op makes it"));
            };
            operands.reads.push(value);
            let says = operator.mutates.get(at).is_none_or(|&says| says != 0);
            if tensor.kind == Kind::Variable && says && self.mutates(root) {
                operands.mutated.push(root);
            }
        }
        Ok(())
    }

    /// What an op makes.
    fn write(&mut self, operator: &Operator<'_>, operands: &mut Operands) -> Result<(), FormatError> {
        for &index in &operator.outputs {
            let tensor = &self.subgraph.tensors[index];
            if tensor.kind == Kind::Handle {
                continue;
            }
            let refuse = |message: &str| Err(FormatError::new(place(tensor.name), message));
            if !tensor.open.is_empty() && !self.is_open {
                return refuse("a dimension that only a run can tell: its size depends on data");
            }
            let Some(root) = self.storages.of[index] else {
                return refuse("it is made, and its data is in the file");
            };
            if tensor.kind == Kind::Variable {
                if self.mutates(root) {
                    operands.reads.extend(self.values[root]);
                    operands.mutated.push(root);
                }
                continue;
            }
            if self.values[root].is_some() {
                return refuse("it is made twice");
            }
            operands.moved = operands.moved.saturating_add(tensor.bytes()?);
            let role = if self.storages.is_output[root] { Role::Output } else { Role::Activation };
            operands.writes.push(self.value(root, role)?);
        }
        Ok(())
    }

    /// Which inputs may give their bytes to the first output: those of its shape and width.
    fn shared(
        &self,
        operator: &Operator<'_>,
        reads: &[ValueId],
        target: Option<ValueId>,
    ) -> Result<Vec<Reuse>, FormatError> {
        let (Some(output), Some(&index)) = (target, operator.outputs.first()) else { return Ok(Vec::new()) };
        let made = &self.subgraph.tensors[index];
        let mut pairs: Vec<Reuse> = Vec::new();
        for input in operator.inputs.iter().take(operator.sharable()).flatten() {
            let tensor = &self.subgraph.tensors[*input];
            let fits = tensor.kind == Kind::Arena
                && tensor.shape == made.shape
                && tensor.bytes()? == made.bytes()?;
            let value = self.storages.of[*input].and_then(|root| self.values[root]);
            let Some(value) = value.filter(|value| fits && reads.contains(value)) else { continue };
            // Read in another shape as well, its elements are not read in the order they are written.
            let is_other = |other: &&usize| {
                self.storages.of[**other] == self.storages.of[*input]
                    && self.subgraph.tensors[**other].shape != made.shape
            };
            if operator.inputs.iter().flatten().any(|other| is_other(&other))
                || pairs.iter().any(|pair| pair.input == value)
            {
                continue;
            }
            pairs.push(Reuse { input: value, output, must: false });
        }
        Ok(pairs)
    }
}
