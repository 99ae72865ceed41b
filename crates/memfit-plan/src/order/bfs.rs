//! Breadth first: among the ops that are ready, the one whose inputs are oldest.
//!
//! Source: PyTorch Inductor, `reorder_for_peak_memory`, `topological_sort_bfs` (2024): the key of an op is the
//! ascending list of the positions of the ops it depends on. No bound on the peak; O((n + e) log n) time.
//! Ties go to the lower `OpId`. Good where short lifetimes are what counts; the wrong choice for wide graphs,
//! whose branches it runs abreast.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use memfit_ir::OpId;

use super::{Model, Order};
use crate::{Context, Info};

pub(super) struct Bfs;

impl Order for Bfs {
    fn info(&self) -> Info {
        Info {
            name: "bfs",
            summary: "breadth first: the ready op whose inputs are oldest",
            source: "PyTorch Inductor, reorder_for_peak_memory",
            year: 2024,
        }
    }

    fn arrange(&self, model: &Model, _: &Context<'_>) -> Vec<OpId> {
        let deps = model.dependencies();
        let mut waiting: Vec<usize> =
            (0..model.op_count()).map(|op| deps.preds(OpId::at(op)).len()).collect();
        let mut position = vec![usize::MAX; model.op_count()];
        let mut ready: BinaryHeap<Reverse<(Vec<usize>, OpId)>> = BinaryHeap::new();
        ready.extend(
            (0..model.op_count()).filter(|&op| waiting[op] == 0).map(|op| Reverse((vec![], OpId::at(op)))),
        );
        let mut order = Vec::with_capacity(model.op_count());
        while let Some(Reverse((_, op))) = ready.pop() {
            position[op.index()] = order.len();
            order.push(op);
            for &next in deps.succs(op) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    let mut key: Vec<usize> =
                        deps.preds(next).iter().map(|before| position[before.index()]).collect();
                    key.sort_unstable();
                    ready.push(Reverse((key, next)));
                }
            }
        }
        order
    }
}
