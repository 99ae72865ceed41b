//! What of a model's tables is needed. Field numbers are those of `schema.fbs`, version 3.
//!
//! Vectors and names may be shared within a file, so that a small one could unfold into a large one; what is unfolded is counted
//! and bounded by the length of the file.

use memfit_ir::{Dtype, MAX_COUNT};

use super::flat::{Table, Vector};
use super::is_like;
use crate::{FormatError, brief};

/// The most dimensions of a tensor.
const MAX_RANK: usize = 64;

/// Fields of tables, by number.
pub(super) mod field {
    pub(in super::super) const CODES: usize = 1;
    pub(in super::super) const SUBGRAPHS: usize = 2;
    pub(in super::super) const BUFFERS: usize = 4;
    pub(in super::super) const METADATA: usize = 6;
    /// Of a buffer: its data; where they lie behind the tables, in files of over 2 GiB.
    pub(in super::super) const DATA: usize = 0;
    pub(in super::super) const BEHIND: usize = 1;
    /// Of an entry of the metadata.
    pub(in super::super) const NAME: usize = 0;
    pub(in super::super) const BUFFER: usize = 1;
}

/// What a tensor is to the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has a place there.
    Arena,
    /// It keeps its content from run to run.
    Variable,
    /// Its content is in the file.
    Constant,
    /// A handle of a resource: no bytes of the arena.
    Handle,
}

/// A tensor.
#[derive(Clone, Debug)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: Kind,
    pub(super) elem: Option<&'static Elem>,
    pub(super) shape: Vec<i32>,
    /// Axes whose size the model leaves open; the shape has a number for them, too.
    pub(super) open: Vec<usize>,
}

/// An element type.
#[derive(Debug)]
pub(super) struct Elem {
    /// Its number in the schema.
    code: u8,
    pub(super) dtype: Dtype,
    /// Bytes of an element.
    bytes: u64,
}

const fn elem(code: u8, dtype: Dtype, bytes: u64) -> Elem {
    Elem { code, dtype, bytes }
}

/// Types of fewer than eight bits are counted as a byte each: kernels unpack them.
const ELEMS: &[Elem] = &[
    elem(0, Dtype::F32, 4),
    elem(1, Dtype::F16, 2),
    elem(2, Dtype::I32, 4),
    elem(3, Dtype::I8, 1),
    elem(4, Dtype::I64, 8),
    elem(6, Dtype::Bool, 1),
    elem(7, Dtype::I16, 2),
    elem(8, Dtype::C64, 8),
    elem(9, Dtype::I8, 1),
    elem(10, Dtype::F64, 8),
    elem(11, Dtype::C128, 16),
    elem(12, Dtype::I64, 8),
    elem(15, Dtype::I32, 4),
    elem(16, Dtype::I16, 2),
    elem(17, Dtype::Other, 1),
    elem(18, Dtype::Bf16, 2),
    elem(19, Dtype::Other, 1),
    elem(20, Dtype::Other, 1),
    elem(21, Dtype::F8, 1),
    elem(22, Dtype::F8, 1),
];
/// Handles: 13 is a resource, 14 a variant.
const HANDLES: [u8; 2] = [13, 14];

/// An operator that runs. Operands are indices of tensors; absent ones are left out.
#[derive(Clone, Debug)]
pub(super) struct Operator<'a> {
    /// Number of a built-in operator.
    pub(super) code: i32,
    /// Name of one that is not built in.
    pub(super) custom: &'a [u8],
    /// With the places of absent operands.
    pub(super) inputs: Vec<Option<usize>>,
    pub(super) outputs: Vec<usize>,
    /// For each input whether it is mutated, if it is a variable. Empty: nobody says, so all are.
    pub(super) mutates: &'a [u8],
}

/// The first subgraph of a model.
#[derive(Clone, Debug)]
pub(super) struct Subgraph<'a> {
    pub(super) name: &'a [u8],
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) operators: Vec<Operator<'a>>,
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// How many tensors all other subgraphs have; `None` if one of them needs the arena.
    pub(super) beside: Option<usize>,
}

/// What may still be unfolded, in bytes of the file.
struct Allowance(usize);

impl Allowance {
    fn take(&mut self, bytes: usize) -> Result<(), FormatError> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| {
            FormatError::new("", "damaged: names and lists overlap, and are longer than the file together")
        })?;
        Ok(())
    }
}

