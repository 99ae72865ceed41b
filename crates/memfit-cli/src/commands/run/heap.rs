//! The true meter: bytes of the process's heap, counted by its allocator.

use std::sync::atomic::{AtomicUsize, Ordering};

use memfit_burn::Meter;
pub(super) use memfit_burn::heap::current;

/// The most since the last [`window`].
static WINDOW: AtomicUsize = AtomicUsize::new(0);

/// For the host: what is allocated, and the most since it last asked.
pub(super) const METER: Meter = Meter { current, mark };

fn mark() -> usize {
    let most = memfit_burn::heap::mark();
    // Called twice for each op: it's rarely more, and a look costs less.
    if most > WINDOW.load(Ordering::Relaxed) {
        WINDOW.fetch_max(most, Ordering::Relaxed);
    }
    most
}

/// The most bytes at any moment since the last call; starts a new window.
pub(super) fn window() -> usize {
    mark();
    WINDOW.swap(0, Ordering::Relaxed)
}
