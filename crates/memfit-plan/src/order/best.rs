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
            let order = order.arrange(model, context);
            let peak = model.highest(&order);
            if peak < known.peak {
                known = Known { order, peak, ..known };
            }
        }
        known.bound = super::bound::strongest(model, &known.order, super::bound::EFFORT);
        let effort = usize::try_from(context.effort).unwrap_or(usize::MAX);
        super::parts::improve(model, &mut known, WORK.saturating_mul(effort), context);
        let mut work = 30_000_000usize.saturating_mul(effort);
        let mut width = 1;
        while known.peak > known.bound && work > 0 && width <= 1024 && !(context.stop)() {
            if let Some(order) =
                super::beam::search(model, known.peak, known.bound, width, &mut work, context)
            {
                known.peak = model.highest(&order);
                known.order = order;
            }
            width *= 4;
        }
        known.order
    }
}

/// What exact search may cost at effort 1: some tenths of a second.
const WORK: usize = 6_000_000;
