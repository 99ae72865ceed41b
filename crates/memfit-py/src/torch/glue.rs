//! The half of the host that is written in Python, by its functions.

use memfit::ir::Dtype;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::ops::Op;

/// What `memfit.torch._glue` offers.
pub(super) struct Glue {
    /// `torch.Tensor` and `torch.nn.Parameter`.
    pub(super) tensor: Py<PyAny>,
    pub(super) parameter: Py<PyAny>,
    /// `describe(func)`: how an op behaves, as [`super::ops::Op`] reads it.
    pub(super) describe: Py<PyAny>,
    /// `infer(func, args, kwargs)`: bytes of the storages it makes and of its scratch memory, or `None`.
    pub(super) infer: Py<PyAny>,
    /// `sizes(func, args, kwargs)`: the same for an op whose results' sizes depend on its operands' content; or a bound for both
    /// together, or `None`.
    pub(super) sizes: Py<PyAny>,
    /// `torch.Generator`.
    pub(super) generator: Py<PyAny>,
    /// `window(storage, dtype, offset, shape, stride)`: a tensor over a storage.
    pub(super) window: Py<PyAny>,
    /// `blank(bytes)`: a storage of the tracked device.
    pub(super) blank: Py<PyAny>,
    /// `pointer(storage)`: where its bytes are.
    pub(super) pointer: Py<PyAny>,
    /// `resizable(storage)`: whether its bytes are PyTorch's own.
    resizable: Py<PyAny>,
    /// `replay(func, args, kwargs, grad, state, switches)`: calls below autograd, from a generator state and with global
    /// switches as they were; `None` if they are so now.
    pub(super) replay: Py<PyAny>,
    /// `threads()`: how many an op may use.
    pub(super) threads: Py<PyAny>,
    /// `switches(flush)`: all global switches that results depend on, as `replay` takes them.
    pub(super) switches: Py<PyAny>,
    /// Functions and their arguments: while they and the processor's `flush` give the same, `switches` does.
    pub(super) looks: Vec<(Py<PyAny>, Py<PyTuple>)>,
    /// `is_grad_enabled()`.
    pub(super) is_grad_enabled: Py<PyAny>,
    /// `draw(generator)`: the generator's state, to be put back by `replay`.
    pub(super) draw: Py<PyAny>,
    /// `evict(storage)`: the bytes go, the size stays, an access raises.
    pub(super) evict: Py<PyAny>,
    /// `refill(storage, source)`: the bytes of `source` become those of `storage`.
    pub(super) refill: Py<PyAny>,
    /// `is_unreferenced(storage)`: whether nobody but the caller can reach it.
    pub(super) is_unreferenced: Py<PyAny>,
    /// `measure(func, args, kwargs)`: calls, and returns the result and the scratch bytes that were seen.
    pub(super) measure: Py<PyAny>,
    /// `measure_peak(func, args, kwargs)`: the same, with the bytes of what is made.
    pub(super) measure_peak: Py<PyAny>,
    /// Makes the error for a budget that is too small.
    /// `timed(func, args, kwargs)`, where calls return before they are done: as `measure`, with the ns that the device took, and
    /// with the bytes that neither are results nor went away.
    pub(super) timed: Option<Py<PyAny>>,
    pub(super) no_room: Py<PyAny>,
    /// `parts(tensor)`: the storages of a tensor that is more than a window on one.
    parts: Py<PyAny>,
    /// `here(storage)`: one with the same bytes in the memory of the process; `room(bytes)`: memory of the process;
    /// `there(storage)`: a storage of the tracked device with those bytes. On the CPU they are the storage itself.
    pub(super) here: Py<PyAny>,
    pub(super) room: Py<PyAny>,
    pub(super) there: Py<PyAny>,
    /// `copy(storage)`: a new storage with the same bytes.
    pub(super) copy: Py<PyAny>,
    /// `is_same(one, other)`: whether two storages have the same bytes.
    pub(super) is_same: Py<PyAny>,
    /// `is_on_side_stream()`, where there are streams: whether ops run on another one than the device's own.
    side_stream: Option<Py<PyAny>>,
    /// Dtypes of tensors that native code reads without an op: where they are small, they stay.
    pub(super) read_by_native: Vec<Py<PyAny>>,
    /// Dtypes of tensors whose bytes do not say what they are.
    quantized: Vec<Py<PyAny>>,
    /// The attribute of a tensor that is true on the tracked device.
    pub(super) on_device: Py<PyAny>,
    /// Whether the tracked device is the one whose allocator can be held to a limit.
    pub(super) is_limited: bool,
    /// Bytes of the state of a generator.
    pub(super) state_bytes: u64,
}

