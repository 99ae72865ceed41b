//! Recomputation that takes so much longer than the program's own ops that there is taken to be no way.

use memfit_ir::{Bytes, Nanos};

use crate::engine::Engine;
use crate::fault::{Fault, Thrashing};
use crate::host::Host;
use crate::settings::Pace;

/// What a host takes for each run beside the op itself: repetitions of small ops cost that, and little else.
const PER_RUN: u64 = 30_000;

/// The window begins anew after so much of the program's own work.
const WINDOW: u64 = 1_000_000_000;

impl<H: Host> Engine<'_, H> {
    /// From now on, recomputation of more than `times` the work of the ops themselves, and `least` beside that, is a
    /// [`Fault::Thrashing`]; without `times` never. Each run counts as 30 µs of host time beside its own. What a plan has computed
    /// again does not count.
    pub fn limit_pace(&mut self, times: Option<f64>, least: Nanos) {
        let (own, again) = self.work();
        self.pace = times.map(|times| Pace { times, least, own, again });
    }

    /// Ns of the program's own ops, and of repetitions.
    fn work(&self) -> (u64, u64) {
        let of = |ns: u64, runs: u64| ns.saturating_add(runs.saturating_mul(PER_RUN));
        let stats = &self.stats;
        (of(stats.first_ns, stats.calls), of(stats.recompute_ns, stats.recomputes))
    }

    /// After a repetition, of `record`.
    pub(crate) fn check_pace(&mut self, record: u32) -> Result<(), Fault> {
        let (own, again) = self.work();
        let guided = self.is_guided();
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let (done, repeated) = (own.saturating_sub(pace.own), again.saturating_sub(pace.again));
        #[allow(clippy::cast_precision_loss, reason = "a bound that need not be sharp")]
        let slow = repeated as f64 > pace.times * done as f64 + pace.least.0 as f64;
        if guided || slow || done > WINDOW {
            (pace.own, pace.again) = (own, again);
        }
        if guided || !slow {
            return Ok(());
        }
        let (kind, need) = (self.state.class(record).kind, self.state.need(record));
        let op = self.kinds[kind as usize].clone();
        let Fault::NoRoom(no_room) = self.no_room(op, self.would_do(), need) else { return Ok(()) };
        Err(Fault::Thrashing(Box::new(Thrashing {
            own: Nanos(done),
            again: Nanos(repeated),
            no_room: *no_room,
        })))
    }

    /// A budget in which nothing that the program holds now would have had to go.
    fn would_do(&self) -> Bytes {
        let away = self.state.storages.iter().filter(|storage| storage.alive && !storage.resident);
        let away = away.filter(|storage| storage.held > 0).map(|storage| Bytes(storage.size)).sum::<Bytes>();
        self.stats.used + away
    }
}
