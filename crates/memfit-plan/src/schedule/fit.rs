//! From schedules to one program that can be placed within the budget.

use memfit_ir::{Bytes, Nanos, Program};

use super::{Cost, Infeasible, Instead, Scheduler, Task, known};
use crate::Context;

/// A program within a budget, and what the caller's placer made of it.
#[derive(Clone, Debug)]
pub struct Rewritten<P> {
    /// The program. The same as [`Program::in_order`]'s where nothing runs again.
    pub program: Program,
    /// Live peak and time.
    pub cost: Cost,
    /// Time of all runs but the first ones.
    pub recompute: Nanos,
    /// No program with this order of first runs and within the budget is faster.
    pub bound: Nanos,
    /// Whether this one is proved to be the fastest.
    pub proved: bool,
    /// Who found it, where `strategy` did not do its own work.
    pub instead: Option<Instead>,
    /// What the placer returned.
    pub placed: P,
}

/// A strategy that moves values is asked for less by at least one in so many bytes.
const LEAST_STEP: u64 = 500;

/// The fastest program that `strategy` finds whose placement stays within `budget`.
///
/// `place` returns the height of a layout of the program and whatever the caller wants back. Schedules are
/// tried from the fastest on; where none can be placed, the strategy is asked again for a smaller live
/// peak, less what fragmentation took, up to eight times. A larger budget gives no slower program if the
/// strategy keeps that promise and `place` gives the same height to the same program, or stops early only
/// once it is within the budget.
///
/// # Errors
///
/// [`Infeasible`] if nothing is found.
pub fn fit<P>(
    strategy: &dyn Scheduler,
    task: &Task<'_>,
    budget: Bytes,
    context: &Context<'_>,
    place: impl FnMut(&Program) -> Option<(Bytes, P)>,
) -> Result<Rewritten<P>, Infeasible> {
    fit_faster(strategy, task, (budget, Nanos(u64::MAX)), context, place)
}

/// As [`fit`], of programs that take less than `worth`: no other is placed.
///
/// # Errors
///
/// [`Infeasible`] if nothing is found, or nothing as fast.
pub fn fit_faster<P>(
    strategy: &dyn Scheduler,
    task: &Task<'_>,
    (budget, worth): (Bytes, Nanos),
    context: &Context<'_>,
    mut place: impl FnMut(&Program) -> Option<(Bytes, P)>,
) -> Result<Rewritten<P>, Infeasible> {
    let mut target = budget;
    let mut bound = None;
    let mut lowest: Option<Bytes> = None;
    for _ in 0..8 {
        let front = match known::plan(strategy, task, target, context) {
            Ok(front) => front,
            Err(infeasible) if bound.is_none() => return Err(infeasible),
            Err(_) => break,
        };
        let bound = *bound.get_or_insert(front.bound);
        let mut least_waste = Bytes::MAX;
        let (Some(first), Some(last)) = (front.points.first(), front.points.last()) else { break };
        // Where values are moved, a search with a clock in it is not worth a few bytes, and the fastest is what is wanted.
        let (from, step) = match first.moved {
            Some(_) => (first.cost.peak, target.0 / LEAST_STEP),
            None => (last.cost.peak, 1),
        };
        if first.cost.time >= worth {
            break; // Smaller ones are not faster.
        }
        let worthy = front.points.iter().take_while(|point| point.cost.time < worth);
        for (at, point) in worthy.enumerate() {
            let Some(program) = point.program(task) else { continue };
            let Some((height, placed)) = place(&program) else { continue };
            if height <= budget {
                let recompute = Nanos(point.cost.time.0.saturating_sub(task.base_time().0));
                let proved = point.cost.time <= bound || (front.proved && at == 0 && target == budget);
                let instead = front.instead;
                return Ok(Rewritten {
                    program,
                    cost: point.cost,
                    recompute,
                    bound,
                    proved,
                    instead,
                    placed,
                });
            }
            lowest = Some(lowest.map_or(height, |other| other.min(height)));
            least_waste = least_waste.min(height.saturating_sub(budget));
        }
        // Strategies with one schedule for each budget: ask for less.
        target = Bytes(from.0.saturating_sub(least_waste.0.max(step)));
        if target < task.least() {
            break;
        }
    }
    Err(Infeasible::new(task, budget, lowest))
}