impl Glue {
    pub(super) fn new(glue: &Bound<'_, PyAny>) -> PyResult<Glue> {
        let take = |name: &str| glue.getattr(name).map(Bound::unbind);
        Ok(Glue {
            tensor: take("tensor")?,
            parameter: take("parameter")?,
            describe: take("describe")?,
            infer: take("infer")?,
            sizes: take("sizes")?,
            generator: take("generator")?,
            window: take("window")?,
            blank: take("blank")?,
            pointer: take("pointer")?,
            resizable: take("resizable")?,
            threads: take("threads")?,
            switches: take("switches")?,
            looks: glue.getattr("looks")?.extract()?,
            replay: take("replay")?,
            is_grad_enabled: take("is_grad_enabled")?,
            draw: take("draw")?,
            evict: take("evict")?,
            refill: take("refill")?,
            is_unreferenced: take("is_unreferenced")?,
            measure: take("measure")?,
            measure_peak: take("measure_peak")?,
            timed: glue.getattr("timed")?.extract()?,
            no_room: take("no_room")?,
            parts: take("parts")?,
            here: take("here")?,
            room: take("room")?,
            there: take("there")?,
            copy: take("copy")?,
            is_same: take("is_same")?,
            side_stream: glue.getattr("side_stream")?.extract()?,
            read_by_native: glue.getattr("read_by_native")?.extract()?,
            quantized: glue.getattr("quantized")?.extract()?,
            on_device: take("on_device")?,
            is_limited: glue.getattr("on_device")?.eq("is_cpu")?,
            state_bytes: glue.getattr("state_bytes")?.extract()?,
        })
    }

    /// Where the bytes of `storage` are, if it has any.
    pub(super) fn pointer_of(&self, storage: &Bound<'_, PyAny>) -> Option<usize> {
        self.pointer.bind(storage.py()).call1((storage,)).ok()?.extract().ok()
    }

    /// Whether the bytes of `storage` are PyTorch's own: nobody else's memory, and nobody else has their address.
    pub(super) fn is_resizable(&self, storage: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.resizable.bind(storage.py()).call1((storage,))?.is_truthy()
    }

    /// Whether `tensor`, which has a storage, is more than a window on it.
    pub(super) fn is_opaque(&self, tensor: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> bool {
        let nested = || tensor.getattr(intern!(tensor.py(), "is_nested"))?.is_truthy();
        self.quantized.iter().any(|known| known.is(dtype)) || nested().unwrap_or(true)
    }

    /// Whether ops run on a stream whose order with others nobody here knows.
    pub(super) fn is_on_side_stream(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.side_stream {
            Some(asked) => asked.bind(py).call0()?.is_truthy(),
            None => Ok(false),
        }
    }

    /// Appends the storages of a tensor that is more than a window on one to `parts`, each once.
    pub(super) fn parts<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        parts: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let found: Vec<Bound<'py, PyAny>> = self.parts.bind(tensor.py()).call1((tensor,))?.extract()?;
        for part in found {
            if !parts.iter().any(|known| known.is(&part)) {
                parts.push(part);
            }
        }
        Ok(())
    }

    /// Refuses `op` where its gradient is wanted: PyTorch computes it by another formula under a dispatch mode.
    pub(super) fn check_gradient(&self, op: &Op, args: &Bound<'_, PyTuple>) -> PyResult<()> {
        let py = args.py();
        if !self.is_grad_enabled.bind(py).call0()?.is_truthy()? {
            return Ok(());
        }
        for &at in &op.inexact {
            if args.get_item(at)?.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                return Err(PyRuntimeError::new_err(format!(
                    "memfit: PyTorch computes the gradient of `{}` by another formula where ops are watched: its last \
                     bits would differ\nhint: `exact=False` goes on all the same",
                    op.name
                )));
            }
        }
        Ok(())
    }
}

/// What the elements of `tensor` are.
pub(super) fn dtype(tensor: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let name = tensor.getattr(intern!(tensor.py(), "dtype"))?.str()?;
    Ok(match name.to_str()? {
        "torch.float64" => Dtype::F64,
        "torch.float32" => Dtype::F32,
        "torch.float16" => Dtype::F16,
        "torch.bfloat16" => Dtype::Bf16,
        "torch.int64" => Dtype::I64,
        "torch.int32" => Dtype::I32,
        "torch.int16" => Dtype::I16,
        "torch.int8" | "torch.uint8" => Dtype::I8,
        "torch.bool" => Dtype::Bool,
        _ => Dtype::Other,
    })
}

/// Bytes of a storage.
pub(super) fn size(storage: &Bound<'_, PyAny>) -> PyResult<u64> {
    storage.call_method0(intern!(storage.py(), "nbytes"))?.extract()
}
