//! `cargo xtask bench reuse`: what each kind of reuse gives, as the MXNet paper compares them.
//!
//! Only what ops write counts: parameters, state and inputs are the same in every column.

use anyhow::{Result, anyhow};
use memfit::ir::{Bytes, InPlace, OpId, Program};
use memfit::strategies::Context;
use memfit::strategies::place::{Problem, by_name};
use memfit::{Graph, input};

use crate::{corpus, markdown};

pub(crate) fn run() -> Result<String> {
    let mut rows = Vec::new();
    for (name, graph) in corpus()? {
        let without = outputs(&graph, InPlace::Must)?;
        let with = outputs(&graph, InPlace::May)?;
        let naive = without.total();
        let row = [
            naive,
            with.total(),
            height("refcount", &without)?,
            height("refcount", &with)?,
            height("best", &with)?,
        ];
        let times = |bytes: Bytes| format!("{:.1} ×", naive.ratio(bytes));
        let mut cells = vec![name];
        cells.extend(row.iter().map(ToString::to_string));
        cells.extend([times(row[3]), times(row[4])]);
        rows.push(cells);
    }
    let head = [
        "graph",
        "one buffer an output",
        "in-place",
        "co-share",
        "both",
        "both, `best`",
        "both gives",
        "`best` gives",
    ];
    Ok(markdown(&head, &rows))
}

/// The problem of placing what the ops write, in the given order.
fn outputs(graph: &Graph, in_place: InPlace) -> Result<Problem> {
    let order: Vec<OpId> = graph.op_ids().collect();
    let program = Program::in_order(graph, &order, in_place);
    let device = input::device("A100-80")?;
    let (problem, item_of) = Problem::of(graph, &program, &device.limits());
    let mut source = vec![false; problem.items.len()];
    for &buffer in &program.resident {
        source[item_of[buffer.index()]] = true;
    }
    let items = problem.items.iter().zip(source).filter(|(_, source)| !source).map(|(item, _)| *item);
    Ok(Problem::new(items.collect(), problem.banks))
}

fn height(placer: &str, problem: &Problem) -> Result<Bytes> {
    let device = input::device("A100-80")?;
    let placer = by_name(placer).ok_or_else(|| anyhow!("there is no placer `{placer}`"))?;
    let placed = placer.place(problem, &Context::new(&device)).map_err(|error| anyhow!("{error:?}"))?;
    Ok(placed.height)
}
