//! The order with the smallest peak among all other orders of the table.
//!
//! Never worse than any of them, so never worse than the given order; stops where the lower bound is met.
//! Ties go to the order that stands earlier in the table.

use memfit_ir::OpId;

use super::{Model, ORDERS, Order};
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
        let bound = model.lower_bound();
        let mut best: Option<(memfit_ir::Bytes, Vec<OpId>)> = None;
        for order in ORDERS.iter().filter(|order| order.info().name != self.info().name) {
            let met = best.as_ref().is_some_and(|(peak, _)| *peak <= bound);
            if met || (best.is_some() && (context.stop)()) {
                break;
            }
            let order = order.arrange(model, context);
            let peak = model.peak(&order);
            if best.as_ref().is_none_or(|(least, _)| peak < *least) {
                best = Some((peak, order));
            }
        }
        let Some((peak, order)) = best else { return Vec::new() };
        if peak <= bound || order.len() > super::part::WIDEST {
            return order;
        }
        let mut local = vec![u32::MAX; model.op_count()];
        let part = super::part::Part::new(model, &super::Ledger::new(model), &order, &mut local);
        let limits = super::exact::Limits {
            from: i64::try_from(bound.0).unwrap_or(0),
            below: i64::try_from(peak.0).unwrap_or(0),
            states: 100_000,
            stop: context.stop,
        };
        match super::exact::search(&part, limits) {
            super::exact::Found::Best(_, path) => part.order(&path),
            super::exact::Found::AtLeast(_) => order,
        }
    }
}
