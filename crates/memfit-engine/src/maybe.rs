//! An id that may be absent, in no more bytes than the id: rows of tables are many, and mostly ids.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use memfit_ir::{BufferId, CopyId, OpId, StepId, ValueId};

/// What is counted by a number.
pub(crate) trait Id: Copy {
    fn of(number: u32) -> Self;
    fn number(self) -> u32;
}

macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Id for $id {
            fn of(number: u32) -> $id {
                $id(number)
            }
            fn number(self) -> u32 {
                self.0
            }
        }
    )*};
}

ids!(BufferId, CopyId, OpId, StepId, ValueId);

/// An index into one of the engine's own tables.
impl Id for u32 {
    fn of(number: u32) -> u32 {
        number
    }
    fn number(self) -> u32 {
        self
    }
}

/// `Option<T>` in the bytes of a `u32`.
pub(crate) struct Maybe<T> {
    /// One more than the number. The largest number is that of no row, and as good as absent.
    after: Option<NonZeroU32>,
    of: PhantomData<T>,
}

impl<T: Id> Maybe<T> {
    /// Absent.
    pub(crate) const NONE: Maybe<T> = Maybe { after: None, of: PhantomData };

    pub(crate) fn get(self) -> Option<T> {
        self.after.map(|after| T::of(after.get() - 1))
    }

    pub(crate) fn is_none(self) -> bool {
        self.after.is_none()
    }

    /// Whether it is `other`.
    pub(crate) fn is(self, other: T) -> bool {
        self == other.into()
    }

    /// It is absent from now on; what it was.
    pub(crate) fn take(&mut self) -> Option<T> {
        std::mem::take(self).get()
    }
}

impl<T: Id> From<T> for Maybe<T> {
    fn from(id: T) -> Maybe<T> {
        Maybe { after: NonZeroU32::new(id.number().wrapping_add(1)), of: PhantomData }
    }
}

impl<T: Id> From<Option<T>> for Maybe<T> {
    fn from(id: Option<T>) -> Maybe<T> {
        id.map_or(Maybe::NONE, Maybe::from)
    }
}

impl<T> Clone for Maybe<T> {
    fn clone(&self) -> Maybe<T> {
        *self
    }
}

impl<T> Copy for Maybe<T> {}

impl<T> Default for Maybe<T> {
    fn default() -> Maybe<T> {
        Maybe { after: None, of: PhantomData }
    }
}

impl<T> PartialEq for Maybe<T> {
    fn eq(&self, other: &Maybe<T>) -> bool {
        self.after == other.after
    }
}

impl<T: Id + fmt::Debug> fmt::Debug for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_told_from_what_is_not_in_four_bytes() {
        assert_eq!((size_of::<Maybe<BufferId>>(), size_of::<Maybe<u32>>()), (4, 4));
        let mut maybe = Maybe::from(BufferId(0));
        assert!(!maybe.is_none() && maybe.is(BufferId(0)) && !maybe.is(BufferId(1)));
        assert_eq!((maybe.take(), maybe.take()), (Some(BufferId(0)), None));
        assert!(maybe.is_none() && maybe == Maybe::NONE && maybe == Maybe::from(None));
        assert_eq!(format!("{:?} {:?}", maybe, Maybe::from(7)), "None Some(7)");
    }
}
