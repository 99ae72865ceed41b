//! Whether containers of Python's still hold what they held: looked at before each step that is replayed.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString};

enum Container {
    /// Keys and values, in order.
    Dict(Py<PyDict>, Vec<(Py<PyAny>, Py<PyAny>)>),
    List(Py<PyList>, Vec<Py<PyAny>>),
}

/// What some dictionaries and lists hold as this is made: the same objects, or equal numbers and texts.
#[pyclass(frozen, module = "memfit._memfit")]
pub(crate) struct Watch {
    containers: Vec<Container>,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(dicts: Vec<Bound<'_, PyDict>>, lists: Vec<Bound<'_, PyList>>) -> Watch {
        let dicts = dicts.into_iter().map(|dict| {
            let content = dict.iter().map(|(key, value)| (key.unbind(), value.unbind())).collect();
            Container::Dict(dict.unbind(), content)
        });
        let lists = lists.into_iter().map(|list| {
            let content = list.iter().map(Bound::unbind).collect();
            Container::List(list.unbind(), content)
        });
        Watch { containers: dicts.chain(lists).collect() }
    }

    /// What differs first: a key of a dictionary, or else the container; `None` if nothing does.
    fn changed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        for container in &self.containers {
            match container {
                Container::Dict(dict, content) => {
                    let dict = dict.bind(py);
                    let mut known = content.iter();
                    for (key, value) in dict {
                        let holds = known
                            .next()
                            .is_some_and(|(known, held)| known.is(&key) && is_same(held.bind(py), &value));
                        if !holds {
                            return Ok(Some(key));
                        }
                    }
                    if let Some((key, _)) = known.next() {
                        return Ok(Some(key.bind(py).clone()));
                    }
                }
                Container::List(list, content) => {
                    let list = list.bind(py);
                    let holds = list.len() == content.len()
                        && list.iter().zip(content).all(|(value, held)| is_same(held.bind(py), &value));
                    if !holds {
                        return Ok(Some(list.clone().into_any()));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Whether both are one object, or numbers or texts of one type and equal.
fn is_same(one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> bool {
    let is_simple = one.is_exact_instance_of::<PyFloat>()
        || one.is_exact_instance_of::<PyInt>()
        || one.is_exact_instance_of::<PyBool>()
        || one.is_exact_instance_of::<PyString>()
        || one.is_exact_instance_of::<PyNone>();
    one.is(other) || is_simple && one.get_type().is(other.get_type()) && one.eq(other).unwrap_or(false)
}