/// The root table.
pub(super) fn model(bytes: &[u8]) -> Result<Table<'_>, FormatError> {
    if !is_like(bytes) {
        return Err(FormatError::new("", "not a TensorFlow Lite model: it does not say `TFL3`"));
    }
    let model = Table::root(bytes, "the model")?;
    let version = model.unsigned(0)?;
    if version != 3 {
        return Err(FormatError::new("", format!("schema version `{version}` is not supported, only 3 is")));
    }
    Ok(model)
}

impl<'a> Subgraph<'a> {
    /// Reads the first subgraph.
    pub(super) fn first(bytes: &'a [u8]) -> Result<Subgraph<'a>, FormatError> {
        let model = model(bytes)?;
        let subgraphs = model.vector(field::SUBGRAPHS, 4, "the list of subgraphs")?;
        if subgraphs.len() == 0 {
            return Err(FormatError::new("", "the model has no subgraph"));
        }
        let main = subgraphs.table(0)?;
        let mut allowance = Allowance(bytes.len().saturating_mul(2).saturating_add(1 << 16));
        let buffers = model.vector(field::BUFFERS, 4, "the list of buffers")?;
        let mut tensors = Vec::new();
        each_tensor(&main, &buffers, &mut allowance, |tensor| tensors.push(tensor))?;
        let mut beside = Some(0usize);
        for index in 1..subgraphs.len() {
            each_tensor(&subgraphs.table(index)?, &buffers, &mut allowance, |tensor| {
                let needs = tensor.kind == Kind::Arena && tensor.bytes() != Ok(0);
                beside = beside.filter(|_| !needs).map(|count| count + 1);
            })?;
        }
        let codes = model.vector(field::CODES, 4, "the list of operators")?;
        let list = main.vector(3, 4, "the list of ops")?;
        if list.len() > MAX_COUNT {
            return Err(FormatError::new("", format!("more than {MAX_COUNT} ops")));
        }
        let mut operators = Vec::with_capacity(list.len());
        for index in 0..list.len() {
            let read = Operator::read(list.table(index)?, &codes, tensors.len(), &mut allowance);
            operators.push(read.map_err(|error| FormatError { place: format!("op {index}"), ..error })?);
        }
        let ends = |id: usize, what: &'static str, allowance: &mut Allowance| {
            let all = indices(&main.vector(id, 4, what)?, tensors.len(), allowance)?;
            Ok::<Vec<usize>, FormatError>(all.into_iter().flatten().collect())
        };
        let inputs = ends(1, "the list of inputs", &mut allowance)?;
        let outputs = ends(2, "the list of outputs", &mut allowance)?;
        let name = main.text(4, "the name of a subgraph")?;
        allowance.take(name.len())?;
        Ok(Subgraph { name, inputs, outputs, beside, tensors, operators })
    }
}

/// Hands the tensors of `subgraph` to `take`, one by one.
fn each_tensor<'a>(
    subgraph: &Table<'a>,
    buffers: &Vector<'a>,
    allowance: &mut Allowance,
    mut take: impl FnMut(Tensor<'a>),
) -> Result<(), FormatError> {
    let list = subgraph.vector(0, 4, "the list of tensors")?;
    if list.len() > MAX_COUNT {
        return Err(FormatError::new("", format!("more than {MAX_COUNT} tensors")));
    }
    for index in 0..list.len() {
        take(Tensor::read(list.table(index)?, buffers, allowance)?);
    }
    Ok(())
}

/// Indices of tensors, of which there are `count`; -1 stands for an absent one.
fn indices(
    list: &Vector<'_>,
    count: usize,
    allowance: &mut Allowance,
) -> Result<Vec<Option<usize>>, FormatError> {
    allowance.take(list.len() * 4)?;
    let index = |index: i32| match usize::try_from(index) {
        Ok(index) if index < count => Ok(Some(index)),
        Err(_) if index == -1 => Ok(None),
        _ => Err(FormatError::new("", format!("damaged: there is no tensor `{index}`"))),
    };
    list.ints().map(index).collect()
}

