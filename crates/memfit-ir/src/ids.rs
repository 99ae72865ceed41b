//! Names of things as dense indices: `ops[i]` is [`OpId`]`(i)`.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the vector this id names an element of.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the element at `index`. Counts are capped at [`crate::MAX_COUNT`], so an index that
            /// does not fit cannot arise from a valid graph or program; it would name no element.
            #[must_use]
            pub fn at(index: usize) -> $name {
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// Names an operation of a [`crate::Graph`].
    OpId, "op"
);
id!(
    /// Names a value: one version of a storage's content, however many buffers hold it over time.
    ValueId, "v"
);
id!(
    /// Names a buffer: one stay of a value (or of workspace) in device memory.
    BufferId, "b"
);
id!(
    /// Names a host copy: one stay of a value outside device memory.
    CopyId, "c"
);
id!(
    /// Names a step of a [`crate::Program`].
    StepId, "s"
);
