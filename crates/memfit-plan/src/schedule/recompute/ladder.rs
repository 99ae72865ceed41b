//! The targets that strategies aim at, whatever the budget: so that budgets are monotone.

use super::{RunList, Task};
use crate::problem::signed;

/// Targets in bytes, the constant included, ascending, and whether each is a round one: every twentieth of the
/// graph's peak and of what lies between floor and peak, of which every tenth and quarter is round.
pub(super) fn ladder(task: &Task<'_>) -> Vec<(i64, bool)> {
    let floor = signed(task.floor().0);
    let Some(plain) = RunList::plain(task).cost(task) else { return Vec::new() };
    let (peak, reference) = (signed(plain.peak), signed(task.reference));
    let shares = (1..20).map(|part| (scale(reference, part, 20), part % 2 == 0));
    // Small tasks have few sizes, and are quick: a fine ladder meets them all.
    let parts = if task.nodes() < 32 { 100 } else { 20 };
    let above = (0..parts).map(|part| (floor + scale(reference - floor, part, parts), 4 * part % parts == 0));
    let mut ladder: Vec<(i64, bool)> = shares.chain(above).collect();
    ladder.retain(|&(target, _)| (floor..peak).contains(&target));
    ladder.sort_unstable();
    ladder.dedup_by_key(|(target, _)| *target);
    ladder
}

/// What `ladder` leaves between its rungs, for quick looks: each two hundredth of the peak, in ascending order.
/// Each with the rung that it comes after, so that both are climbed together.
pub(super) fn between(task: &Task<'_>, ladder: &[(i64, bool)]) -> Vec<(usize, i64)> {
    let reference = signed(task.reference);
    let mut fine = Vec::new();
    for part in 1..200 {
        let target = scale(reference, part, 200);
        let rung = ladder.partition_point(|&(rung, _)| rung <= target);
        // Right above a rung there is nothing to find.
        if rung > 0 && target - ladder[rung - 1].0 >= reference / 400 {
            fine.push((rung - 1, target));
        }
    }
    fine
}

fn scale(amount: i64, part: i64, of: i64) -> i64 {
    i64::try_from(i128::from(amount) * i128::from(part) / i128::from(of)).unwrap_or(0)
}