impl<'a> Tensor<'a> {
    fn read(
        table: Table<'a>,
        buffers: &Vector<'_>,
        allowance: &mut Allowance,
    ) -> Result<Tensor<'a>, FormatError> {
        let name = table.text(3, "the name of a tensor")?;
        let at = |error: FormatError| FormatError { place: place(name), ..error };
        let shape = table.vector(0, 4, "the shape of a tensor").map_err(at)?;
        let signature = table.vector(7, 4, "the shape of a tensor").map_err(at)?;
        allowance.take(name.len() + 4 * shape.len() + 4)?;
        if shape.len() > MAX_RANK || signature.len() > MAX_RANK {
            let message = format!("`{}` dimensions; more than {MAX_RANK} are not supported", shape.len());
            return Err(at(FormatError::new("", message)));
        }
        let code = table.byte(1)?;
        let buffer = usize::try_from(table.unsigned(2)?).unwrap_or(usize::MAX);
        // An external buffer is a file beside the model, which holds weights.
        let is_filled = || Ok(table.unsigned(10)? > 0 || holds_data(buffers, buffer)?);
        let kind = match () {
            () if HANDLES.contains(&code) => Kind::Handle,
            () if table.byte(5)? != 0 => Kind::Variable,
            () if is_filled().map_err(at)? => Kind::Constant,
            () => Kind::Arena,
        };
        let open = signature.ints().enumerate().filter(|&(axis, dim)| dim < 0 && axis < shape.len());
        let open = open.map(|(axis, _)| axis).collect();
        let elem = ELEMS.iter().find(|elem| elem.code == code);
        Ok(Tensor { name, kind, elem, shape: shape.ints().collect(), open })
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> Result<u64, FormatError> {
        let refuse = |message: String| FormatError::new(place(self.name), message);
        let Some(Elem { bytes: each, .. }) = self.elem else {
            return Err(refuse(
                "its elements have no fixed size, so that only a run can tell how large it is".into(),
            ));
        };
        let dim =
            |dim: &i32| u64::try_from(*dim).map_err(|_| refuse(format!("dimension `{dim}` is negative")));
        let dims = self.shape.iter().map(dim).collect::<Result<Vec<u64>, _>>()?;
        let product = if dims.contains(&0) {
            Some(0)
        } else {
            dims.iter().try_fold(*each, |product, dim| product.checked_mul(*dim))
        };
        product.filter(|&bytes| bytes < 1 << 62).ok_or_else(|| refuse("its size overflows".into()))
    }

    pub(super) fn dims(&self) -> Vec<u64> {
        self.shape.iter().map(|&dim| u64::try_from(dim).unwrap_or(0)).collect()
    }

    pub(super) fn count(&self) -> f64 {
        self.shape.iter().map(|&dim| f64::from(dim.max(0))).product()
    }
}

/// Whether buffer `index` has content. Buffer 0 is empty by convention.
fn holds_data(buffers: &Vector<'_>, index: usize) -> Result<bool, FormatError> {
    if index == 0 && buffers.len() == 0 {
        return Ok(false);
    }
    let buffer = buffers.table(index)?;
    Ok(buffer.vector(field::DATA, 1, "the data of a buffer")?.len() > 0 || buffer.long(field::BEHIND)? > 1)
}

/// How a tensor is called in messages.
pub(super) fn place(name: &[u8]) -> String {
    format!("tensor `{}`", brief(&String::from_utf8_lossy(name), 200))
}

impl<'a> Operator<'a> {
    fn read(
        table: Table<'a>,
        codes: &Vector<'a>,
        count: usize,
        allowance: &mut Allowance,
    ) -> Result<Operator<'a>, FormatError> {
        let index = usize::try_from(table.unsigned(0)?).unwrap_or(usize::MAX);
        let code = codes.table(index)?;
        // The first field is of a byte; operators from 127 on are named by the second.
        let old = i32::from(i8::from_le_bytes([code.byte(0)?]));
        let custom = code.text(1, "the name of an operator")?;
        let inputs = indices(&table.vector(1, 4, "the inputs of an op")?, count, allowance)?;
        let outputs = indices(&table.vector(2, 4, "the outputs of an op")?, count, allowance)?;
        let mutates = table.vector(7, 1, "the mutated inputs of an op")?.raw(1);
        allowance.take(custom.len().min(200) + 4)?;
        Ok(Operator {
            code: old.max(code.int(3)?),
            custom,
            inputs,
            outputs: outputs.into_iter().flatten().collect(),
            mutates,
        })
    }
}
