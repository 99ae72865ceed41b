//! How calls are made again, by their numbers.

use crate::host::{HostError, Run};
use crate::table::Table;

/// What a host needs to make a call again: its op, and its arguments with a place for each tensor.
pub trait Recipe {
    /// Bytes that it has on the heap, if they are counted.
    fn bytes(&self) -> usize {
        0
    }
}

/// The recipes of all calls that may be made again: from their first run until [`Host::close`](crate::Host::close).
#[derive(Debug)]
pub struct Recipes<R> {
    by_call: Table<Option<R>>,
    len: usize,
    /// Bytes on the heap that they have, now and at most.
    bytes: usize,
    most: usize,
}

impl<R> Default for Recipes<R> {
    fn default() -> Recipes<R> {
        Recipes { by_call: Table::default(), len: 0, bytes: 0, most: 0 }
    }
}

impl<R: Recipe> Recipes<R> {
    /// How the call that runs now for the first time is made again.
    pub fn remember(&mut self, run: &Run<'_>, recipe: R) {
        self.close(run.call);
        self.by_call.grow(run.call as usize + 1);
        self.len += 1;
        self.bytes += recipe.bytes();
        self.most = self.most.max(self.bytes);
        self.by_call[run.call as usize] = Some(recipe);
    }

    /// How the call that runs now was made before.
    ///
    /// # Errors
    ///
    /// If there is no recipe: the engine repeats no call whose host said that it can't be.
    pub fn recall(&self, run: &Run<'_>) -> Result<&R, HostError> {
        let lost = || HostError(format!("the call of `{}` is forgotten: this is a bug in memfit", run.kind));
        self.get(run.call).ok_or_else(lost)
    }

    /// How the call of this number was made, if that is known.
    #[must_use]
    pub fn get(&self, call: u32) -> Option<&R> {
        self.by_call.get(call as usize)?.as_ref()
    }

    /// The call of this number is not made again.
    pub fn close(&mut self, call: u32) {
        if let Some(recipe) = self.by_call.get_mut(call as usize).and_then(Option::take) {
            self.len -= 1;
            self.bytes -= recipe.bytes();
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most bytes that they have taken, as far as they count them, and those of their table.
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.most + self.by_call.bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use memfit_ir::{Bytes, Nanos};

    use super::*;
    use crate::host::Block;

    impl Recipe for String {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn run(call: u32) -> Run<'static> {
        Run {
            kind: "relu",
            call,
            repetition: 0,
            reads: &[],
            writes: &[],
            over: None,
            workspace: Block::default(),
            room: Bytes::ZERO,
            expected: Nanos::ZERO,
            generator: None,
        }
    }

    #[test]
    fn what_is_remembered_is_recalled_until_its_call_is_closed() {
        let mut recipes = Recipes::default();
        assert!(recipes.is_empty());
        for call in 0..3 {
            recipes.remember(&run(call), "x".repeat(100));
        }
        recipes.close(1);
        recipes.close(1);
        assert_eq!(recipes.recall(&run(2)).unwrap().len(), 100);
        let lost = recipes.recall(&run(1)).unwrap_err();
        assert_eq!(lost.to_string(), "the call of `relu` is forgotten: this is a bug in memfit");
        recipes.remember(&run(4), "y".to_owned());
        assert_eq!(recipes.len(), 3);
        assert_eq!(recipes.most_bytes(), 300 + recipes.by_call.bytes(), "the most there ever were");
        recipes.remember(&run(4), "z".to_owned());
        assert_eq!((recipes.len(), recipes.get(4)), (3, Some(&"z".to_owned())));
    }
}
