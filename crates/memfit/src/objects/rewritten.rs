//! What became of a graph before there is a plan, as objects for machines.

use memfit_ir::{Device, Graph, ValueId};
use memfit_plan::shard::Sharding;
use memfit_plan::simplify::Finding;
use serde_json::{Value, json};

use super::SCHEMA;
use crate::{Comparison, Figures, Goal, Rank, Simplification};

/// A step that ranks share, beside the one in which each holds everything. `docs/sharding.md` has the keys.
#[must_use]
pub fn sharded(sharding: &Sharding<'_>, device: &Device, found: &Comparison) -> Value {
    let info = sharding.stage.info();
    json!({
        "schema": SCHEMA,
        "command": "shard",
        "status": "done",
        "graph": found.after.graph.name(),
        "graph_digest": found.after.graph.digest().to_string(),
        "device": device.name,
        "ranks": sharding.ranks,
        "stage": info.name,
        "source": info.source,
        "buckets": sharding.buckets,
        "units": sharding.units,
        "link_bytes_per_second": sharding.ring.bandwidth,
        "round_latency_ns": sharding.ring.latency.0,
        "before": rank(&found.before),
        "after": rank(&found.after),
    })
}

fn rank(rank: &Rank) -> Value {
    let Rank { graph, holdings, traffic, live_peak, floor, time } = rank;
    json!({
        "ops": graph.op_count(),
        "values": graph.value_count(),
        "parameter_bytes": holdings.parameters.0,
        "gradient_bytes": holdings.gradients.0,
        "state_bytes": holdings.state.0,
        "model_bytes": holdings.model().0,
        "persistent_bytes": holdings.persistent().0,
        "live_peak_bytes": live_peak.0,
        "lower_bound_bytes": floor.0,
        "sent_bytes": traffic.sent.0,
        "collective_ops": traffic.count,
        "collective_ns": traffic.time.0,
        "time_ns": time.0,
    })
}

/// What simplification made of a graph. Ops and values of `ahead` and `groups` are those of the new graph, others those of the original.
#[must_use]
pub fn simplification(graph: &Graph, goal: &Goal, made: &Simplification) -> Value {
    let figures = |figures: &Figures| {
        json!({
            "ops": figures.ops,
            "values": figures.values,
            "live_peak_bytes": figures.live_peak.0,
            "peak_bytes": figures.peak.0,
            "time_ns": figures.time.0,
        })
    };
    let passes = made.passes.iter().map(|pass| {
        json!({
            "pass": pass.pass,
            "changes": pass.changes,
            "undone": pass.undone,
            "ops": pass.ops,
            "values": pass.values,
            "live_peak_bytes": pass.live.0,
        })
    });
    let removed = (made.rewrite.removed.iter())
        .map(|(op, why)| json!({"op": op.0, "name": graph.op(*op).name, "why": why.name()}));
    let name = |value: &ValueId| graph.value(*value).name;
    let replaced = (made.rewrite.replaced.iter())
        .map(|(value, by)| json!({"value": value.0, "name": name(value), "by": by.0, "by_name": name(by)}));
    let findings = |findings: &[Finding]| -> Vec<Value> { findings.iter().map(finding).collect() };
    json!({
        "schema": SCHEMA,
        "command": "simplify",
        "status": "done",
        "graph": graph.name(),
        "graph_digest": graph.digest().to_string(),
        "simplified_digest": made.rewrite.graph.digest().to_string(),
        "device": goal.device.name,
        "passes": passes.collect::<Vec<_>>(),
        "left_out": made.left_out,
        "before": figures(&made.before),
        "after": figures(&made.after),
        "fused": figures(&made.fused),
        "removed": removed.collect::<Vec<_>>(),
        "replaced": replaced.collect::<Vec<_>>(),
        "ahead": findings(&made.ahead),
        "groups": findings(&made.groups),
        "verified": true,
        "seed": goal.options.seed,
    })
}

fn finding(finding: &Finding) -> Value {
    let values = |list: &[ValueId]| list.iter().map(|value| value.0).collect::<Vec<_>>();
    json!({
        "ops": finding.ops.iter().map(|op| op.0).collect::<Vec<_>>(),
        "results": values(&finding.results),
        "inner": values(&finding.inner),
        "moved_bytes": finding.moved.0,
        "time_ns": finding.time.0,
    })
}
