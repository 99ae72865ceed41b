//! What each means would give by itself, and what each budget costs: plans like any other, verified and priced.

use memfit_formats::report::{Curve, Figure, Table, Unit};
use memfit_ir::{Bytes, Graph};
use memfit_plan::Means;

use crate::explain::Remedy;
use crate::{Budget, Explanation, Failure, Goal, Options, Summary, Tools, plan, sweep};

/// Each means alone at the goal's budget, after what [`explain`](fn@crate::explain) finds; a means that does not get there is told with why. Where
/// the budget is enough for a step that needs none of them, they are told for half of what lies above the floor.
///
/// # Errors
///
/// [`Failure::Bug`]; what does not fit is a row.
pub fn what_if(
    graph: &Graph,
    goal: &Goal,
    found: Option<&Explanation>,
    tools: &Tools<'_>,
) -> Result<Table, Failure> {
    let head =
        ["means", "device memory", "change", "step", "change", "what it is"].map(str::to_owned).to_vec();
    let first = found.and_then(|found| found.remedies.first()).map(|remedy| remedy.peak);
    let mut rows: Vec<Vec<Figure>> = Vec::new();
    // The last ones are plans at a budget of their own.
    for remedy in found.iter().flat_map(|found| &found.remedies).filter(|remedy| remedy.moved.is_none()) {
        if !["recompute", "offload", "hybrid"].contains(&remedy.name) {
            rows.push(told(remedy, first));
        }
    }
    let needs_none = found.and_then(|found| found.remedies.iter().find(|remedy| remedy.name == "plan"));
    let budget = match (goal.budget, needs_none) {
        (Budget::Bytes(bytes), Some(plan)) if bytes >= plan.peak => HALF,
        (budget, _) => budget,
    };
    let at = if budget == HALF { ", at `floor+50%`" } else { "" };
    let goal = &Goal { budget, ..goal.clone() };
    let alone = |means: Means, strategy: Option<&str>| {
        let options = Options { means, ..goal.options.clone() };
        let goal = Goal { options, ..goal.clone() };
        strategy.map_or(goal.clone(), |strategy| goal.with_strategy(strategy))
    };
    let moving = Means { recompute: false, offload: true, compress: true };
    let means = [
        (
            "recompute",
            "ops run again, nothing is moved",
            alone(Means { recompute: true, offload: false, compress: false }, None),
        ),
        ("offload", "values wait in host memory, no op runs again", alone(moving, Some("offload:best"))),
        ("compress", "values wait encoded, no op runs again", alone(moving, Some("compress:best"))),
        ("hybrid", "all of these together", alone(Means::ALL, Some("hybrid:best"))),
    ];
    for (name, what, goal) in means {
        (tools.progress)(name);
        let what = &format!("{what}{at}");
        match plan(graph, &goal, tools) {
            Ok(planned) => rows.push(priced(name, what, &planned.summary, first)),
            Err(Failure::Infeasible(why)) => rows.push(refused(name, what, why.needed)),
            Err(Failure::Timeout(_)) => rows.push(refused(name, what, Bytes::MAX)),
            Err(Failure::Usage { .. }) => {} // Options exclude it.
            Err(failure) => return Err(failure),
        }
    }
    Ok(Table { head, rows })
}

/// Half of what lies above the floor.
const HALF: Budget = Budget::AboveFloor(0.5);

fn told(remedy: &Remedy, first: Option<Bytes>) -> Vec<Figure> {
    let none = || Figure::text("");
    vec![
        Figure::text(remedy.name),
        Figure::bytes(remedy.peak),
        change(remedy.peak, first),
        none(),
        none(),
        Figure::text(remedy.what.clone()),
    ]
}

fn change(peak: Bytes, first: Option<Bytes>) -> Figure {
    match first {
        Some(first) if first > Bytes::ZERO => Figure::Number(peak.ratio(first) - 1.0, Unit::Change),
        _ => Figure::text(""),
    }
}

fn priced(name: &str, what: &str, summary: &Summary, first: Option<Bytes>) -> Vec<Figure> {
    let moved = match summary.offloaded {
        Bytes::ZERO => String::new(),
        bytes => format!("; {bytes} moved"),
    };
    vec![
        Figure::text(name),
        Figure::bytes(summary.peak),
        change(summary.peak, first),
        Figure::nanos(summary.time),
        Figure::Number(summary.overhead(), Unit::Change),
        Figure::text(format!("{what}{moved}")),
    ]
}

fn refused(name: &str, what: &str, needed: Bytes) -> Vec<Figure> {
    let none = || Figure::text("");
    let why = match needed {
        Bytes::MAX => format!("{what}; not found in the time that was given"),
        needed => format!("{what}; does not fit this budget, {needed} would do"),
    };
    vec![Figure::text(name), Figure::text("does not fit"), none(), none(), none(), Figure::text(why)]
}

/// Budgets between the floor and the peak, in percent of what lies between.
const SHARES: [u32; 8] = [5, 10, 20, 30, 40, 60, 80, 100];

/// What each budget costs: bytes of device memory and ns of the step, of a plan for each of a few budgets.
///
/// # Errors
///
/// [`Failure::Bug`] and [`Failure::Usage`]; a budget that nothing fits has no point.
pub fn front(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Curve, Failure> {
    let budgets: Vec<Budget> =
        SHARES.iter().map(|&share| Budget::AboveFloor(f64::from(share) / 100.0)).collect();
    let outcomes = sweep(graph, goal, &budgets, &[], tools)?;
    let fitting = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    let mut points: Vec<(f64, f64)> =
        fitting.map(|summary| (summary.peak.0 as f64, summary.time.0 as f64)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(Curve { name: "plans".to_owned(), points })
}
