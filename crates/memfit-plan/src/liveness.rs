//! How many bytes are live at each step of a program.

use memfit_ir::{Bytes, Program};

/// Live bytes over the steps of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Bytes live during each step, indexed by step: every buffer whose lifespan contains the step, rounded
    /// up to the alignment.
    pub live: Vec<Bytes>,
}

impl Profile {
    /// The profile of `program` on a device that aligns buffers to `align`. Time O(steps + buffers).
    #[must_use]
    pub fn of(program: &Program, align: Bytes) -> Profile {
        let steps = program.steps.len();
        let mut change = vec![(Bytes::ZERO, Bytes::ZERO); steps + 1]; // (born, gone) before each step
        for (span, buffer) in program.lifespans().iter().zip(&program.buffers) {
            if span.from < span.until {
                let size = buffer.size.round_up(align);
                change[span.from].0 += size;
                change[span.until].1 += size;
            }
        }
        let mut now = Bytes::ZERO;
        let live = change[..steps].iter().map(|&(born, gone)| {
            now = now.saturating_sub(gone) + born;
            now
        });
        Profile { live: live.collect() }
    }

    /// The largest sum of live bytes, and the first step at which it is reached.
    #[must_use]
    pub fn peak(&self) -> (Bytes, usize) {
        let peak = self.live.iter().copied().max().unwrap_or_default();
        (peak, self.live.iter().position(|&live| live == peak).unwrap_or(0))
    }
}
