//! Results as JSON objects: what `--json` prints and what the Python classes hold, said once for all faces.
//!
//! Keys that several objects share mean the same in all of them. Sizes are in bytes, times in nanoseconds.

use memfit_formats::device_toml;
use memfit_formats::plan_json::PlanFile;
use memfit_ir::{Bytes, Codec, Graph, Tier};
use memfit_plan::FAMILIES;
use memfit_verify::{Rejected, Verified};
use serde_json::{Value, json};

use crate::explain::{Remedy, Share};
use crate::failure::Infeasible;
use crate::{Explanation, Failure, Floor, Goal, Outcome, PlaceGoal, Placed, SnapshotExplanation, Summary};

mod batches;
mod rewritten;

pub use batches::largest;
pub use rewritten::{sharded, simplification};

/// The one schema of results and errors: `command` says whose they are, `status` how it ended.
pub const SCHEMA: &str = "memfit-result/1";

/// What is told about a plan.
#[must_use]
pub fn plan(graph: &Graph, goal: &Goal, summary: &Summary) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "plan",
        "status": "fits",
        "strategy": summary.strategy,
        "instead": instead(summary),
        "graph": graph.name(),
        "graph_digest": graph.digest().to_string(),
        "device": goal.device.name,
        "ops": graph.op_count(),
        "values": graph.value_count(),
        "budget_bytes": summary.budget.0,
        "peak_bytes": summary.peak.0,
        "live_peak_bytes": summary.live_peak.0,
        "lower_bound_bytes": summary.lower_bound.0,
        "unconstrained_peak_bytes": summary.unconstrained_peak.0,
        "naive_bytes": summary.naive.0,
        "persistent_bytes": summary.persistent.0,
        "parked_bytes": summary.parked.0,
        "time_ns": summary.time.0,
        "base_time_ns": summary.base_time.0,
        "overhead": summary.overhead(),
        "recompute_ns": summary.recompute.0,
        "time_bound_ns": summary.time_bound.0,
        "offload_bytes": summary.offloaded.0,
        "host_peak_bytes": summary.host_peak.0,
        "disk_peak_bytes": summary.disk_peak.0,
        "link_out_ns": summary.links.iter().map(|[out, _]| out.0).sum::<u64>(),
        "link_in_ns": summary.links.iter().map(|[_, back]| back.0).sum::<u64>(),
        "links": links(summary),
        "stall_ns": summary.stall.0,
        "held_by": summary.held_by,
        "encoded_bytes": summary.encoded.0,
        "codec_ns": summary.codec.0,
        "lossy": names(&summary.lossy),
        "lossy_allowed": names(&goal.options.lossy),
        "lanes": summary.lanes.map_or(1, |lanes| lanes.count),
        "added_dependencies": summary.lanes.map_or(0, |lanes| lanes.added_dependencies),
        "planning_seconds": summary.planning_seconds,
        "verified": true,
        "seed": goal.options.seed,
    })
}

/// How busy the link to each tier is: time that it carries something, and that over the step time.
fn links(summary: &Summary) -> Vec<Value> {
    let row = |(tier, name): &(Tier, &str)| {
        let ([out, back], [out_share, back_share]) = (summary.links[tier.index()], summary.busy(*tier));
        json!({"tier": name, "out_ns": out.0, "in_ns": back.0, "out_busy": out_share, "in_busy": back_share})
    };
    Tier::ALL.iter().map(row).collect()
}

/// What moving values comes to, into the row of a table.
fn moved(row: &mut Value, summary: &Summary) {
    row["offload_bytes"] = summary.offloaded.0.into();
    row["host_peak_bytes"] = summary.host_peak.0.into();
    row["disk_peak_bytes"] = summary.disk_peak.0.into();
    row["links"] = links(summary).into();
    row["stall_ns"] = summary.stall.0.into();
    row["held_by"] = summary.held_by.clone().into();
}

