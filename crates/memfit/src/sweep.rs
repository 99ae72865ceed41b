//! Many plans for one graph: every strategy at one budget, or one goal at many budgets.

use memfit_ir::Graph;
use memfit_plan::order::ORDERS;
use memfit_plan::place::PLACERS;
use memfit_plan::schedule::recompute::RECOMPUTES;

use crate::planner::moving_names;
use crate::{Budget, Failure, Goal, Recomputing, Summary, Tools, plan};

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
    let keep_all = Goal { recompute: Recomputing::Never, moving: Vec::new(), ..goal.clone() };
    let mut goals: Vec<(String, Goal)> = Vec::new();
    for name in ORDERS.iter().map(|order| order.info().name) {
        goals.push((format!("order:{name}"), Goal { order: name.to_owned(), ..keep_all.clone() }));
    }
    for name in PLACERS.iter().map(|placer| placer.info().name) {
        goals.push((format!("place:{name}"), Goal { placer: name.to_owned(), ..keep_all.clone() }));
    }
    for name in RECOMPUTES.iter().map(|strategy| strategy.info().name) {
        let recompute = Recomputing::By(name.to_owned());
        goals.push((format!("recompute:{name}"), Goal { recompute, moving: Vec::new(), ..goal.clone() }));
    }
    for name in moving_names().iter().filter(|_| goal.lanes <= 1) {
        goals.push((name.clone(), Goal { moving: vec![name.clone()], ..keep_all.clone() }));
    }
    outcomes(graph, goals, tools)
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
    let outcomes = outcomes(graph, goals.collect(), tools)?;
    match outcomes.first().map(|outcome| &outcome.result) {
        Some(Err(failure @ Failure::Usage { .. })) => Err(failure.clone()),
        _ => Ok(outcomes),
    }
}

/// A row for each goal. Under a time limit each has its share of what is left when its turn comes.
fn outcomes(graph: &Graph, goals: Vec<(String, Goal)>, tools: &Tools<'_>) -> Result<Vec<Outcome>, Failure> {
    let count = goals.len();
    let mut rows = Vec::with_capacity(count);
    for (at, (name, goal)) in goals.into_iter().enumerate() {
        let started = (tools.now)();
        let until = tools.until.map(|until| started + (until - started).max(0.0) / (count - at) as f64);
        let stop = || (tools.stop)() || until.is_some_and(|until| (tools.now)() > until);
        let result = if (tools.stop)() {
            Err(Failure::Timeout(None))
        } else {
            plan(graph, &goal, &Tools { stop: &stop, until, ..*tools }).map(|planned| planned.summary)
        };
        if let Err(bug @ Failure::Bug { .. }) = result {
            return Err(bug);
        }
        rows.push(Outcome { name, result, seconds: (tools.now)() - started });
    }
    Ok(rows)
}
