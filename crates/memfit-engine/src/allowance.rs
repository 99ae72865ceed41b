//! What planning may take of the machine that it runs on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use memfit_ir::Bytes;

/// Host memory and time for planning. Whoever plans takes the best that was found when they have been used up.
#[derive(Clone)]
pub struct Allowance {
    /// Most bytes of tables, programs and logs at a time, all that a planner has in hand together.
    pub bytes: Bytes,
    stop: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Allowance {
    /// `bytes`, until `stop` says so. A host that reads a clock there has plans that depend on how fast it is.
    #[must_use]
    pub fn new(bytes: Bytes, stop: impl Fn() -> bool + Send + Sync + 'static) -> Allowance {
        Allowance { bytes, stop: Some(Arc::new(stop)) }
    }

    /// `bytes`, until `clock` has gone on by `seconds` since now.
    #[must_use]
    pub fn lasting(
        bytes: Bytes,
        seconds: f64,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Allowance {
        let most = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let end = clock().saturating_add(most);
        Allowance::new(bytes, move || clock() >= end)
    }

    /// Whether the time is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }

    /// The same bytes, as long as it takes: for work that is bounded in another way.
    #[must_use]
    pub fn untimed(&self) -> Allowance {
        Allowance { bytes: self.bytes, stop: None }
    }

    /// The same time, and one part in `parts` of the bytes.
    #[must_use]
    pub fn share(&self, parts: u64) -> Allowance {
        Allowance { bytes: Bytes(self.bytes.0 / parts.max(1)), stop: self.stop.clone() }
    }
}

impl Default for Allowance {
    /// No limit.
    fn default() -> Self {
        Allowance { bytes: Bytes(u64::MAX), stop: None }
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
