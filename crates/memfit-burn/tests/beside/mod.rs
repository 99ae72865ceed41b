//! Cases on a plain backend and within memfit, beside each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memfit_burn::{Budget, Device, enable, evict_all, report};

/// There is one device of each backend, and one hook for panics: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `work` makes, while nothing is said of panics: what a backend can't do ends in one, without memfit too.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _alone = alone();
    std::panic::set_hook(Box::new(|_| {}));
    let made = work();
    let _ = std::panic::take_hook();
    made
}

/// What `work` makes, if it doesn't panic.
pub(crate) fn tried<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// What was seen of cases.
#[derive(Default)]
pub(crate) struct Beside {
    ran: usize,
    repeated: usize,
    /// Results that shared bytes unexpectedly and were given some of their own.
    pub(crate) copies: u64,
    wrong: Vec<String>,
    miscounted: Vec<String>,
}

impl Beside {
    /// Runs the case `what` without memfit and, if the backend can do that, within: as it is, and with all that can go evicted when
    /// `within` calls what it is given.
    pub(crate) fn case<D: Device, T: PartialEq>(
        &mut self,
        what: String,
        device: &D,
        plain: impl Fn(&dyn Fn()) -> Option<T>,
        within: impl Fn(&dyn Fn()) -> Option<T>,
    ) {
        let expected = plain(&|| {});
        if expected.is_none() {
            println!("the backend itself can't: {what}");
            return;
        }
        enable(device, Budget::UNLIMITED).unwrap();
        let kept = within(&|| {});
        let before = report(device).engine.recomputes;
        let evicted = within(&|| evict_all(device));
        let seen = report(device);
        self.ran += 1;
        self.repeated += usize::from(seen.engine.recomputes > before);
        self.copies += seen.host.copies;
        if seen.host.missized + seen.host.unexpected > 0 {
            self.miscounted.push(what.clone());
        }
        if kept != expected || evicted != expected {
            self.wrong.push(what);
        }
    }

    /// How many cases ran, and how many of them with repetitions; all had the bits, and the sizes, that they should have.
    pub(crate) fn held(self) -> (usize, usize) {
        let Beside { ran, repeated, copies, wrong, miscounted } = self;
        println!("{ran} cases, {repeated} of them with repetitions, {copies} copies");
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(miscounted.is_empty(), "of another size than counted: {miscounted:#?}");
        (ran, repeated)
    }
}
