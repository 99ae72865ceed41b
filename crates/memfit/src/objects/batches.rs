//! The largest batch that fits, as an object for machines.

use serde_json::{Value, json};

use super::SCHEMA;
use crate::{Goal, Largest, Tried};

/// What [`largest`](crate::largest()) found for the step called `name`. Batches are in rows; 0 stands for none.
#[must_use]
pub fn largest(name: &str, goal: &Goal, found: &Largest) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "plan",
        "status": if found.within > 0 { "fits" } else { "infeasible" },
        "graph": name,
        "device": goal.device.name,
        "budget_bytes": found.budget.0,
        "rows": found.rows,
        "base_max_batch": found.without,
        "max_batch": found.within,
        "max_overhead": found.overhead,
        "complete": !found.cut,
        "tried": found.tried.iter().map(tried).collect::<Vec<_>>(),
        "seed": goal.options.seed,
    })
}

fn tried(tried: &Tried) -> Value {
    let Tried { rows, without, plan } = tried;
    json!({
        "rows": rows,
        "base_live_peak_bytes": without.0,
        "strategy": plan.as_ref().map(|plan| &plan.strategy),
        "peak_bytes": plan.as_ref().map(|plan| plan.peak.0),
        "time_ns": plan.as_ref().map(|plan| plan.time.0),
        "base_time_ns": plan.as_ref().map(|plan| plan.base_time.0),
        "overhead": plan.as_ref().map(|plan| plan.overhead()),
    })
}
