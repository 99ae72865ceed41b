//! The integer programme whose optimum is the fastest schedule, and the rounding of its relaxation.
//!
//! Source: Jain et al., "Checkmate" (MLSys 2020, arXiv:1910.02653), §4 and §5; frees in the tight form of
//! POET (Patil et al., ICML 2022). We differ: values rather than ops are kept, so ops may have several
//! outputs; what one op needs is checked before any solver starts; greedy runs and local search give the solver
//! the time it must beat, and where it can't, they are proved. Guarantee: the fastest schedule with this order of first
//! runs, one run of a node in each stage and no use of permitted in-place pairs. O(n × operands) variables;
//! a pure-Rust solver takes tens of ops, with feature `highs` some hundreds. `checkmate-lp` keeps values by
//! thresholds on the relaxation (§5.2): no guarantee, and it collapses at tight budgets. Where no
//! proof is reached a larger budget may be slower. Wrong choice for anything large: `best`.

use memfit_ir::{Bytes, Nanos};

use super::climb;
use super::ids::NodeId;
use super::model::{self, Answer};
use super::solver::too_large;
use super::{Front, Infeasible, Instead, Point, RunList, Scheduler, Task};
use crate::problem::signed;
use crate::{Context, Info};

/// The exact programme.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checkmate;

/// The rounded relaxation.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckmateLp;

const SOURCE: &str = "Jain et al., MLSys 2020, arXiv:1910.02653";

/// What greedy runs and local search find for `budget`, which the solver must beat; or why there is nothing for a
/// solver to do.
fn start(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<(Front, bool), Infeasible> {
    let mut front = Front::default();
    front.add_schedule(task, RunList::plain(task));
    if budget < task.floor().0 {
        return Err(Infeasible::new(task, budget, Some(task.floor().0)));
    }
    if front.fastest(budget).is_some() {
        return Ok((front, false)); // Nothing must run again.
    }
    let mut front = climb::all(task, budget, context);
    climb::onto(task, budget, context, &mut front);
    Ok((front, true))
}

/// Why the programme of `task` is not given to a solver.
fn too_much(task: &Task<'_>) -> Option<String> {
    let variables = model::variables(task);
    if !model::can_say(task) {
        return Some("the integer programme knows no values that are mutated in place".to_owned());
    }
    too_large(task.nodes(), variables)
}

/// How long a solver with a clock may take.
fn seconds(context: &Context<'_>) -> u32 {
    context.effort.max(1).saturating_mul(600)
}

fn finish(
    task: &Task<'_>,
    budget: Bytes,
    front: Front,
    extra: Nanos,
    why: Option<String>,
) -> Result<Front, Infeasible> {
    front.within(task, budget, extra).map_err(|infeasible| Infeasible { why, ..infeasible })
}

/// What greedy runs and local search have found, where the solver can't do its work.
fn unsolved(task: &Task<'_>, budget: Bytes, front: Front, why: String) -> Result<Front, Infeasible> {
    let instead = Some(Instead { used: "best", why: why.clone() });
    finish(task, budget, front, Nanos::ZERO, Some(why)).map(|front| Front { instead, ..front })
}

impl Scheduler for Checkmate {
    fn info(&self) -> Info {
        let summary = "the fastest schedule, proved, by integer programming; small graphs only";
        Info { name: "checkmate", summary, source: SOURCE, year: 2020 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let (mut front, needed) = start(task, budget, context)?;
        if !needed {
            return front.within(task, budget, Nanos::ZERO);
        }
        if let Some(why) = too_much(task) {
            return unsolved(task, budget, front, why);
        }
        let base = task.base_time().0;
        let known = front.fastest(budget).map(|point| point.cost.time.0 - base);
        let limit = signed(budget) - task.constant - task.snapshots;
        // Without permitted takeovers the programme counts exactly what a schedule holds. It knows one algorithm of each op.
        let exact = task.snapshots == 0
            && !task.has_choices()
            && (0..task.nodes()).all(|node| task.reuses.row(node).is_empty());
        match model::solve(task, limit, known, false, seconds(context)) {
            Answer::Solved { runs, time, .. } => {
                let stages = runs.iter().map(|row| row.iter().map(|&run| run > 0.5).collect::<Vec<bool>>());
                let runs = stages.flat_map(|row| {
                    (0..row.len()).filter(|&node| row[node]).map(NodeId::at).collect::<Vec<_>>()
                });
                let schedule = RunList { runs: runs.collect() };
                if let Some(cost) = schedule.cost(task) {
                    front.add(Point { cost, schedule, moved: None });
                }
                let bound = Nanos::from_secs_f64((time * (1.0 - 1e-4)).max(0.0) / 1e9);
                finish(task, budget, front, if exact { bound } else { Nanos::ZERO }, None).map(|front| {
                    Front {
                        proved: exact
                            && front.points[0].cost.time.0 as f64 <= base as f64 + time * (1.0 + 1e-6) + 1.0,
                        ..front
                    }
                })
            }
            // Nothing is faster than what is known; or there is nothing.
            Answer::None => {
                let bound = Nanos(known.filter(|_| exact).unwrap_or(0));
                let why = "the integer programme has no solution".to_owned();
                finish(task, budget, front, bound, Some(why)).map(|front| Front { proved: exact, ..front })
            }
            Answer::Failed(why) => unsolved(task, budget, front, why),
        }
    }
}

impl Scheduler for CheckmateLp {
    fn info(&self) -> Info {
        let summary = "the relaxed integer programme, rounded; small graphs only";
        Info { name: "checkmate-lp", summary, source: SOURCE, year: 2020 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        if front.fastest(budget).is_some() {
            return front.within(task, budget, Nanos::ZERO);
        }
        if let Some(why) = too_much(task) {
            return finish(task, budget, front, Nanos::ZERO, Some(why));
        }
        let all = signed(budget) - task.constant - task.snapshots;
        let mut why = None;
        // The paper leaves a tenth of the budget to rounding; we try with and without.
        for limit in [all / 10 * 9, all] {
            if (context.stop)() {
                break;
            }
            match model::solve(task, limit, None, true, seconds(context)) {
                Answer::Solved { keeps, .. } => {
                    for tenth in 1..20 {
                        let threshold = f64::from(tenth) / 20.0;
                        let schedule = model::repair(task, &|stage, value| keeps[stage][value] > threshold);
                        front.add_schedule(task, schedule);
                    }
                }
                Answer::None => {}
                Answer::Failed(error) => why = Some(error),
            }
        }
        finish(task, budget, front, Nanos::ZERO, why)
    }
}
