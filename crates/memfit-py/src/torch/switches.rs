//! Global switches that an op's results depend on: they are part of the recipe.

use pyo3::prelude::*;

use super::glue::Glue;

/// The switches as they are, and as they were.
///
/// All are looked at before each op: whoever took a setter out of its module before the budget began goes past any wrapper.
#[derive(Default)]
pub(super) struct Switches {
    /// All states there were.
    known: Vec<Py<PyAny>>,
    /// The state that is now.
    now: u32,
    /// A name of it, in this process.
    pub(super) key: u64,
    threads: u32,
    flush: bool,
    /// What the looks gave last.
    seen: Vec<Py<PyAny>>,
}

impl Switches {
    /// Looks at them; the number of their state.
    pub(super) fn look(&mut self, py: Python<'_>, glue: &Glue) -> PyResult<u32> {
        let flush = flushes_denormals();
        let mut same = !self.known.is_empty() && flush == self.flush;
        self.seen.resize_with(glue.looks.len(), || py.None());
        for ((get, arguments), seen) in glue.looks.iter().zip(&mut self.seen) {
            let value = get.bind(py).call1(arguments.bind(py))?;
            if !value.is(&*seen) && !value.eq(&*seen)? {
                (*seen, same) = (value.unbind(), false);
            }
        }
        if !same {
            self.flush = flush;
            self.threads = glue.threads.bind(py).call0()?.extract()?;
            let state = glue.switches.bind(py).call1((flush,))?;
            self.key = state.hash()?.cast_unsigned() as u64;
            let mut at = None;
            for (number, known) in self.known.iter().enumerate() {
                if known.bind(py).eq(&state)? {
                    at = Some(number);
                }
            }
            let number = at.unwrap_or(self.known.len());
            if at.is_none() {
                self.known.push(state.unbind());
            }
            self.now = u32::try_from(number).unwrap_or(u32::MAX);
        }
        Ok(self.now)
    }

    /// How many threads an op may use.
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }

    /// The state of this number, if it is not that which is now.
    pub(super) fn other(&self, state: u32) -> Option<&Py<PyAny>> {
        self.known.get(state as usize).filter(|_| state != self.now)
    }
}

/// Whether this thread takes numbers that are too small for a normal exponent for zeros.
fn flushes_denormals() -> bool {
    std::hint::black_box(f32::MIN_POSITIVE) * std::hint::black_box(0.5) == 0.0
}
