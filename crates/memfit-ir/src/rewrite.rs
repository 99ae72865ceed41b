//! A graph made of another one, with what its parts stand for: the claim that a judge reads.

use crate::{Graph, OpId, ValueId};

/// Why an op of the original is not in the graph made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Nobody needs what it computes.
    Dead,
    /// Another op computes the same.
    Common,
    /// By an algebraic identity what it computes is there already.
    Identity,
    /// It only sees the same bytes in another shape.
    View,
}

impl Why {
    /// Every reason with its name in files.
    pub const ALL: [(Why, &str); 4] =
        [(Why::Dead, "dead"), (Why::Common, "common"), (Why::Identity, "identity"), (Why::View, "view")];

    /// Name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Why::ALL[self as usize].1
    }
}

/// A graph that is claimed to compute what the original computes, of fewer ops.
///
/// Its ops and values are ones of the original, in the same order; what is missing is removed or has its reads replaced.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The new graph.
    pub graph: Graph,
    /// By value of the new graph: the value of the original that it stands for.
    pub values: Vec<ValueId>,
    /// By op of the new graph: the op of the original that it is.
    pub ops: Vec<OpId>,
    /// The other ops of the original, ascending.
    pub removed: Vec<(OpId, Why)>,
    /// Values of the original whose readers read another value of the original instead, ascending.
    pub replaced: Vec<(ValueId, ValueId)>,
}

impl Rewrite {
    /// The rewrite that changes nothing.
    #[must_use]
    pub fn nothing(graph: &Graph) -> Rewrite {
        Rewrite {
            graph: graph.clone(),
            values: graph.value_ids().collect(),
            ops: graph.op_ids().collect(),
            removed: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// This one and, on its graph, `next`: a rewrite of the same original. Ids that are out of range are left out.
    #[must_use]
    pub fn then(&self, next: Rewrite) -> Rewrite {
        let value = |id: &ValueId| self.values.get(id.index()).copied();
        let op = |id: &OpId| self.ops.get(id.index()).copied();
        let mut removed = self.removed.clone();
        removed.extend(next.removed.iter().filter_map(|(id, why)| Some((op(id)?, *why))));
        removed.sort_unstable();
        let mut replaced = self.replaced.clone();
        replaced.extend(next.replaced.iter().filter_map(|(from, to)| Some((value(from)?, value(to)?))));
        replaced.sort_unstable();
        Rewrite {
            values: next.values.iter().filter_map(value).collect(),
            ops: next.ops.iter().filter_map(op).collect(),
            graph: next.graph,
            removed,
            replaced,
        }
    }
}
