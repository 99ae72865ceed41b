//! The set of ready ops, asked for the one that leaves fewest bytes among those that fit.

use memfit_ir::OpId;

/// What a ready op would do: `(needs, leaves)`, see [`super::Ledger`].
pub(super) type Cost = (i64, i64);

/// A tournament over all ops. Updates are O(log n). A query descends only where an op may both fit and win:
/// O(log n) where leaves are sorted by need, as they are but for in-place takeovers, which depend on the order.
pub(super) struct Ready {
    /// By op: its leaf.
    leaf: Vec<usize>,
    /// Heap-shaped: node `i` over `2i` and `2i + 1`; leaves in the second half.
    nodes: Vec<Option<Node>>,
}

#[derive(Clone, Copy)]
struct Node {
    /// The op with the least `(needs, leaves, id)`.
    small: (i64, i64, OpId),
    /// The op with the least `(leaves, id)`.
    light: (i64, OpId),
}

impl Ready {
    /// An empty set; `needs` is about what each op will need.
    pub(super) fn new(needs: &[i64]) -> Ready {
        let mut sorted: Vec<usize> = (0..needs.len()).collect();
        sorted.sort_unstable_by_key(|&op| (needs[op], op));
        let half = needs.len().next_power_of_two();
        let mut leaf = vec![0; needs.len()];
        sorted.iter().enumerate().for_each(|(at, &op)| leaf[op] = half + at);
        Ready { leaf, nodes: vec![None; 2 * half] }
    }

    /// Adds an op, changes its cost, or takes it out.
    pub(super) fn set(&mut self, op: OpId, cost: Option<Cost>) {
        let mut at = self.leaf[op.index()];
        let node = cost.map(|(needs, leaves)| Node { small: (needs, leaves, op), light: (leaves, op) });
        self.nodes[at] = node;
        while at > 1 {
            at /= 2;
            self.nodes[at] = match (self.nodes[2 * at], self.nodes[2 * at + 1]) {
                (Some(a), Some(b)) => Some(Node { small: a.small.min(b.small), light: a.light.min(b.light) }),
                (one, other) => one.or(other),
            };
        }
    }

    /// Whether `op` is in the set.
    pub(super) fn contains(&self, op: OpId) -> bool {
        self.nodes[self.leaf[op.index()]].is_some()
    }

    /// Among the ops that need at most `room`, the one with the least `(leaves, id)`; if there is none, the
    /// one with the least `(needs, leaves, id)`.
    pub(super) fn choose(&self, room: i64) -> Option<OpId> {
        let root = (*self.nodes.get(1)?)?;
        if root.small.0 > room {
            return Some(root.small.2);
        }
        let mut best: Option<(i64, OpId)> = None;
        let mut open = vec![1];
        while let Some(at) = open.pop() {
            let Some(node) = self.nodes[at] else { continue };
            if node.small.0 > room || best.is_some_and(|best| best <= node.light) {
                continue;
            }
            let winner = self.nodes[self.leaf[node.light.1.index()]];
            if winner.is_some_and(|winner| winner.small.0 <= room) {
                best = Some(node.light);
            } else {
                open.extend([2 * at + 1, 2 * at]); // Its lightest does not fit, so it is no leaf.
            }
        }
        best.map(|(_, op)| op)
    }
}
