//! Trees and series-parallel parts at their smallest peak, the rest by hills and valleys.
//!
//! An op with one way in and one way out is joined with both; ways with the same ends are merged. A way holds a
//! sequence of ops. Merging cuts each sequence where the fewest bytes are live, interleaves the parts before
//! the cuts by ascending hill, and those after the cuts the same from the end. Source: Liu, "An application of
//! generalized tree pebbling to sparse matrix factorization" (SIAM J. Algebraic Discrete Methods 8, 1987) for
//! trees; Kayaaslan, Lambert, Marchal and Uçar, "Scheduling series-parallel task graphs to minimize peak memory"
//! (Theoretical Computer Science 707, 2018), whose linearisation at the minimum cut this is. We differ in that
//! ops have workspace and many outputs, in that the reduction goes on as far as it can in any graph, and in
//! that what is left is scheduled segment by segment: those that go down by ascending hill, else the one that
//! falls most from its hill.
//!
//! Optimal on trees, either way up, and on series-parallel graphs, if every value has one reader and nothing is
//! in place; else a value is taken to die where it does in the order to start from. O(n log n) time for most
//! graphs, O(n²) at worst. Ties go to the lower `OpId`. The wrong choice for training graphs: what the forward
//! pass saves leaves nothing series-parallel.

use memfit_ir::OpId;

use super::{Model, Order, ways};
use crate::{Context, Info};

pub(super) struct SeriesParallel;

impl Order for SeriesParallel {
    fn info(&self) -> Info {
        Info {
            name: "series-parallel",
            summary: "trees and series-parallel parts at their optimum, by hills and valleys",
            source: "Liu, generalized tree pebbling; Kayaaslan et al., series-parallel task graphs",
            year: 2018,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        let base: Vec<OpId> = (0..model.op_count()).map(OpId::at).collect();
        ways::arrange(model, &base, context)
    }
}
