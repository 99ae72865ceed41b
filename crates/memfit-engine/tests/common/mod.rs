//! What several tests share: the recorded logs as traces, and a host that computes.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

pub(crate) mod numbers;
pub(crate) mod plans;
pub(crate) mod training;

use memfit_engine::Output;
use memfit_engine::replay::{Event, Trace};
use memfit_formats::simrd::{self, Log, LogEvent};
use memfit_ir::{Bytes, Effect, Role};

/// The recorded steps, by the names of their files.
pub(crate) const LOGS: [&str; 4] = ["unet", "resnet32", "transformer", "lstm"];

/// The trace of a log of DTR's simulator.
pub(crate) fn trace(log: &Log) -> Trace {
    let event = |event: &LogEvent| {
        Some(match event {
            LogEvent::Constant { size } => Event::Put { size: *size, role: Role::Constant },
            LogEvent::Call { kind, reads, results, time } => Event::Call {
                kind: *kind,
                reads: reads.clone(),
                outputs: results.iter().map(|r| r.view.map_or(Output::Fresh(r.size), Output::View)).collect(),
                time: *time,
                workspace: Bytes::ZERO,
                effect: Effect::Pure,
            },
            LogEvent::Share(tensor) => Event::Share(*tensor),
            LogEvent::Release(tensor) => Event::Release(*tensor),
            LogEvent::Backward => return None,
        })
    };
    let events = log.events.iter().filter_map(event).collect();
    Trace { events, kinds: log.kinds.clone(), held: log.held.clone(), ..Trace::default() }
}

/// The recorded step called `name`; says so where the data is absent.
pub(crate) fn recorded(name: &str) -> Option<Trace> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/dtr-logs");
    let Ok(bytes) = std::fs::read(format!("{folder}/{name}.log")) else {
        println!("SKIPPED: `shared/data/dtr-logs/{name}.log` is not there");
        return None;
    };
    Some(trace(&simrd::read(&bytes).expect("the shared logs are well-formed")))
}

/// Integer part of the f64 product, as the simulator has it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a budget below 2^53")]
pub(crate) fn part(peak: Bytes, ratio: f64) -> Bytes {
    Bytes((peak.0 as f64 * ratio) as u64)
}