/// The strategy that was asked and did not do its work, why, and what was used; null where it did.
fn instead(summary: &Summary) -> Value {
    summary.instead.as_ref().map_or(
        Value::Null,
        |instead| json!({"strategy": instead.strategy, "why": instead.why, "used": instead.used}),
    )
}

/// That the verifier accepts a plan. `budget` is the one that replaced the file's.
#[must_use]
pub fn check(file: &PlanFile, verified: &Verified, budget: Option<Bytes>) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "check",
        "status": "fits",
        "strategy": file.header.strategy,
        "budget_bytes": budget.unwrap_or(file.header.budget).0,
        "peak_bytes": peak_of(file, verified).0,
        "host_peak_bytes": verified.tier_peak(Tier::Host).0,
        "disk_peak_bytes": verified.tier_peak(Tier::Disk).0,
        "lossy": names(&verified.plan().program.lossy()),
        "lossy_allowed": names(&file.header.lossy),
        "verified": true,
    })
}

/// The peak of a plan that was accepted, as `plan` tells it: up to the alignment, where the file says that there is one.
#[must_use]
pub fn peak_of(file: &PlanFile, verified: &Verified) -> Bytes {
    verified.peak().max(file.header.peak)
}

/// Names of codecs.
fn names(codecs: &[Codec]) -> Vec<&'static str> {
    codecs.iter().map(|codec| codec.name()).collect()
}

/// Where the memory of a step goes.
#[must_use]
pub fn explanation(graph: &Graph, found: &Explanation) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "explain",
        "status": "done",
        "graph": found.graph,
        "ops": found.ops,
        "values": found.values,
        "flops": found.flops,
        "time_ns": found.time.0,
        "static_bytes": found.fixed_bytes.0,
        "static": shares(&found.fixed),
        "dynamic_peak_bytes": found.live_peak.saturating_sub(found.fixed_bytes).0,
        "live_peak_bytes": found.live_peak.0,
        "lower_bound_bytes": found.floor.bytes.0,
        "floor_bytes": found.floor.bytes.0,
        "largest_step": found.floor.op.map(|op| graph.op(op).name),
        "largest_working_set_bytes": found.floor.bytes.saturating_sub(found.floor.persistent).0,
        "peak_op": found.peak_op.map(|op| json!({
            "index": op.0,
            "name": graph.op(op).name,
            "kind": graph.op(op).kind,
            "module": graph.op(op).module,
            "phase": graph.op(op).phase.name(),
        })),
        "live_bytes": found.live.iter().map(|live| live.0).collect::<Vec<_>>(),
        "peak_by_role": shares(&found.by_role),
        "peak_by_module": shares(&found.by_module),
        "peak_by_kind": shares(&found.by_kind),
        "top": found.top.iter().map(|holder| json!({
            "name": holder.name,
            "role": holder.role.name(),
            "bytes": holder.bytes.0,
            "shape": holder.shape,
            "made_by": holder.made_by,
            "module": holder.module,
            "last_read_by": holder.last_read_by,
        })).collect::<Vec<_>>(),
        "held_by": found.held_by,
        "remedies": found.remedies.iter().map(remedy).collect::<Vec<_>>(),
    })
}

fn remedy(remedy: &Remedy) -> Value {
    let mut row = json!({"name": remedy.name, "what": remedy.what, "peak_bytes": remedy.peak.0});
    if let Some(summary) = &remedy.moved {
        moved(&mut row, summary);
    }
    row
}

