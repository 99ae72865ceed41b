//! The walk over an op's arguments: its tensors, a key of all that its results' sizes depend on, and a template from which
//! the call can be made again.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple};

use super::glue::Glue;
use super::ops::Op;

/// An argument without its tensors.
#[derive(Debug)]
pub(super) enum Arg {
    /// The operand of this number.
    Operand(usize),
    /// As it was.
    Value(Py<PyAny>),
    /// Elements.
    List(Vec<Arg>),
    Tuple(Vec<Arg>),
}

/// The window that a tensor is on its storage.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) dtype: Py<PyAny>,
    /// Shape, then strides. No objects of Python's: its collector would look at each of them.
    pub(super) extents: Box<[u64]>,
    pub(super) offset: u64,
}

impl Window {
    pub(super) fn shape(&self) -> &[u64] {
        &self.extents[..self.extents.len() / 2]
    }

    pub(super) fn stride(&self) -> &[u64] {
        &self.extents[self.extents.len() / 2..]
    }

    /// Whether it shows each of the `bytes` of its storage, once.
    pub(super) fn is_whole(&self, py: Python<'_>, bytes: u64) -> PyResult<bool> {
        let item: u64 = self.dtype.bind(py).getattr(intern!(py, "itemsize"))?.extract()?;
        let mut extents: Vec<(u64, u64)> = self
            .stride()
            .iter()
            .copied()
            .zip(self.shape().iter().copied())
            .filter(|&(_, size)| size != 1)
            .collect();
        extents.sort_unstable();
        let mut elements = 1_u64;
        for (stride, size) in extents {
            if stride != elements {
                return Ok(false);
            }
            elements = elements.saturating_mul(size);
        }
        Ok(self.offset == 0 && elements.checked_mul(item) == Some(bytes))
    }
}

/// A tensor of the tracked device among the arguments.
pub(super) struct Operand<'py> {
    pub(super) tensor: Bound<'py, PyAny>,
    pub(super) storage: Bound<'py, PyAny>,
    pub(super) window: Window,
    pub(super) written: bool,
}

impl Operand<'_> {
    /// Names the storage, while it lives.
    pub(super) fn address(&self) -> usize {
        self.storage.as_ptr().addr()
    }
}

/// What a walk has found.
#[derive(Default)]
pub(super) struct Found<'py> {
    pub(super) operands: Vec<Operand<'py>>,
    pub(super) key: Vec<u64>,
    /// Whether there is something whose repetition could differ: a tensor of another device, a lazy conjugate.
    pub(super) foreign: bool,
    /// Whether a tensor is more than a window on one storage: sparse, nested, quantised.
    pub(super) opaque: bool,
    /// The storages that such tensors are made of.
    pub(super) parts: Vec<Bound<'py, PyAny>>,
    /// Whether there is a complex number: from then on lazy conjugates may occur.
    pub(super) complex: bool,
    pub(super) generator: Option<Py<PyAny>>,
}

/// The walk itself.
pub(super) struct Walk<'a, 'py> {
    pub(super) glue: &'a Glue,
    pub(super) op: &'a Op,
    pub(super) found: Found<'py>,
    /// Whether a template is wanted.
    pub(super) template: bool,
    /// Whether lazy conjugates may occur.
    pub(super) complex: bool,
}

// Tags of the key.
const NONE: u64 = 1;
const LIST: u64 = 2;
const TENSOR: u64 = 3;
const NUMBER: u64 = 4;
const OBJECT: u64 = 5;
const NAME: u64 = 6;
const END: u64 = 7;

