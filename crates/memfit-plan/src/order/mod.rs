//! Ordering: in which order the ops of a graph run.

mod beam;
mod best;
mod bfs;
mod bound;
mod cut;
mod dfs;
mod exact;
mod flow;
mod given;
mod ledger;
mod list;
mod lpmf;
mod memory_greedy;
mod model;
mod part;
mod parts;
mod ready;
mod reverse_dfs;
mod segments;
mod series_parallel;
mod walk;
mod ways;

pub use ledger::Ledger;
pub use model::Model;

use memfit_ir::{Bytes, Graph, InPlace, OpId};

use crate::problem::bytes;
use crate::{Context, Info};

/// Chooses an order of a graph's ops with a small peak of live bytes.
pub trait Order: Sync {
    /// What people are told about this order.
    fn info(&self) -> Info;

    /// A permutation of the model's ops which its dependencies allow: every op comes after the ops that define
    /// its inputs, after the readers of a storage it mutates, and after the effects before its own.
    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId>;

    /// The same for a graph whose programs take up every in-place pair they may ([`InPlace::May`]) on the
    /// context's device.
    fn order(&self, graph: &Graph, context: &Context<'_>) -> Vec<OpId> {
        self.arrange(&Model::new(graph, context.device.align, InPlace::May), context)
    }
}

/// What a search has and improves: an order, its peak, and a bound that no order is under.
struct Known {
    order: Vec<OpId>,
    peak: i64,
    bound: i64,
}

impl Known {
    /// Takes `order` if it is better.
    fn offer(&mut self, model: &Model, order: Vec<OpId>) {
        let peak = model.highest(&order);
        if peak < self.peak {
            (self.order, self.peak) = (order, peak);
        }
    }
}

/// Every order, cheapest first. This order is the order of the manual.
pub const ORDERS: &[&dyn Order] = &[
    &given::Given,
    &bfs::Bfs,
    &dfs::Dfs,
    &reverse_dfs::ReverseDfs,
    &memory_greedy::MemoryGreedy,
    &memory_greedy::ReverseGreedy,
    &lpmf::Lpmf,
    &lpmf::ReverseLpmf,
    &series_parallel::SeriesParallel,
    &best::Best,
];

/// An order with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The ops.
    pub order: Vec<OpId>,
    /// The largest sum of live bytes in this order.
    pub peak: Bytes,
    /// No order has a smaller peak than this. Equal to `peak`: the order is proved optimal.
    pub bound: Bytes,
}

/// What the order `best` finds until it is stopped, with its bound.
#[must_use]
pub fn best(model: &Model, context: &Context<'_>) -> Ordered {
    let Known { order, peak, bound } = best::search(model, context);
    let peak = bytes(peak);
    Ordered { order, peak, bound: bytes(bound).min(peak) }
}

/// The order called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Order> {
    ORDERS.iter().copied().find(|order| order.info().name == name)
}

/// The largest sum of live bytes when the ops of `graph` run in `order`, which its dependencies allow. Equal
/// to the peak of [`crate::liveness::Profile`] over [`memfit_ir::Program::in_order`], but without the program.
/// Many orders of one graph: make one [`Model`] and ask [`Model::peak`].
#[must_use]
pub fn peak(graph: &Graph, order: &[OpId], align: Bytes, in_place: InPlace) -> Bytes {
    Model::new(graph, align, in_place).peak(order)
}

/// No order of `graph` has a smaller peak, see [`Model::lower_bound`].
#[must_use]
pub fn lower_bound(graph: &Graph, align: Bytes) -> Bytes {
    Model::new(graph, align, InPlace::May).lower_bound()
}
