//! `memfit doctor`: does memfit work here?

use memfit::ir::Bytes;
use memfit::{Budget, Goal, Tools, check, input, objects, plan};
use serde_json::json;

use crate::error::Error;
use crate::output::{Output, table};

/// A small training step with everything in it that a plan is about.
const GRAPH: &str = include_str!("doctor.json");

pub(super) fn run(output: &Output) -> Result<(), Error> {
    let graph = input::graph(GRAPH.as_bytes(), &input::Options::default())?;
    let goal = Goal::new(input::device("CPU")?, Budget::OfPeak(1.0));
    let planned = plan(&graph, &goal, &Tools::none())?;
    let file = planned.file(&graph, &goal);
    let accepts = check(&memfit::formats::plan_json::write(&file), &graph, None).is_ok();
    let mut broken = file;
    for place in &mut broken.plan.layout.places {
        place.offset = Bytes::ZERO;
    }
    let refuses = check(&memfit::formats::plan_json::write(&broken), &graph, None).is_err();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if output.json {
        output.object(&json!({
            "schema": objects::SCHEMA,
            "command": "doctor",
            "status": if accepts && refuses { "ok" } else { "broken" },
            "version": env!("CARGO_PKG_VERSION"),
            "cores": cores,
            "judge_accepts_good_plan": accepts,
            "judge_refuses_bad_plan": refuses,
        }))?;
    } else {
        let tick = |ok: bool| if ok { "ok" } else { "BROKEN" }.to_owned();
        output.print(&table(
            &[],
            &[1],
            vec![
                vec!["memfit".into(), env!("CARGO_PKG_VERSION").into()],
                vec![
                    "system".into(),
                    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH),
                ],
                vec!["plans a training step".into(), tick(true)],
                vec!["judge accepts that plan".into(), tick(accepts)],
                vec!["judge refuses a broken one".into(), tick(refuses)],
                vec!["capture from PyTorch".into(), "`python -m memfit.torch.export --help`".into()],
            ],
        ))?;
    }
    if accepts && refuses {
        return Ok(());
    }
    let rejected = memfit::Rejected { violations: Vec::new() };
    Err(memfit::Failure::Bug { pass: "doctor".into(), rejected, replay: String::new() }.into())
}
