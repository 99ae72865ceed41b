//! A plan for a recorded step that the judge has passed: the only thing that an engine follows.

use std::fmt;
use std::sync::Arc;

use memfit_ir::{BufferId, Bytes, Compute, Graph, Layout, Limits, Place, Plan, Program, Step, text};
use memfit_verify::{Rejected, Verified, verify};

use crate::settings::Settings;

/// A plan that the judge refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The judge's reasons.
    pub rejected: Rejected,
    /// Limits, graph and plan in text form, to be attached to a report.
    pub replay: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rejected.fmt(f)
    }
}

impl std::error::Error for Refusal {}

/// A step and how to run it, with the judge's word on both. Made by the judge alone; shared, not copied.
#[derive(Clone, Debug)]
pub struct StepPlan {
    of: Arc<(Graph, Verified)>,
}

impl StepPlan {
    /// What the judge makes of running `graph` by `program`, placed as `layout` says, within `limits`.
    ///
    /// # Errors
    ///
    /// The judge's reasons.
    pub fn judge(
        graph: Graph,
        limits: &Limits,
        program: Program,
        layout: Layout,
    ) -> Result<StepPlan, Box<Refusal>> {
        let plan = Plan { graph: graph.digest(), program, layout };
        match verify(&graph, limits, plan.clone()) {
            Ok(verified) => Ok(StepPlan { of: Arc::new((graph, verified)) }),
            Err(rejected) => {
                let replay = text::print(Some(limits), Some(&graph), Some(&plan));
                Err(Box::new(Refusal { rejected, replay }))
            }
        }
    }

    /// A plan that the judge has passed before, if it was for `graph`.
    #[must_use]
    pub fn of(graph: Graph, verified: Verified) -> Option<StepPlan> {
        let follows = verified.plan().graph == graph.digest();
        follows.then(|| StepPlan { of: Arc::new((graph, verified)) })
    }

    /// As [`StepPlan::judge`], each buffer in bytes of its own: for hosts that have addresses of their own, where only
    /// the order of the steps and what they read counts. An upper bound on the arena, far from a low one.
    ///
    /// # Errors
    ///
    /// The judge's reasons.
    pub fn judge_unplaced(
        graph: Graph,
        settings: &Settings,
        program: Program,
    ) -> Result<StepPlan, Box<Refusal>> {
        let (layout, height) = side_by_side(&program, settings.align);
        StepPlan::judge(graph, &settings.limits(height), program, layout)
    }

    /// The step: its ops in the order in which the host calls them.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.of.0
    }

    /// The judge's word.
    #[must_use]
    pub fn verified(&self) -> &Verified {
        &self.of.1
    }

    /// How the step is to be run.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.of.1.plan().program
    }

    /// Where buffers lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.of.1.plan().layout
    }

    /// Ns that the program takes for ops that ran before.
    #[must_use]
    pub fn repeated_ns(&self) -> u64 {
        repeated_ns(self.graph(), self.program())
    }
}

/// Ns that `program` takes for ops of `graph` that ran before.
pub(crate) fn repeated_ns(graph: &Graph, program: &Program) -> u64 {
    repetitions(graph, program)
        .map(|(_, compute)| graph.op(compute.op).time.unwrap_or_default().0)
        .fold(0, u64::saturating_add)
}

/// The steps of `program` that run ops of `graph` which ran before, each with its position.
pub(crate) fn repetitions<'a>(
    graph: &Graph,
    program: &'a Program,
) -> impl Iterator<Item = (usize, &'a Compute)> + use<'a> {
    let mut ran = vec![false; graph.op_count()];
    program.steps.iter().enumerate().filter_map(move |(at, step)| match step {
        Step::Compute(compute) => {
            std::mem::replace(&mut ran[compute.op.index()], true).then_some((at, compute))
        }
        _ => None,
    })
}

/// A place for each buffer that no other has, but for what is taken over; and the bytes of all.
fn side_by_side(program: &Program, align: Bytes) -> (Layout, Bytes) {
    let mut places: Vec<Place> = Vec::with_capacity(program.buffers.len());
    let mut height = Bytes::ZERO;
    for buffer in &program.buffers {
        let over = buffer.over.and_then(|BufferId(over)| places.get(over as usize).copied());
        places.push(over.unwrap_or_else(|| {
            let offset = height;
            height = (height + buffer.size).round_up(align);
            Place { bank: 0, offset }
        }));
    }
    (Layout { places }, height)
}
