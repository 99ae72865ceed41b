//! Names of what a schedule is made of, as dense indices of four bytes, absent ones included.
//!
//! The tables that local search walks over millions of times hold ids that may be absent: who makes a value, who mutates
//! it, from when on an op can't run again. Each id holds its index and one more, which is never 0: so `Option` of it is no
//! larger than a bare number, and asking for one costs what comparing with a reserved number would.

use std::num::NonZeroU32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) struct $name(NonZeroU32);

        impl $name {
            /// Position in the table this id names an element of.
            pub(super) const fn index(self) -> usize {
                self.0.get() as usize - 1
            }

            /// The id of the element at `index`. Counts of a graph are capped at [`memfit_ir::MAX_COUNT`], so an index
            /// that does not fit cannot arise from a valid one; it would name no element.
            pub(super) fn at(index: usize) -> $name {
                $name(NonZeroU32::MIN.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.index())
            }
        }
    };
}

id!(
    /// Names an op of a task by its place in the order of first runs. One beyond them all names the end of the step,
    /// which reads what must be there then.
    NodeId
);
id!(
    /// Names a run, whatever comes or goes before it: see `editor::runs`.
    RunId
);
id!(
    /// Names a place in a list whose elements move.
    Place
);

impl RunId {
    /// The first run of `node`, or the end.
    pub(super) const fn first(node: NodeId) -> RunId {
        RunId(node.0)
    }
}

/// The earlier of two nodes, where an absent one is later than all.
pub(super) fn earlier(one: Option<NodeId>, other: Option<NodeId>) -> Option<NodeId> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_id_takes_no_more_room() {
        assert_eq!(size_of::<Option<NodeId>>(), 4);
        assert_eq!([0, 1, 77].map(|index| NodeId::at(index).index()), [0, 1, 77]);
    }

    /// `None` is the first in the order of `Option`.
    #[test]
    fn what_is_absent_is_later_than_all() {
        let (one, other) = (Some(NodeId::at(3)), Some(NodeId::at(0)));
        assert_eq!([earlier(one, None), earlier(None, one)], [one, one]);
        assert_eq!([earlier(one, other), earlier(other, one), earlier(None, None)], [other, other, None]);
    }
}
