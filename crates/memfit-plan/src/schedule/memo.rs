//! What strategies have found for a task, for when they are asked again.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the copies of a task. A task knows nothing of the strategies, so it doesn't know what these are: one of each type.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo(Arc<Mutex<Vec<Arc<dyn Any + Send + Sync>>>>);

impl Memo {
    /// What `found` makes of the `T` that is here, or of a new one. Who asks for a `T` meanwhile waits, so `found` must not ask for it;
    /// others may be asked for.
    pub(super) fn with<T: Any + Send + Default, R>(&self, found: impl FnOnce(&mut T) -> R) -> R {
        let this = self.one::<T>();
        let mut this = this.lock().unwrap_or_else(PoisonError::into_inner);
        found(&mut this)
    }

    fn one<T: Any + Send + Default>(&self) -> Arc<Mutex<T>> {
        let mut here = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = here.iter().find_map(|one| Arc::clone(one).downcast::<Mutex<T>>().ok());
        known.unwrap_or_else(|| {
            let new = Arc::new(Mutex::new(T::default()));
            here.push(Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_asked_for_while_another_is() {
        let memo = Memo::default();
        let other = memo.clone();
        memo.with(|count: &mut u32| {
            *count += other.with(|bytes: &mut u64| {
                *bytes += 5;
                2
            })
        });
        assert_eq!((memo.with(|count: &mut u32| *count), memo.with(|bytes: &mut u64| *bytes)), (2, 5));
    }
}
