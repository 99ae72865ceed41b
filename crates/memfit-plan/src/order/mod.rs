//! Ordering: in which order the ops of a graph run.

use memfit_ir::{Graph, OpId};

use crate::{Context, Info};

/// Chooses an order of a graph's ops with a small peak of live bytes.
pub trait Order: Sync {
    /// What people are told about this order.
    fn info(&self) -> Info;

    /// A permutation of the graph's ops in which every op comes after all it depends on: the ops that define
    /// its inputs, the readers of a storage it mutates, and the effects before its own.
    fn order(&self, graph: &Graph, context: &Context<'_>) -> Vec<OpId>;
}

/// Every order, cheapest first. This order is the order of the manual.
pub const ORDERS: &[&dyn Order] = &[];
