//! The order with the smallest peak among all other orders of the table.
//!
//! Never worse than any of them, so never worse than the given order; stops where the lower bound is met.
//! Ties go to the order that stands earlier in the table.

use memfit_ir::OpId;

use super::{Known, Model, ORDERS, Order};
use crate::{Context, Info};

pub(super) struct Best;

impl Order for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "the smallest peak that the other orders and a search find",
            source: "memfit",
            year: 2026,
        }
    }

    fn arrange(&self, model: &Model, context: &Context<'_>) -> Vec<OpId> {
        let lists = ORDERS.iter().filter(|order| order.info().name != self.info().name);
        let mut known = Known { order: Vec::new(), peak: i64::MAX, bound: super::bound::of(model) };
        for order in lists {
            if known.peak < i64::MAX && (known.peak <= known.bound || (context.stop)()) {
                break;
            }
            known.offer(model, order.arrange(model, context));
        }
        known.bound = super::bound::strongest(model, &known.order, super::bound::EFFORT);
        if known.peak > known.bound {
            // Values now die where they do in the best order so far.
            known.offer(model, super::series_parallel::arrange(model, &known.order));
        }
        let effort = usize::try_from(context.effort).unwrap_or(usize::MAX);
        let mut work = WORK.saturating_mul(effort);
        super::parts::improve(model, &mut known, work / 4, context);
        for turn in 0.. {
            if known.peak <= known.bound || work == 0 || (context.stop)() {
                break;
            }
            let shape = (1 << (turn / 2 * 2), turn % 2 == 1);
            if let Some(order) =
                super::beam::search(model, known.peak, known.bound, shape, &mut work, context)
            {
                known.offer(model, order);
                super::parts::improve(model, &mut known, WORK / 4, context);
            } else if shape.0 > model.op_count() * 64 {
                break;
            }
        }
        known.order
    }
}

/// What search may cost at effort 1, in ops looked at: some tenths of a second.
const WORK: usize = 20_000_000;
