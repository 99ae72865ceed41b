//! The lowest of all other orders, then search, until a bound is met or the work is spent.
//!
//! First every other order of the table; then lower bounds by what must be live around the highest ops and by
//! minimum cuts (`order/bound.rs`), which on training graphs mostly meet the best list order: that ends it. Else
//! series-parallel parts once more, with values that die where they do in the best order so far; exact search of
//! the part that holds the peak (`order/parts.rs`); and beams (`order/beam.rs`), forwards and backwards, of width
//! 1, 4, 16 …, each improvement searched by parts again. Source: the portfolio of PyTorch Inductor's
//! `reorder_for_peak_memory`, which takes the least *estimate* of four orders; ours are counted exactly, and
//! improved.
//!
//! Never worse than any other order of the table, so never worse than the given order. Optimal where the whole
//! graph, or the part between two waists that holds the peak, has at most 2048 ops and is not too wide; also
//! where the bound is met. Deterministic: work is counted, in ops looked at, and scales with the context's
//! effort; only a time limit makes it depend on the machine. O(n log n) and the work allowed. Ties go to the
//! order that stands earlier in the table. The wrong choice where the order must stay as it is: `given`.

use memfit_ir::OpId;

use super::{Known, Model, ORDERS, Order, bound};
use crate::{Context, Info};

pub(super) struct Best;

impl Order for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "the lowest of all other orders, then exact and beam search",
            source: "memfit; portfolio after PyTorch Inductor, search after Serenity",
            year: 2026,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        search(model, context).order
    }
}

/// What [`super::best()`] says, in the numbers of the search.
pub(super) fn search(model: &Model, context: &Context<'_>) -> Known {
    let lists = ORDERS.iter().filter(|order| order.info().name != Best.info().name);
    let mut known = Known { order: Vec::new(), peak: i64::MAX, bound: bound::of(model) };
    for order in lists {
        if known.peak < i64::MAX && (known.peak <= known.bound || (context.stop)()) {
            break;
        }
        let first = known.order.is_empty();
        known.offer(model, order.arrange(model, context));
        if first {
            known.bound = bound::strongest(model, &known.order, bound::EFFORT / 20, context.stop);
        }
    }
    if known.peak > known.bound {
        known.bound = bound::strongest(model, &known.order, bound::EFFORT, context.stop).max(known.bound);
    }
    if known.peak > known.bound && !(context.stop)() {
        // Values now die where they do in the best order so far.
        known.offer(model, super::ways::arrange(model, &known.order, context));
    }
    let effort = usize::try_from(context.effort).unwrap_or(usize::MAX);
    let mut work = WORK.saturating_mul(effort);
    super::parts::improve(model, &mut known, &mut work, context);
    for turn in 0.. {
        if known.peak <= known.bound || work == 0 || (context.stop)() {
            break;
        }
        let shape = (1 << (turn / 2 * 2), turn % 2 == 1); // Width 1, 4, 16 …, forwards and backwards.
        if shape.0 * (model.problem.value_count() + model.op_count()) > LARGEST_BEAM {
            break;
        }
        if let Some(order) = super::beam::search(model, known.peak, known.bound, shape, &mut work, context) {
            known.offer(model, order);
            super::parts::improve(model, &mut known, &mut work, context);
        }
    }
    known
}

/// What search may cost at effort 1, in ops looked at: some tenths of a second.
const WORK: usize = 24_000_000;

/// Numbers that a beam may hold.
const LARGEST_BEAM: usize = 1 << 26;
