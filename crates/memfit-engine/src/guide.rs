//! Guided mode.

use crate::call::Call;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::host::Host;

impl<H: Host> Engine<H> {
    pub(crate) fn follow(&mut self, _call: &Call<'_>) -> Result<(), Fault> {
        Ok(())
    }
}
