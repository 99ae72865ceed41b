//! Many plans for one graph: every strategy at one budget, or one goal at many budgets.

use memfit_ir::{Bytes, Graph};
use memfit_plan::families::find;
use memfit_plan::{FAMILIES, Means};

use crate::choice::Choice;
use crate::{Budget, Failure, Goal, Options, Summary, Tools, plan};

/// What came of one goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was asked for: a strategy, or a budget.
    pub name: String,
    /// Host memory that values might wait in, where several amounts of it are tried.
    pub host_budget: Option<Bytes>,
    /// The plan's figures, or why there's none.
    pub result: Result<Summary, Failure>,
    /// Seconds it took either way.
    pub seconds: f64,
}

/// Every strategy of every family at the goal's budget. A strategy of one family stands with the defaults of the
/// others; orders and placers are shown without schedulers.
///
/// # Errors
///
/// [`Failure::Bug`], [`Failure::Usage`] for unknown names; what doesn't fit is a row.
pub fn compare(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Vec<Outcome>, Failure> {
    Choice::of(goal)?;
    let is_scheduler = |name: &String| find(name).is_ok_and(|(family, _)| family.means != Means::NONE);
    let others: Vec<String> =
        goal.options.strategies.iter().filter(|name| !is_scheduler(name)).cloned().collect();
    let planned = FAMILIES.iter().filter(|family| !family.online);
    // On several lanes nothing is moved.
    let mut families: Vec<_> =
        planned.filter(|family| goal.options.lanes <= 1 || !family.means.moves()).collect();
    families.sort_by_key(|family| family.means != Means::NONE);
    let mut goals: Vec<Asked> = Vec::new();
    for family in families {
        let options = Options { strategies: others.clone(), means: family.means, ..goal.options.clone() };
        for info in family.infos() {
            let name = format!("{}:{}", family.name, info.name);
            let alone = Goal { options: options.clone(), ..goal.clone() }.with_strategy(&name);
            goals.push(Asked { name, host_budget: None, goal: alone });
        }
    }
    outcomes(graph, goals, tools)
}

/// The goal at each of `budgets`, in their order; with `hosts`, at each of them with each amount of host memory, the amounts one
/// after the other.
///
/// # Errors
///
/// [`Failure::Bug`] and [`Failure::Usage`]; what doesn't fit is a row.
pub fn sweep(
    graph: &Graph,
    goal: &Goal,
    budgets: &[Budget],
    hosts: &[Bytes],
    tools: &Tools<'_>,
) -> Result<Vec<Outcome>, Failure> {
    let mut goals = Vec::with_capacity(budgets.len() * hosts.len().max(1));
    let each = hosts.iter().map(|&host| Some(host)).chain(hosts.is_empty().then_some(None));
    for host_budget in each {
        let options =
            Options { host_budget: host_budget.or(goal.options.host_budget), ..goal.options.clone() };
        goals.extend(budgets.iter().map(|&budget| Asked {
            name: budget.to_string(),
            host_budget,
            goal: Goal { budget, options: options.clone(), ..goal.clone() },
        }));
    }
    let outcomes = outcomes(graph, goals, tools)?;
    match outcomes.first().map(|outcome| &outcome.result) {
        Some(Err(failure @ Failure::Usage { .. })) => Err(failure.clone()),
        _ => Ok(outcomes),
    }
}

/// A row to come.
struct Asked {
    name: String,
    host_budget: Option<Bytes>,
    goal: Goal,
}

/// A row for each goal. Under a time limit each has its share of what is left when its turn comes.
fn outcomes(graph: &Graph, goals: Vec<Asked>, tools: &Tools<'_>) -> Result<Vec<Outcome>, Failure> {
    let count = goals.len();
    let mut rows = Vec::with_capacity(count);
    for (at, Asked { name, host_budget, goal }) in goals.into_iter().enumerate() {
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
        rows.push(Outcome { name, host_budget, result, seconds: (tools.now)() - started });
    }
    Ok(rows)
}
