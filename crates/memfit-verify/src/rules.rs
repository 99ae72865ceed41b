//! What the judge can object to.

use std::fmt;

use memfit_ir::{Graph, Plan, Step};

/// A numbered rule; the head of the crate says what each demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the list of rules at the head of the crate describes each")]
#[repr(u8)]
pub enum Rule {
    Graph = 0,
    Structure = 1,
    Stay = 2,
    Size = 3,
    Place = 4,
    Value = 5,
    Overwrite = 6,
    InPlace = 7,
    Effect = 8,
    Host = 9,
    Lossy = 10,
    Transfer = 11,
    Lane = 12,
    Result = 13,
}

impl Rule {
    /// Every rule with its name in files.
    pub const ALL: [(Rule, &str); 14] = [
        (Rule::Graph, "graph"),
        (Rule::Structure, "structure"),
        (Rule::Stay, "stay"),
        (Rule::Size, "size"),
        (Rule::Place, "place"),
        (Rule::Value, "value"),
        (Rule::Overwrite, "overwrite"),
        (Rule::InPlace, "in-place"),
        (Rule::Effect, "effect"),
        (Rule::Host, "host"),
        (Rule::Lossy, "lossy"),
        (Rule::Transfer, "transfer"),
        (Rule::Lane, "lane"),
        (Rule::Result, "result"),
    ];
}

impl fmt::Display for Rule {
    /// `R6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}", *self as u8)
    }
}

/// One way in which a plan is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: Rule,
    /// Index of the step, where one step is to blame.
    pub step: Option<usize>,
    /// What is wrong, with the names of buffers, ops and values.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "{} step {step}: {}", self.rule, self.message),
            None => write!(f, "{}: {}", self.rule, self.message),
        }
    }
}

/// All that is wrong with a plan, in program order; at most [`Rejected::MOST`] entries, never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The violations.
    pub violations: Vec<Violation>,
}

impl Rejected {
    /// After this many violations the judge stops reading: one error makes many that follow from it.
    pub const MOST: usize = 200;
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, violation) in self.violations.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            violation.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejected {}

/// What a step does, for messages: `compute conv1 (aten.convolution)`.
pub(crate) fn describe(graph: &Graph, plan: &Plan, step: usize) -> String {
    match plan.program.steps.get(step) {
        Some(Step::Compute(compute)) if compute.op.index() < graph.op_count() => {
            let op = graph.op(compute.op);
            format!("compute `{}` ({}, {})", op.name, compute.op, op.kind)
        }
        Some(Step::Compute(compute)) => format!("compute {}", compute.op),
        Some(Step::Free(buffer)) => format!("free {buffer}"),
        Some(Step::Offload { from, to }) => format!("offload {from} → {to}"),
        Some(Step::Fetch { from, to }) => format!("fetch {from} → {to}"),
        Some(Step::Discard(copy)) => format!("discard {copy}"),
        Some(Step::Await(other)) => format!("await {other}"),
        Some(Step::Encode { from, to }) => format!("encode {from} → {to}"),
        Some(Step::Decode { from, to }) => format!("decode {from} → {to}"),
        None => "end of the program".to_owned(),
    }
}
