//! The report as Chrome's trace events, which Perfetto and `chrome://tracing` open.
//!
//! Source: "Trace Event Format" (Google, 2016): complete events (`X`), counters (`C`) and names of threads (`M`). Times are in
//! microseconds, with the nanoseconds behind the point.

use serde_json::{Value, json};

use super::model::Report;

/// A JSON object with `traceEvents`.
#[must_use]
pub fn chrome_trace(report: &Report) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let name = |kind: &str, thread: usize, name: &str| json!({"ph": "M", "pid": 1, "tid": thread, "name": kind, "args": {"name": name}});
    let mut events = vec![name("process_name", 0, &super::model::shown_name(&report.title))];
    for (at, lane) in report.lanes.iter().enumerate() {
        events.push(name("thread_name", at + 1, &lane.name));
    }
    for slice in &report.slices {
        events.push(json!({
            "ph": "X",
            "pid": 1,
            "tid": slice.lane + 1,
            "name": report.names.get(slice.name),
            "cat": slice.kind.name(),
            "ts": micros(slice.start.0),
            "dur": micros(slice.time.0),
            "args": {"bytes": slice.bytes.0},
        }));
    }
    let roles = report.live_by_role();
    for at in 0..report.instants {
        let changes = |(_, live): &(_, Vec<memfit_ir::Bytes>)| at == 0 || live[at] != live[at - 1];
        if roles.iter().any(changes) {
            let args: serde_json::Map<String, Value> = roles
                .iter()
                .map(|(role, live)| (report.names.get(*role).to_owned(), live[at].0.into()))
                .collect();
            events.push(json!({
                "ph": "C", "pid": 1, "name": "live bytes", "ts": micros(report.time_of(at).0), "args": args,
            }));
        }
    }
    json!({"displayTimeUnit": "ns", "traceEvents": events})
}
