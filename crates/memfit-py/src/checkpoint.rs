//! Compressed checkpoints over file objects of Python's: `memfit.checkpoint` opens the files, and knows tensors.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, MutexGuard, TryLockError};

use memfit::checkpoint::{
    CHUNK, Error, Header, How, MAGIC, Reader, Rules, Safetensors, Source, Sum, Tensor, digest, kmeans,
    within, write,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes};
use serde_json::json;

/// Adds its parts to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(checkpoint_within, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint_clusters, module)?)?;
    module.add_class::<Checkpoint>()
}

/// An input, or the exception that was raised while it was read.
fn raise(py: Python<'_>, error: Error) -> PyErr {
    let code = match error {
        Error::Read(error) | Error::Write(error) => return error.into(),
        Error::Base(inner) if matches!(*inner, Error::Read(_)) => return raise(py, *inner),
        Error::Usage(_) | Error::NoBase { .. } => 2,
        _ => 3,
    };
    let none: Option<&str> = None;
    let made = py.import("memfit._errors").and_then(|errors| errors.getattr("from_native"));
    let made = made.and_then(|make| make.call1((code, error.to_string(), error.hint(), "{}", none)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// A file object of Python's, opened for bytes.
struct File(Py<PyAny>);

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let bytes = self.0.bind(py).call_method1("read", (into.len(),))?;
            let bytes: PyBackedBytes = bytes.extract().map_err(PyErr::from)?;
            py.check_signals()?;
            let end = bytes.len().min(into.len());
            into[..end].copy_from_slice(&bytes[..end]);
            Ok(end)
        })
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let written = self.0.bind(py).call_method1("write", (PyBytes::new(py, bytes),))?.extract()?;
            py.check_signals()?;
            Ok(written)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Python::attach(|py| self.0.bind(py).call_method0("flush").map(drop)).map_err(Into::into)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to: (i128, u8) = match to {
            SeekFrom::Start(at) => (at.into(), 0),
            SeekFrom::Current(by) => (by.into(), 1),
            SeekFrom::End(by) => (by.into(), 2),
        };
        Python::attach(|py| self.0.bind(py).call_method1("seek", to)?.extract()).map_err(Into::into)
    }
}

/// Tensors of a program: `get` makes bytes of one.
struct State {
    header: Header,
    get: Py<PyAny>,
    bytes: Option<PyBackedBytes>,
    at: usize,
    sums: Option<Vec<Sum>>,
}

impl Source for State {
    fn header(&self) -> &Header {
        &self.header
    }

    fn sums(&mut self) -> Result<Vec<Sum>, Error> {
        if let Some(sums) = &self.sums {
            return Ok(sums.clone());
        }
        let sums = (0..self.header.tensors().len()).map(|at| {
            self.start(at)?;
            Ok(Sum::of(self.bytes.as_deref().unwrap_or_default()))
        });
        let sums: Vec<Sum> = sums.collect::<Result<_, Error>>()?;
        self.sums = Some(sums.clone());
        Ok(sums)
    }

    fn start(&mut self, tensor: usize) -> Result<(), Error> {
        let bytes = Python::attach(|py| -> PyResult<PyBackedBytes> {
            self.get.bind(py).call1((tensor,))?.extract().map_err(PyErr::from)
        });
        let bytes = bytes.map_err(|error| Error::Read(error.into()))?;
        let (name, size) =
            self.header.tensors().get(tensor).map_or(("", 0), |tensor| (&tensor.name[..], tensor.bytes));
        if bytes.len() as u64 != size {
            return Err(Error::Usage(format!("tensor `{name}` has {} bytes instead of {size}", bytes.len())));
        }
        (self.bytes, self.at) = (Some(bytes), 0);
        Ok(())
    }

    fn next(&mut self) -> Result<Vec<u8>, Error> {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        let end = bytes.len().min(self.at + CHUNK);
        let chunk = bytes[self.at..end].to_vec();
        self.at = end;
        if end == bytes.len() {
            self.bytes = None;
        }
        Ok(chunk)
    }
}

/// Name, type, shape and number of bytes of a tensor.
type Line = (String, String, Vec<usize>, u64);

