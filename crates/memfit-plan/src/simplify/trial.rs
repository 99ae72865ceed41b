//! Keeps of what is proposed what does not raise the peak.
//!
//! The peak is the largest sum of live bytes in the graph's own order, with in-place pairs taken up and without. Everything is tried
//! at once; where that is higher, by halves. Every trial makes the graph anew, so their number is bounded; what is not tried
//! is not done. The same input gives the same graph.

use memfit_ir::{Bytes, Graph, GraphError, InPlace, OpId};

use super::Finding;
use crate::order::Model;

/// Ops that the trials of one pass go over, all together.
const MOST_WORK: usize = 2_000_000;
/// The most trials of one pass.
const MOST_TRIALS: usize = 400;

/// Largest sums of live bytes in the graph's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peaks {
    /// In place only where the graph demands it.
    pub(super) must: Bytes,
    /// In place wherever it may be.
    pub(super) may: Bytes,
}

impl Peaks {
    /// Those of `graph`. Time O(ops + operands).
    pub(super) fn of(graph: &Graph, align: Bytes) -> Peaks {
        let order: Vec<OpId> = graph.op_ids().collect();
        let [must, may] =
            [InPlace::Must, InPlace::May].map(|in_place| Model::new(graph, align, in_place).peak(&order));
        Peaks { must, may }
    }

    fn allow(self, other: Peaks) -> bool {
        other.must <= self.must && other.may <= self.may
    }
}

/// Those of `findings` that may be told: what `make` makes of the graph with them has no higher peak.
pub(super) fn kept(
    graph: &Graph,
    align: Bytes,
    findings: Vec<Finding>,
    make: fn(&Graph, &[Finding]) -> Result<Graph, GraphError>,
) -> Vec<Finding> {
    if findings.is_empty() {
        return findings;
    }
    let now = (graph.op_count(), align, Peaks::of(graph, align));
    let make = |findings: &[Finding]| make(graph, findings).ok();
    let mut trial = Trial::new(now, |made: &Graph| made, &make);
    trial.take(&findings);
    trial.kept
}

/// Things of one pass, tried together and apart.
pub(super) struct Trial<'a, T, M> {
    /// What they make of the graph; `None` where they contradict each other.
    make: &'a dyn Fn(&[T]) -> Option<M>,
    graph_of: fn(&M) -> &Graph,
    align: Bytes,
    left: usize,
    /// The peaks so far.
    pub(super) peaks: Peaks,
    /// What is kept.
    pub(super) kept: Vec<T>,
    /// What that makes, if it is anything.
    pub(super) made: Option<M>,
}

impl<'a, T: Clone, M> Trial<'a, T, M> {
    /// Nothing is kept yet of a graph of so many ops.
    pub(super) fn new(
        (ops, align, peaks): (usize, Bytes, Peaks),
        graph_of: fn(&M) -> &Graph,
        make: &'a dyn Fn(&[T]) -> Option<M>,
    ) -> Self {
        let left = (MOST_WORK / ops.max(1)).clamp(4, MOST_TRIALS);
        Trial { make, graph_of, align, left, peaks, kept: Vec::new(), made: None }
    }

    /// Keeps of `things` what it can.
    pub(super) fn take(&mut self, things: &[T]) {
        if things.is_empty() || self.left == 0 {
            return;
        }
        self.left -= 1;
        let all = [self.kept.as_slice(), things].concat();
        if let Some(made) = (self.make)(&all) {
            let peaks = Peaks::of((self.graph_of)(&made), self.align);
            if self.peaks.allow(peaks) {
                (self.kept, self.made, self.peaks) = (all, Some(made), peaks);
                return;
            }
        }
        if things.len() > 1 {
            let (first, second) = things.split_at(things.len() / 2);
            self.take(first);
            self.take(second);
        }
    }
}
