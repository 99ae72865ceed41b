//! `cargo xtask bench plan`: every corpus graph through the front door.

use std::time::Instant;

use anyhow::Result;
use memfit::{Budget, Goal, Tools, input, plan};

use crate::{corpus, markdown};

pub(crate) fn run() -> Result<String> {
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64();
    let tools = Tools { now: &now, stop: &|| false, progress: &|_| {}, until: None };
    let mut rows = Vec::new();
    for (name, graph) in corpus()? {
        let goal = Goal::new(input::device("A100-80")?, Budget::OfPeak(1.0));
        let planned = plan(&graph, &goal, &tools)?;
        let s = &planned.summary;
        rows.push(vec![
            name,
            graph.op_count().to_string(),
            s.naive.to_string(),
            s.unconstrained_peak.to_string(),
            s.peak.to_string(),
            format!("{:.4}", s.peak.ratio(s.live_peak)),
            s.lower_bound.to_string(),
            format!("{:.3} s", s.planning_seconds),
        ]);
    }
    let head = [
        "graph",
        "ops",
        "one buffer a value",
        "as given, live",
        "plan",
        "plan ÷ its live peak",
        "floor",
        "planning",
    ];
    Ok(markdown(&head, &rows))
}
