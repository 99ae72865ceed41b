//! Planning a graph instead of a recorded step: the graph in its own order, as if a program had just run it.

use memfit_ir::{Content, Graph, Layout, Nanos, OpId, Program, ValueId};

use super::{Effort, plan};
use crate::engine::{Settings, Stats};
use crate::fault::Fault;
use crate::trace::{Trace, numbering};

/// A program over a graph, and what it costs.
#[derive(Clone, Debug)]
pub struct PlannedGraph {
    /// All ops in the graph's order, with what runs again in between.
    pub program: Program,
    /// Where; `None` if the allocator gives no addresses.
    pub layout: Option<Layout>,
    /// What the virtual run cost.
    pub stats: Stats,
    /// Name of the policy that found it.
    pub by: String,
}

/// The cheapest program for `graph` that was found within `settings.budget`. Only demanded in-place pairs are taken
/// up, and only default algorithms.
///
/// # Errors
///
/// As [`plan`].
pub fn plan_graph(
    graph: &Graph,
    time: impl Fn(OpId) -> Nanos,
    settings: &Settings,
    effort: &Effort,
) -> Result<PlannedGraph, Fault> {
    let planned = plan(&Trace::of_graph(graph, time), settings, effort)?;
    let (mut program, layout) = (planned.recorded.program, planned.recorded.layout);
    // The log counts sources first, then what ops make; the graph counts as it likes.
    let mut value_of = vec![ValueId(0); graph.value_count()];
    for (value, number) in numbering(graph).into_iter().enumerate() {
        if let Some(slot) = value_of.get_mut(number as usize) {
            *slot = ValueId::at(value);
        }
    }
    for buffer in &mut program.buffers {
        if let Content::Value(value) = &mut buffer.content {
            *value = value_of[value.index()];
        }
    }
    Ok(PlannedGraph { program, layout, stats: planned.stats, by: planned.by })
}
