//! What ordering needs of a graph: dependencies, and who brings and takes how many bytes.

use memfit_ir::{Bytes, Graph, InPlace};

use crate::dependencies::Dependencies;
use crate::problem::Problem;

/// A graph reduced to the question of its order, in flat arrays. Made once and shared by all orders.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) problem: Problem,
    pub(super) deps: Dependencies,
    /// By op: outputs and workspace, less the bytes it must take over.
    pub(super) needs: Vec<i64>,
    /// By op: outputs that stay when it's done.
    pub(super) makes: Vec<i64>,
    /// Bytes of all sources, which are there before the first step.
    pub(super) sources: i64,
    /// The same without those that nothing reads or keeps.
    pub(super) start: i64,
    /// Bytes of all results, which are there after the last step.
    pub(super) end: i64,
    /// Whether the program has any step at all.
    steps: bool,
}

impl Model {
    /// The model of `graph` on a device that aligns buffers to `align`, where programs take up in-place pairs
    /// as `in_place` says. Time and space O(ops + operands).
    #[must_use]
    pub fn new(graph: &Graph, align: Bytes, in_place: InPlace) -> Model {
        let problem = Problem::of(graph, align, in_place);
        let is_source = |value: usize| problem.producer[value].is_none();
        let stays = |value: usize| problem.live_out[value] || !problem.readers.row(value).is_empty();
        let (mut needs, mut makes) = (Vec::new(), Vec::new());
        for op in 0..problem.op_count() {
            let outputs = || problem.writes.row(op).iter().map(|value| value.index());
            let taken = problem.demanded(op).iter().map(|pair| problem.bytes[pair.output.index()]);
            let made = outputs().map(|value| problem.bytes[value]).sum::<i64>();
            needs.push(made + problem.workspace[op] - taken.sum::<i64>());
            makes.push(outputs().filter(|&value| stays(value)).map(|value| problem.bytes[value]).sum());
        }
        Model {
            needs,
            makes,
            sources: problem.sum(is_source),
            start: problem.sum(|value| is_source(value) && stays(value)),
            end: problem.sum(|value| problem.live_out[value]),
            steps: problem.op_count() > 0
                || (0..problem.value_count()).any(|value| is_source(value) && !stays(value)),
            deps: Dependencies::of(graph),
            problem,
        }
    }

    /// Number of ops.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.needs.len()
    }

    /// What must run before what.
    #[must_use]
    pub fn dependencies(&self) -> &Dependencies {
        &self.deps
    }

    /// Bytes that are live at some step, whatever the order: before the first op all sources, after the last
    /// one all results.
    pub(super) fn floor(&self) -> i64 {
        let end = if self.op_count() > 0 { self.end } else { 0 };
        if self.steps { self.sources.max(end) } else { 0 }
    }
}

/// An index that is known to be in range of a graph's ids.
pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
