//! Which algorithm each op runs by, where the graph offers several.

use memfit_ir::Action;

use super::Task;
use super::ids::NodeId;

/// By node: the number of an algorithm, 0 for the op's own cost and workspace. All runs of a node are by the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Algorithms(Vec<u16>);

impl Algorithms {
    /// Those of which `choose` says so: of a node that has several, by its number.
    pub(super) fn by(task: &Task<'_>, mut choose: impl FnMut(usize) -> usize) -> Algorithms {
        if !task.has_choices() {
            return Algorithms::default();
        }
        let chosen = (0..task.nodes()).map(|node| match task.ways.row(node).is_empty() {
            true => 0,
            false => u16::try_from(choose(node)).unwrap_or(0),
        });
        Algorithms(chosen.collect())
    }

    /// Those with the least scratch memory, of these the fastest.
    pub(super) fn smallest(task: &Task<'_>) -> Algorithms {
        Algorithms::by(task, |node| {
            least(task, node, |at| {
                let way = task.ways.row(node)[at];
                (way.workspace, way.time)
            })
        })
    }

    /// The fastest, of these those with the least scratch memory.
    pub(super) fn fastest(task: &Task<'_>) -> Algorithms {
        Algorithms::within(task, |_| i64::MAX)
    }

    /// The fastest of those that take no more scratch memory than `room` says; if none does, those with the least.
    pub(super) fn within(task: &Task<'_>, room: impl Fn(usize) -> i64) -> Algorithms {
        Algorithms::by(task, |node| {
            least(task, node, |at| {
                let way = task.ways.row(node)[at];
                let over = (way.workspace - room(node)).max(0);
                (over, way.time, way.workspace)
            })
        })
    }

    /// The algorithm of `node`.
    pub(super) fn of(&self, node: usize) -> usize {
        self.0.get(node).map_or(0, |&algorithm| usize::from(algorithm))
    }

    /// Has `node` run by another.
    pub(super) fn set(&mut self, task: &Task<'_>, node: usize, algorithm: usize) {
        self.0.resize(task.nodes(), 0);
        self.0[node] = u16::try_from(algorithm).unwrap_or(0);
    }

    /// Bytes and ns by which `node` takes more than by its own algorithm.
    pub(super) fn more(&self, task: &Task<'_>, node: usize) -> (i64, i64) {
        match (task.ways.row(node).first(), task.ways.row(node).get(self.of(node))) {
            (Some(own), Some(way)) => {
                (way.workspace - own.workspace, way.time.cast_signed() - own.time.cast_signed())
            }
            _ => (0, 0),
        }
    }

    /// Has `actions` run by these.
    pub(super) fn enter(&self, task: &Task<'_>, actions: &mut [Action]) {
        if self.0.iter().all(|&chosen| chosen == 0) {
            return;
        }
        let mut by_op = vec![0; task.nodes()];
        (0..task.nodes()).for_each(|node| by_op[task.order[node].index()] = self.0[node]);
        for action in actions {
            if let Action::Run { op, algorithm } = action {
                *algorithm = by_op[op.index()];
            }
        }
    }
}

/// The number of the algorithm of `node` for which `rank` is least, the first of several.
fn least<K: Ord>(task: &Task<'_>, node: usize, rank: impl Fn(usize) -> K) -> usize {
    (0..task.ways.row(node).len()).min_by_key(|&at| rank(at)).unwrap_or(0)
}

impl Task<'_> {
    /// Whether an op has several algorithms.
    pub(super) fn has_choices(&self) -> bool {
        (0..self.nodes()).any(|node| !self.ways.row(node).is_empty())
    }

    /// Nodes that have several algorithms.
    pub(super) fn choices(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.node_ids().filter(|node| !self.ways.row(node.index()).is_empty())
    }
}
