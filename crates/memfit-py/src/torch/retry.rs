//! What is done about faults: another try where that may do, else the error that the program gets.

use memfit::engine::kit::{Remedy, Retries, less_scratch, more_scratch};
use memfit::engine::{Call, Engine, Fault, NoRoom, Why};
use memfit::ir::Bytes;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dispatch::Inner;
use super::host::Torch;

impl Inner {
    /// Applies a call; where there is no room, first looks for what the program has given up. A `restartable` call may be made
    /// once more after it ran out of memory: it has written to nothing that was there.
    pub(super) fn apply(&mut self, py: Python<'_>, mut call: Call<'_>, restartable: bool) -> PyResult<()> {
        let mut retries = Retries::default();
        loop {
            let fault = match self.engine.apply(&call, &mut self.made) {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            let pending = self.engine.host.pending.as_mut();
            let refused = pending.and_then(|pending| pending.refused.take());
            if let (Fault::Host(_), Some(wanted)) = (&fault, refused) {
                self.engine.host.raised = None;
                if let Err(more) = more_scratch(&mut call, Bytes(wanted), restartable) {
                    let enough = self.engine.settings().budget + more;
                    let fault = self.engine.no_room(call.kind.to_owned(), enough, wanted);
                    return Err(self.fault(py, fault));
                }
                if let Some(pending) = &mut self.engine.host.pending {
                    pending.started = false;
                }
                continue;
            }
            let started = self.engine.host.pending.as_ref().is_some_and(|pending| pending.started);
            let failed = started && matches!(fault, Fault::Host(_));
            if !failed && self.recover(py, &fault, &mut retries)? {
                continue;
            }
            match fault {
                Fault::NoRoom(_) if less_scratch(&mut call) => {}
                fault => return Err(self.fault(py, fault)),
            }
        }
    }

    /// Does what may have to bring bytes back; where there is no room, or bytes have died on the way, once more.
    pub(super) fn retry<T>(
        &mut self,
        py: Python<'_>,
        work: impl Fn(&mut Engine<'static, Torch>) -> Result<T, Fault>,
    ) -> PyResult<T> {
        let mut retries = Retries::default();
        loop {
            match work(&mut self.engine) {
                Ok(done) => return Ok(done),
                Err(fault) if self.recover(py, &fault, &mut retries)? => {}
                Err(fault) => return Err(self.fault(py, fault)),
            }
        }
    }

    /// After `fault`: true if there may be room now, or what had died is known now, so that another try may do.
    fn recover(&mut self, py: Python<'_>, fault: &Fault, retries: &mut Retries) -> PyResult<bool> {
        match retries.remedy(fault) {
            Some(Remedy::Look) => {
                self.look_at_all(py)?;
                self.cut_past(py)?;
            }
            Some(Remedy::Learn) if self.drain()? => self.engine.host.raised = None,
            Some(Remedy::Learn) | None => return Ok(false),
        }
        Ok(true)
    }

    /// A fault of the engine's as Python's error.
    pub(super) fn fault(&mut self, py: Python<'_>, fault: Fault) -> PyErr {
        if let Some(raised) = self.engine.host.raised.take() {
            return raised;
        }
        match fault {
            Fault::NoRoom(no_room) => self.no_room(py, &no_room, None).unwrap_or_else(|error| error),
            Fault::Thrashing(thrashing) => {
                let told = Some(thrashing.to_string());
                self.no_room(py, &thrashing.no_room, told).unwrap_or_else(|error| error)
            }
            fault @ Fault::Gone { .. } => PyOSError::new_err(format!(
                "memfit: {fault}\nhint: what the step has written so far is written; go on from a checkpoint"
            )),
            fault @ Fault::TooSlow(_) => PyTimeoutError::new_err(format!("memfit: {fault}")),
            fault => PyRuntimeError::new_err(format!("memfit: {fault}")),
        }
    }

    /// The error of a budget that is too small, with `slow` to say where recomputation takes too long.
    fn no_room(&self, py: Python<'_>, no_room: &NoRoom, slow: Option<String>) -> PyResult<PyErr> {
        let told = PyDict::new(py);
        told.set_item("slow", slow.is_some())?;
        told.set_item("message", slow.unwrap_or_else(|| no_room.to_string()))?;
        told.set_item("op", &no_room.op)?;
        told.set_item("asked", no_room.asked.0)?;
        told.set_item("budget", no_room.budget.0)?;
        told.set_item("enough", no_room.enough.0)?;
        for (name, why) in [("operands", Why::Operand), ("pinned", Why::Pinned), ("kept", Why::Source)] {
            let of = no_room.holding.iter().filter(|holding| holding.why == why);
            told.set_item(name, of.map(|holding| holding.size.0).sum::<u64>())?;
        }
        Ok(PyErr::from_value(self.engine.host.glue.no_room.bind(py).call1((told,))?))
    }
}
