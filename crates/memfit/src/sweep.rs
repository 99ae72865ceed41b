//! Many plans for one graph: every strategy at one budget, or one goal at many budgets.

use memfit_ir::Graph;
use memfit_plan::order::ORDERS;
use memfit_plan::place::PLACERS;
use memfit_plan::schedule::recompute::RECOMPUTES;

use crate::{Budget, Failure, Goal, Summary, Tools, plan};

/// What came of one goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was asked for: a strategy, or a budget.
    pub name: String,
    /// The plan's figures, or why there's none.
    pub result: Result<Summary, Failure>,
    /// Seconds it took either way.
    pub seconds: f64,
}

/// Every strategy of every family at the goal's budget. A strategy of one family stands with the defaults of the
/// others; orders and placers are shown without recomputation.
///
/// # Errors
///
/// [`Failure::Bug`]; what doesn't fit is a row.
pub fn compare(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Vec<Outcome>, Failure> {
    let keep_all = Goal { recompute: None, ..goal.clone() };
    let mut goals: Vec<(String, Goal)> = Vec::new();
    for name in ORDERS.iter().map(|order| order.info().name) {
        goals.push((format!("order:{name}"), Goal { order: name.to_owned(), ..keep_all.clone() }));
    }
    for name in PLACERS.iter().map(|placer| placer.info().name) {
        goals.push((format!("place:{name}"), Goal { placer: name.to_owned(), ..keep_all.clone() }));
    }
    for name in RECOMPUTES.iter().map(|strategy| strategy.info().name) {
        goals.push((format!("recompute:{name}"), Goal { recompute: Some(name.to_owned()), ..goal.clone() }));
    }
    goals.into_iter().map(|(name, goal)| outcome(graph, name, &goal, tools)).collect()
}

/// The goal at each of `budgets`, in their order.
///
/// # Errors
///
/// [`Failure::Bug`] and [`Failure::Usage`]; what doesn't fit is a row.
pub fn sweep(
    graph: &Graph,
    goal: &Goal,
    budgets: &[Budget],
    tools: &Tools<'_>,
) -> Result<Vec<Outcome>, Failure> {
    let goals = budgets.iter().map(|&budget| (budget.to_string(), Goal { budget, ..goal.clone() }));
    let outcomes =
        goals.map(|(name, goal)| outcome(graph, name, &goal, tools)).collect::<Result<Vec<_>, _>>()?;
    match outcomes.first().map(|outcome| &outcome.result) {
        Some(Err(failure @ Failure::Usage { .. })) => Err(failure.clone()),
        _ => Ok(outcomes),
    }
}

fn outcome(graph: &Graph, name: String, goal: &Goal, tools: &Tools<'_>) -> Result<Outcome, Failure> {
    let started = (tools.now)();
    let result = plan(graph, goal, tools).map(|planned| planned.summary);
    if let Err(bug @ Failure::Bug { .. }) = result {
        return Err(bug);
    }
    Ok(Outcome { name, result, seconds: (tools.now)() - started })
}