/// Where the memory of a device went.
#[must_use]
pub fn snapshot(found: &SnapshotExplanation) -> Value {
    let held = &found.held;
    json!({
        "schema": SCHEMA,
        "command": "explain",
        "status": "done",
        "device": found.device,
        "devices": found.devices,
        "events": found.events,
        "allocations": found.allocations,
        "out_of_memory": found.failed.map(|(requested, left)| json!({
            "requested_bytes": requested.0,
            "device_free_bytes": left.map(|left| left.0),
        })),
        "held": {
            "reserved_bytes": held.reserved.0,
            "allocated_bytes": held.allocated.0,
            "requested_bytes": held.requested.0,
            "awaiting_bytes": held.awaiting.0,
            "free_bytes": held.free.0,
            "largest_free_bytes": held.largest_free.0,
            "free_blocks": held.free_blocks,
            "segments": held.segments,
            "private_bytes": held.private.0,
            "expandable": held.expandable,
        },
        "reserved_peak_bytes": found.peak_reserved.0,
        "live_peak_bytes": found.live_peak.0,
        "peak_event": found.peak_event,
        "peak_by_role": shares(&found.by_role),
        "peak_by_frame": shares(&found.by_frame),
        "top": found.top.iter().map(|holder| json!({
            "bytes": holder.bytes.0,
            "role": holder.role.name(),
            "frame": holder.frame,
            "stack": holder.stack,
            "from_before": holder.from_before,
            "failed": holder.failed,
        })).collect::<Vec<_>>(),
        "remedies": found.remedies.iter().map(|remedy| json!({
            "name": remedy.name,
            "what": remedy.what,
            "peak_bytes": remedy.peak.0,
            "certainty": remedy.certainty.name(),
        })).collect::<Vec<_>>(),
    })
}

fn shares(shares: &[Share]) -> Vec<Value> {
    let row = |share: &Share| json!({"name": share.name, "bytes": share.bytes.0, "buffers": share.count});
    shares.iter().map(row).collect()
}

/// What no plan that keeps persistent storages on the device goes below.
#[must_use]
pub fn floor(graph: &Graph, floor: &Floor) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "floor",
        "status": "done",
        "graph": graph.name(),
        "floor_bytes": floor.bytes.0,
        "persistent_bytes": floor.persistent.0,
        "largest_step": floor.op.map(|op| graph.op(op).name),
        "largest_working_set_bytes": floor.bytes.saturating_sub(floor.persistent).0,
    })
}

/// Offsets for `buffers` buffers; they are written elsewhere.
#[must_use]
pub fn placed(buffers: usize, goal: &PlaceGoal, placed: &Placed) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "place",
        "status": "fits",
        "strategy": format!("place:{}", goal.placer),
        "buffers": buffers,
        "budget_bytes": goal.capacity.map(|capacity| capacity.0),
        "peak_bytes": placed.peak.0,
        "live_peak_bytes": placed.live_peak.0,
        "lower_bound_bytes": placed.lower_bound.0,
        "naive_bytes": placed.naive.0,
        "planning_seconds": placed.seconds,
        "verified": true,
        "seed": goal.seed,
    })
}

/// A row for each strategy.
#[must_use]
pub fn compared(graph: &Graph, goal: &Goal, outcomes: &[Outcome]) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "compare",
        "status": "done",
        "graph": graph.name(),
        "budget": goal.budget.to_string(),
        "rows": outcomes.iter().map(outcome).collect::<Vec<_>>(),
    })
}

/// A row for each budget.
#[must_use]
pub fn swept(graph: &Graph, goal: &Goal, outcomes: &[Outcome]) -> Value {
    json!({
        "schema": SCHEMA,
        "command": "sweep",
        "status": "done",
        "graph": graph.name(),
        "floor_bytes": Floor::of(graph, goal.device.align).bytes.0,
        "rows": outcomes.iter().map(outcome).collect::<Vec<_>>(),
    })
}