/// Something that has tensors: a file, packed or not, or a state in memory.
#[pyclass(module = "memfit._memfit")]
pub(crate) struct Checkpoint {
    /// None once it's the base of another one.
    source: Mutex<Option<Box<dyn Source>>>,
}

impl Checkpoint {
    fn of_source(source: Box<dyn Source>) -> Checkpoint {
        Checkpoint { source: Mutex::new(Some(source)) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Box<dyn Source>>>, Error> {
        match self.source.try_lock() {
            Ok(source) => Ok(source),
            Err(TryLockError::Poisoned(source)) => Ok(source.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_use()),
        }
    }

    /// Runs `work` on the source, without Python's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Source) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| work(self.lock()?.as_deref_mut().ok_or_else(in_use)?));
        done.map_err(|error| raise(py, error))
    }
}

fn in_use() -> Error {
    Error::Usage("this checkpoint is in use".into())
}

#[pymethods]
impl Checkpoint {
    /// The checkpoint in `file`, packed or safetensors; `base` is what it's a difference to, and is used up.
    #[staticmethod]
    #[pyo3(signature = (file, base = None))]
    fn open(py: Python<'_>, file: Py<PyAny>, base: Option<&Checkpoint>) -> PyResult<Checkpoint> {
        let opened = py.detach(|| -> Result<Box<dyn Source>, Error> {
            let base = base.map_or(Ok(None), |base| Ok(base.lock()?.take()))?;
            let (mut file, mut start) = (File(file), Vec::new());
            (&mut file).take(8).read_to_end(&mut start).map_err(Error::Read)?;
            if start == MAGIC {
                return Ok(Box::new(Reader::open(file, base)?));
            }
            Ok(Box::new(Safetensors::open(file)?))
        });
        opened.map(Checkpoint::of_source).map_err(|error| raise(py, error))
    }

    /// A state in memory: name, type, shape and number of bytes of each tensor, what else is to be kept, and a function that
    /// makes bytes of the tensor at a place.
    #[staticmethod]
    fn of(
        py: Python<'_>,
        tensors: Vec<Line>,
        metadata: Vec<(String, String)>,
        get: Py<PyAny>,
    ) -> PyResult<Checkpoint> {
        let rows = tensors.into_iter().map(|(name, dtype, shape, bytes)| {
            let known = serde_json::from_value(dtype.clone().into());
            let dtype = known.map_err(|_| Error::Usage(format!("`{dtype}` is no type of safetensors")))?;
            Ok(Tensor { name, dtype, shape, bytes })
        });
        let header = rows.collect::<Result<Vec<_>, Error>>().and_then(|rows| Header::of(&rows, &metadata));
        let header = header.map_err(|error| raise(py, error))?;
        Ok(Checkpoint::of_source(Box::new(State { header, get, bytes: None, at: 0, sums: None })))
    }

    /// Name, type, shape and number of bytes of each tensor.
    fn tensors(&self, py: Python<'_>) -> PyResult<Vec<Line>> {
        self.with(py, |source| {
            let rows = source.header().tensors().iter();
            Ok(rows
                .map(|row| (row.name.clone(), format!("{:?}", row.dtype), row.shape.clone(), row.bytes))
                .collect())
        })
    }

    /// What else is kept.
    fn metadata(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.with(py, |source| Ok(source.header().metadata().to_vec()))
    }

