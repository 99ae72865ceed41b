//! Which op holds the peak of a program, where moving more values would lower nothing.

use memfit_ir::{Bytes, Content, Graph, OpId, Program, Step};
use memfit_plan::liveness::Profile;
use memfit_plan::schedule::LEAST_MOVED;

/// The first op that runs at the peak of `program`'s live bytes while nothing is live that could be elsewhere: only what the
/// op itself reads, writes and scribbles on, storages that outlive the step, and what is too small for a transfer. `None` if
/// there is none: each peak has something beside it that could wait elsewhere. Time O(steps + buffers + operands).
pub(crate) fn held_by(graph: &Graph, program: &Program, align: Bytes) -> Option<OpId> {
    let lasting = graph.lasting();
    let may_go: Vec<bool> = program
        .buffers
        .iter()
        .map(|buffer| {
            let value = buffer.content.value().filter(|value| !lasting[value.index()]);
            value.is_some() && buffer.size >= LEAST_MOVED && buffer.content != Content::Workspace
        })
        .collect();
    // By step: buffers that may go and are live then.
    let mut change = vec![0i64; program.steps.len() + 1];
    for (span, _) in program.lifespans().iter().zip(&may_go).filter(|(_, may_go)| **may_go) {
        if span.from < span.until {
            change[span.from] += 1;
            change[span.until] -= 1;
        }
    }
    let profile = Profile::of(program, align);
    let peak = profile.peak().0;
    let mut idle = 0;
    for (at, step) in program.steps.iter().enumerate() {
        idle += change[at];
        if profile.live[at] != peak {
            continue;
        }
        let Step::Compute(compute) = step else { continue };
        let mut operands: Vec<usize> = program
            .reads(compute)
            .iter()
            .chain(program.writes(compute))
            .map(|buffer| buffer.index())
            .filter(|&buffer| may_go[buffer])
            .collect();
        operands.sort_unstable();
        operands.dedup();
        if i64::try_from(operands.len()).is_ok_and(|own| own == idle) {
            return Some(compute.op);
        }
    }
    None
}

/// The name of an op, or its id where it has none.
pub(crate) fn label_of(graph: &Graph, op: OpId) -> String {
    let name = graph.op(op).name;
    if name.is_empty() { op.to_string() } else { name.to_owned() }
}

/// What is said where moving more values would lower nothing.
#[must_use]
pub fn held(by: &str) -> String {
    format!("moving more does not lower the peak: `{by}` holds it")
}

#[cfg(test)]
mod tests {
    use memfit_ir::text::parse;

    use super::*;

    fn holder(text: &str) -> Option<String> {
        let graph = parse(text).unwrap().graph.unwrap();
        let program = Program::eager(&graph);
        held_by(&graph, &program, Bytes(16)).map(|op| graph.op(op).name.to_owned())
    }

    #[test]
    fn an_op_holds_the_peak_only_where_nothing_else_could_be_away() {
        // While `g` runs, `x` waits for `h`: it could be elsewhere.
        let waiting = r#"graph "a step"
  v0 = parameter 65536 "w"
  v1 = input 8192 "x"
  v2 = activation 8192 "y"
  op0 = forward f(v0, v1) -> v2 "f"
  v3 = activation 65536 "z"
  op1 = forward g(v2) -> v3 "g"
  v4 = activation 16 "r"
  op2 = forward h(v3, v1) -> v4 "h"
"#;
        assert_eq!(holder(waiting), None);
        // Nothing waits but a parameter, and what is too small to be moved.
        let alone = waiting.replace("v1 = input 8192", "v1 = input 64");
        assert_eq!(holder(&alone), Some("g".to_owned()));
    }
}
