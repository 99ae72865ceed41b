//! What strategies have found for a task, for when they are asked again.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the copies of a task. A task knows nothing of the strategies, so it doesn't know what these are: one of each type.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

impl Memo {
    /// What `found` makes of the `T` that is here, or of a new one. Who asks meanwhile waits.
    pub(super) fn with<T: Any + Send + Default, R>(&self, found: impl FnOnce(&mut T) -> R) -> R {
        let mut here = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut this = match here.iter().position(|one| one.is::<T>()) {
            Some(at) => here.swap_remove(at).downcast::<T>().unwrap_or_default(),
            None => Box::default(),
        };
        let result = found(&mut this);
        here.push(this);
        result
    }
}