impl<'py> Walk<'_, 'py> {
    /// The positional arguments.
    pub(super) fn args(&mut self, args: &Bound<'py, PyTuple>) -> PyResult<Vec<Arg>> {
        self.found.key.push(word(self.op.func.as_ptr().addr()));
        let mut template = Vec::with_capacity(if self.template { args.len() } else { 0 });
        for (at, arg) in args.iter_borrowed().enumerate() {
            let arg = self.arg(&arg, self.op.sized.at(at), self.op.writes.at(at))?;
            template.extend(arg);
        }
        Ok(template)
    }

    /// The arguments by name.
    pub(super) fn kwargs(&mut self, kwargs: &Bound<'py, PyDict>) -> PyResult<Vec<(Py<PyString>, Arg)>> {
        let mut template = Vec::new();
        for (name, arg) in kwargs.iter() {
            let name = name.cast_into::<PyString>()?;
            let text = name.to_cow()?;
            self.found.key.extend([NAME, name.hash()?.cast_unsigned() as u64]);
            let arg = self.arg(&arg, self.op.sized.named(&text), self.op.writes.named(&text))?;
            if let Some(arg) = arg {
                template.push((name.unbind(), arg));
            }
        }
        Ok(template)
    }

    fn arg(&mut self, arg: &Bound<'py, PyAny>, sized: bool, written: bool) -> PyResult<Option<Arg>> {
        let kind = arg.get_type_ptr();
        let is = |known: &Py<PyAny>| kind.addr() == known.as_ptr().addr();
        if is(&self.glue.tensor) || is(&self.glue.parameter) {
            return self.tensor(arg, written);
        }
        let key = &mut self.found.key;
        if arg.is_exact_instance_of::<PyNone>() {
            key.push(NONE);
        } else if arg.is_exact_instance_of::<PyInt>() || arg.is_exact_instance_of::<PyBool>() {
            // Of other numbers only the kind matters: it may decide on the dtype of the result.
            let number = if sized { arg.extract::<i64>().unwrap_or(i64::MAX) } else { 0 };
            key.extend([NUMBER, word(kind.addr()), number.cast_unsigned()]);
        } else if arg.is_exact_instance_of::<PyFloat>() {
            let number = if sized { arg.extract::<f64>()? } else { 0.0 };
            key.extend([NUMBER, word(kind.addr()), number.to_bits()]);
        } else if let Ok(list) = arg.cast_exact::<PyList>() {
            key.push(LIST);
            let mut elements = Vec::new();
            for element in list.iter() {
                elements.extend(self.arg(&element, sized, written)?);
            }
            self.found.key.push(END);
            return Ok(self.template.then_some(Arg::List(elements)));
        } else if let Ok(tuple) = arg.cast::<PyTuple>() {
            key.push(LIST);
            let mut elements = Vec::new();
            for element in tuple.iter_borrowed() {
                elements.extend(self.arg(&element, sized, written)?);
            }
            self.found.key.push(END);
            return Ok(self.template.then_some(Arg::Tuple(elements)));
        } else if arg.is_instance(self.glue.tensor.bind(arg.py()))? {
            return self.tensor(arg, written);
        } else {
            if arg.is_instance(self.glue.generator.bind(arg.py()))? {
                self.found.generator = Some(arg.clone().unbind());
            }
            // Dtypes, layouts, devices: few objects that live for ever, or are equal only to themselves.
            let hash = arg.hash().unwrap_or(0);
            key.extend([OBJECT, word(kind.addr()), hash.cast_unsigned() as u64]);
        }
        Ok(self.template.then(|| Arg::Value(arg.clone().unbind())))
    }

    fn tensor(&mut self, tensor: &Bound<'py, PyAny>, written: bool) -> PyResult<Option<Arg>> {
        let py = tensor.py();
        if !tensor.getattr(self.glue.on_device.bind(py).cast::<PyString>()?)?.is_truthy()? {
            self.found.foreign = true;
            self.found.key.push(TENSOR);
            let dtype = tensor.getattr(intern!(py, "dtype"))?;
            self.shape_to_key(tensor, &dtype)?;
            return Ok(self.template.then(|| Arg::Value(tensor.clone().unbind())));
        }
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let storage = match tensor.call_method0(intern!(py, "untyped_storage")) {
            Ok(storage) if !self.glue.is_opaque(tensor, &dtype) => storage,
            _ => {
                self.found.opaque = true;
                self.glue.parts(tensor, &mut self.found.parts)?;
                return Ok(None);
            }
        };
        self.complex |= dtype.getattr(intern!(py, "is_complex"))?.is_truthy()?;
        if self.complex {
            self.found.complex = true;
            let lazy = tensor.call_method0(intern!(py, "is_conj"))?.is_truthy()?
                || tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
            self.found.foreign |= lazy;
        }
        self.found.key.push(TENSOR);
        let first = self.shape_to_key(tensor, &dtype)?;
        let extents = self.found.key[first..].into();
        let number = self.found.operands.len();
        if number < 64 {
            let alias = self.found.operands.iter().position(|other| other.storage.is(&storage));
            self.found.key.push(word(alias.unwrap_or(number)));
        }
        let offset = tensor.call_method0(intern!(py, "storage_offset"))?.extract()?;
        let window = Window { dtype: dtype.unbind(), extents, offset };
        self.found.operands.push(Operand { tensor: tensor.clone(), storage, window, written });
        Ok(self.template.then_some(Arg::Operand(number)))
    }

    /// Appends dtype, rank, shape and strides to the key; returns where the shape begins.
    fn shape_to_key(&mut self, tensor: &Bound<'py, PyAny>, dtype: &Bound<'py, PyAny>) -> PyResult<usize> {
        let py = tensor.py();
        let shape = tensor.getattr(intern!(py, "shape"))?;
        let stride = tensor.call_method0(intern!(py, "stride"))?;
        let shape = shape.cast::<PyTuple>()?;
        let key = &mut self.found.key;
        key.extend([word(dtype.as_ptr().addr()), word(shape.len())]);
        let first = key.len();
        for numbers in [shape, stride.cast::<PyTuple>()?] {
            for number in numbers.iter_borrowed() {
                key.push(number.extract::<u64>()?);
            }
        }
        Ok(first)
    }
}

fn word(number: usize) -> u64 {
    number as u64
}
