//! What is cheap is computed again, outputs of convolutions move where memory is short.
//!
//! Source: Wang, Ye, Zhao, Wu, Li, Song, Xu and Kraska, "SuperNeurons: Dynamic GPU Memory Management for Training Deep
//! Neural Networks", PPoPP 2018. Convolutions, fully connected layers, joins, forks, concatenations and softmax are
//! checkpoints; what lies between two of them is dropped after the forward pass and computed again. Cost-aware: a segment is
//! computed once and kept if its outputs take no more than the largest single layer, else once for each of its layers. The
//! tensor cache moves outputs of convolutions only where memory is short, what was used longest ago first, and fetches them at
//! the convolution before. We differ: liveness alone, with the cache, cost-aware and once for each layer are tried, and the fastest
//! that fits is taken; workspaces are what the graph says. Time O(runs × operands). Wrong choice for transformers, in which all
//! large outputs are those of products.

use memfit_ir::{Bytes, ValueId};

use super::{
    Chooser, Front, Gap, Infeasible, Layer, NodeId, RunList, Scheduler, Task, Window, on_demand, rebuild,
    turn,
};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct SuperNeurons;

impl Scheduler for SuperNeurons {
    fn info(&self) -> Info {
        Info {
            name: "superneurons",
            summary: "runs what is cheap again, moves outputs of convolutions where memory is short",
            source: "Wang et al., SuperNeurons, PPoPP 2018",
            year: 2018,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let keeps = |value: ValueId| is_checkpoint(task, value, turn);
        let bytes = |node: NodeId| -> i64 {
            let made = task.writes_of(node, false).iter();
            made.map(|&value| task.size[value.index()]).sum()
        };
        let largest = largest_layer(task);
        let cost_aware =
            |_: usize, batch: &[NodeId]| batch.iter().map(|&node| bytes(node)).sum::<i64>() <= largest;
        let all = [
            RunList::plain(task),
            rebuild(task, turn, keeps, cost_aware),
            rebuild(task, turn, keeps, |_, _| false),
        ];
        let mut best: Option<Front> = None;
        let mut missed: Option<Infeasible> = None;
        // More runs than that are no plan for anybody, and take long to look at.
        for runs in all.iter().filter(|runs| runs.len() <= task.nodes().saturating_mul(40)) {
            match cached(task, runs, budget, context) {
                Ok(found) if best.as_ref().is_none_or(|best| found.time() < best.time()) => {
                    best = Some(found)
                }
                Ok(_) => {}
                Err(found) if missed.as_ref().is_none_or(|missed| found.needed < missed.needed) => {
                    missed = Some(found);
                }
                Err(_) => {}
            }
        }
        best.ok_or_else(|| missed.unwrap_or_else(|| Infeasible::new(task, budget, None)))
    }
}

/// `runs` with the tensor cache: fetched ahead, or if that is too much, on demand.
fn cached(
    task: &Task<'_>,
    runs: &RunList,
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let mut chooser = Chooser::of(task, runs, budget, context)?;
    let least_recent = |gap: &Gap| task.is_of_convolution(gap.value).then_some((gap.from, -gap.size));
    let windows = on_demand(chooser.step(), chooser.limit(), least_recent);
    let Some(demanded) = windows else { return chooser.found(None) };
    let nodes: Vec<NodeId> = runs.each(task).map(|(node, _)| node).collect();
    let ahead: Vec<Window> = demanded
        .iter()
        .map(|&window| {
            let first = window.gone + 2;
            let convolution = |&at: &usize| task.is_convolution(nodes[at]);
            let back = (first..window.back).rev().find(convolution).unwrap_or(window.back);
            Window { back, ..window }
        })
        .collect();
    let moved = chooser.run_at(&ahead).or_else(|| chooser.run_at(&demanded));
    chooser.found(moved)
}

/// Whether `value` is kept from the forward pass for the backward pass.
fn is_checkpoint(task: &Task<'_>, value: ValueId, turn: usize) -> bool {
    let Some(producer) = task.producer[value.index()] else { return true };
    if task.layer(producer) != Layer::Cheap {
        return true;
    }
    let kind = task.graph.op(task.order[producer.index()]).kind.to_ascii_lowercase();
    let named = ["softmax", "concat", ".cat", "add"].iter().any(|name| kind.contains(name));
    let readers = task.readers.row(value.index()).iter().filter(|&&reader| reader.index() < turn);
    named || kind == "cat" || readers.count() > 1
}

/// The most that a single op reads, makes and takes for itself.
fn largest_layer(task: &Task<'_>) -> i64 {
    let size = |values: &[ValueId]| values.iter().map(|&value| task.size[value.index()]).sum::<i64>();
    let need = |node: NodeId| {
        let reads = size(task.reads_of(node, true));
        reads + size(task.writes_of(node, true)) + task.workspace_of(node, true)
    };
    task.node_ids().map(need).max().unwrap_or(0)
}