fn outcome(outcome: &Outcome) -> Value {
    let mut row = json!({"name": outcome.name, "planning_seconds": outcome.seconds});
    if let Some(host) = outcome.host_budget {
        row["host_budget_bytes"] = host.0.into();
    }
    match &outcome.result {
        Ok(summary) => {
            row["status"] = "fits".into();
            row["strategy"] = summary.strategy.clone().into();
            row["instead"] = instead(summary);
            row["budget_bytes"] = summary.budget.0.into();
            row["peak_bytes"] = summary.peak.0.into();
            row["live_peak_bytes"] = summary.live_peak.0.into();
            row["lower_bound_bytes"] = summary.lower_bound.0.into();
            row["time_ns"] = summary.time.0.into();
            row["base_time_ns"] = summary.base_time.0.into();
            row["overhead"] = summary.overhead().into();
            row["recompute_ns"] = summary.recompute.0.into();
            moved(&mut row, summary);
            row["verified"] = true.into();
        }
        Err(Failure::Infeasible(why)) => {
            row["status"] = "infeasible".into();
            row["budget_bytes"] = why.budget.0.into();
            row["needed_bytes"] = why.needed.0.into();
            row["proved"] = why.proved.into();
            row["verified"] = false.into();
        }
        Err(Failure::Timeout(None)) => {
            row["status"] = "not-tried".into();
            row["verified"] = false.into();
        }
        Err(Failure::Timeout(Some(so_far))) => {
            row["status"] = "timeout".into();
            row["budget_bytes"] = so_far.budget.0.into();
            row["needed_bytes"] = so_far.needed.0.into();
            row["verified"] = false.into();
        }
        Err(failure) => {
            row["status"] = "unsupported".into();
            row["error"] = failure.to_string().into();
            row["verified"] = false.into();
        }
    }
    row
}

/// Every strategy there is, by family: what it does and where it comes from; and the devices that have a name.
#[must_use]
pub fn strategies() -> Value {
    let families = FAMILIES.iter().map(|family| {
        json!({
            "name": family.name,
            "summary": family.summary,
            "means": family.means.names(),
            "online": family.online,
            "default": family.default,
            "page": family.page,
        })
    });
    let rows = FAMILIES.iter().flat_map(|family| {
        family.infos().into_iter().map(|info| {
            json!({
                "family": family.name,
                "name": info.name,
                "summary": info.summary,
                "source": info.source,
                "year": info.year,
            })
        })
    });
    let devices = device_toml::presets().iter().map(|preset| {
        json!({
            "name": preset.device.name,
            "memory_bytes": preset.device.memory.0,
            "source": preset.source,
        })
    });
    json!({
        "schema": SCHEMA,
        "command": "strategies",
        "status": "done",
        "families": families.collect::<Vec<_>>(),
        "strategies": rows.collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
    })
}

/// What a failure carries beside its message: the budget that would do, or what the verifier says. An empty object
/// where the message says it all.
#[must_use]
pub fn failure(failure: &Failure) -> Value {
    match failure {
        Failure::Infeasible(why) | Failure::Timeout(Some(why)) => infeasible(why),
        Failure::Rejected(rejected) | Failure::Bug { rejected, .. } => violations(rejected),
        Failure::Usage { .. }
        | Failure::Input(_)
        | Failure::OtherGraph { .. }
        | Failure::Resources { .. }
        | Failure::Timeout(None) => json!({}),
    }
}

fn infeasible(why: &Infeasible) -> Value {
    let mut object = json!({
        "budget_bytes": why.budget.0,
        "needed_bytes": why.needed.0,
        "floor_bytes": why.floor.0,
        "held_by": why.witness.as_ref().filter(|_| why.moves && why.proved).map(|witness| &witness.name),
        "lower_bound_bytes": why.least.0,
        "proved": why.proved,
        "why": why.why,
        "verified": false,
    });
    if let Some(witness) = &why.witness {
        let operands = |list: &[(String, Bytes)]| -> Vec<Value> {
            list.iter().map(|(name, bytes)| json!({"value": name, "bytes": bytes.0})).collect()
        };
        object["witness"] = json!({
            "op": witness.op,
            "name": witness.name,
            "kind": witness.kind,
            "reads": operands(&witness.reads),
            "writes": operands(&witness.writes),
            "workspace_bytes": witness.workspace.0,
            "resident_bytes": witness.resident.0,
        });
    }
    object
}

fn violations(rejected: &Rejected) -> Value {
    let rows = rejected.violations.iter().map(|violation| {
        json!({
            "rule": violation.rule.to_string(),
            "step": violation.step,
            "message": violation.message,
        })
    });
    json!({"violations": rows.collect::<Vec<_>>(), "verified": false})
}
