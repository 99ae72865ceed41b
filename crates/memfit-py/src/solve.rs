//! Runs the front door without Python's lock, and stops it when the user interrupts.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use memfit::{Failure, Tools};
use pyo3::prelude::*;

use crate::failure::raise;

/// How long Python waits between two looks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);
/// The main thread's on most systems; what runs here runs there from the command line.
const STACK: usize = 8 << 20;

/// Runs `work` on a thread of its own while other Python threads go on. `seconds` is the time limit; without one,
/// nothing that is computed depends on a clock.
///
/// # Errors
///
/// What `work` returns, as an exception, or `KeyboardInterrupt`: then `work` has been stopped and its result is
/// dropped.
pub(crate) fn solve<T: Send>(
    py: Python<'_>,
    seconds: Option<f64>,
    work: impl FnOnce(&Tools<'_>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let started = Instant::now();
    let interrupted = AtomicBool::new(false);
    let now = || started.elapsed().as_secs_f64();
    let stop = || interrupted.load(Ordering::Relaxed) || seconds.is_some_and(|limit| now() > limit);
    let tools = Tools { now: &now, stop: &stop, progress: &|_| {}, until: seconds };
    let result = py.detach(|| {
        let (ended, end) = channel::<()>();
        std::thread::scope(|scope| {
            let run = move || {
                let _ended = ended; // Dropped last, also by a panic: then the receiver wakes.
                work(&tools)
            };
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run)?;
            let mut signal = Ok(());
            while signal.is_ok() && end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                signal = Python::attach(|py| py.check_signals());
            }
            interrupted.store(signal.is_err(), Ordering::Relaxed);
            let result = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            signal.map(|()| result)
        })
    })?;
    result.map_err(|failure| raise(py, &failure))
}