    /// The digest of all tensors.
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |source| Ok(digest(source)?.to_string()))
    }

    /// The bytes of a tensor.
    fn read<'py>(&self, py: Python<'py>, tensor: usize) -> PyResult<Bound<'py, PyByteArray>> {
        let bytes = self.with(py, |source| {
            source.start(tensor)?;
            let mut bytes = Vec::new();
            loop {
                let chunk = source.next()?;
                if chunk.is_empty() {
                    return Ok(bytes);
                }
                bytes.extend_from_slice(&chunk);
            }
        })?;
        Ok(PyByteArray::new(py, &bytes))
    }

    /// Writes all tensors to `file`, packed, as differences to `base` where there is one. `named` has bounds for some tensors; then the
    /// others are lossless. A JSON object says what came of it.
    #[pyo3(signature = (file, base = None, codec = None, bound = None, clusters = None, named = None))]
    #[expect(clippy::too_many_arguments, reason = "the words of the command line")]
    fn write(
        &self,
        py: Python<'_>,
        file: Py<PyAny>,
        base: Option<&Checkpoint>,
        codec: Option<&str>,
        bound: Option<f64>,
        clusters: Option<usize>,
        named: Option<BTreeMap<String, f64>>,
    ) -> PyResult<String> {
        let rules = rules(codec, bound, clusters, named).map_err(|error| raise(py, error))?;
        let written = self.with(py, |source| {
            let mut base = base.map_or(Ok(None), |base| base.lock().map(Some))?;
            let base = match &mut base {
                Some(base) => Some(base.as_deref_mut().ok_or_else(in_use)?),
                None => None,
            };
            let mut out = BufWriter::with_capacity(CHUNK, File(file));
            let made = write(source, base, &rules, &mut out, &mut |_| ())?;
            out.flush().map_err(Error::Write)?;
            Ok(made)
        })?;
        let rows = written.rows.iter().map(
            |row| json!({ "name": row.name, "codec": row.codec, "bytes": row.bytes, "bound": row.bound }),
        );
        let object = json!({
            "bytes": written.bytes,
            "plain_bytes": written.plain_bytes,
            "digest": written.digest.to_string(),
            "base": written.base.map(|base| base.to_string()),
            "tensors": rows.collect::<Vec<_>>(),
        });
        Ok(object.to_string())
    }
}

/// What may be lost, in the words of the command line.
fn rules(
    codec: Option<&str>,
    bound: Option<f64>,
    clusters: Option<usize>,
    named: Option<BTreeMap<String, f64>>,
) -> Result<Rules, Error> {
    let how = |bound: Option<f64>| {
        Ok(match (codec, bound, clusters) {
            (None | Some("lossless"), None, None) => How::Lossless,
            (Some("bounded"), Some(bound), None) => How::Bounded { bound },
            (Some("delta-dnn"), Some(bound), None) => How::DeltaDnn { bound },
            (Some("deepsz"), Some(bound), None) => How::Deepsz { bound },
            (Some("kmeans"), None, Some(clusters)) => How::Kmeans { clusters },
            (None | Some("lossless"), ..) => {
                return Err(Error::Usage("a bound or clusters without a codec that loses something".into()));
            }
            (Some("kmeans"), ..) => {
                return Err(Error::Usage("`kmeans` needs `clusters`, and nothing else".into()));
            }
            (Some("bounded" | "delta-dnn" | "deepsz"), ..) => {
                return Err(Error::Usage("this codec needs `bound`, and nothing else".into()));
            }
            (Some(other), ..) => {
                let known = "lossless, bounded, delta-dnn, deepsz, kmeans";
                return Err(Error::Usage(format!("there is no codec `{other}`; there are {known}")));
            }
        })
    };
    match named {
        None => Ok(Rules::all(how(bound)?)),
        Some(named) => {
            let named = named.into_iter().map(|(name, bound)| Ok((name, how(Some(bound))?)));
            Ok(Rules { others: How::Lossless, named: named.collect::<Result<_, Error>>()? })
        }
    }
}

/// How many bytes the `f32` in `data` take within `bound`, and what they become.
#[pyfunction]
fn checkpoint_within<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    bound: f64,
) -> PyResult<(usize, Bound<'py, PyByteArray>)> {
    let (size, values) = py.detach(|| within(&data, bound)).map_err(|error| raise(py, error))?;
    Ok((size, PyByteArray::new(py, &values)))
}

/// The `f32` in `data`, each as the nearest of at most `clusters` numbers (k-means).
#[pyfunction]
fn checkpoint_clusters<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    clusters: usize,
) -> PyResult<Bound<'py, PyByteArray>> {
    let values = py.detach(|| {
        let mut values: Vec<f32> =
            data.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        let centres = kmeans::centres(&values, clusters);
        kmeans::nearest(&mut values, &centres);
        values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect::<Vec<u8>>()
    });
    Ok(PyByteArray::new(py, &values))
}
