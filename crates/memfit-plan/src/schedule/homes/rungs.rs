//! Which storages are at home in another tier: as few transfers as can be for the bytes.

use memfit_ir::{Bytes, Device, ValueId};

use super::Movable;
use super::least::least_time;
use crate::problem::signed;
use crate::schedule::{Front, Infeasible, Task};

/// The task with all optimizer state at home in other memory of `device`, or as much of it as there is room for, the largest
/// first.
///
/// # Errors
///
/// That nothing fits `budget` so, if that is none.
pub(in crate::schedule) fn without_optimizer_state<'g>(
    task: &Task<'g>,
    budget: Bytes,
    device: &Device,
) -> Result<Task<'g>, Infeasible> {
    let state: Vec<Movable> = ordered(task).into_iter().filter(|one| one.is_optimizer_state).collect();
    let why = "there is no optimizer state, or no memory with a link that has room for it";
    parked(task, &state, device).ok_or_else(|| Infeasible::because(task, budget, why))
}

/// What `plan` finds for `task`, or where that is nothing the fastest that it finds with as few storages at home elsewhere as will do,
/// all optimizer state, or all that may be. The fewest leave the least room to everything else: all is enough if anything is.
/// Where something is found that is not as fast as can be, what makes much more room is tried as well: all optimizer state, or
/// everything where there is none, unless its transfers alone take longer.
///
/// # Errors
///
/// What `plan` says of `task` itself.
pub(in crate::schedule) fn or_parked(
    task: &Task<'_>,
    budget: Bytes,
    device: &Device,
    plan: impl Fn(&Task<'_>) -> Result<Front, Infeasible>,
) -> Result<Front, Infeasible> {
    let found = plan(task);
    let tasks = match &found {
        Ok(front) if front.time().is_some_and(|time| time <= task.least_time()) => return found,
        Ok(front) => {
            let is_faster = |task: &Task<'_>| front.time().is_none_or(|time| least_time(task, device) < time);
            roomier(task, budget, device).filter(is_faster).into_iter().collect()
        }
        Err(_) => rungs(task, budget, device),
    };
    let parked = tasks.into_iter().filter_map(|task| plan(&task).ok()).min_by_key(Front::time);
    match (found, parked) {
        (Ok(front), Some(parked)) if parked.time() < front.time() => Ok(parked),
        (Err(_), Some(parked)) => Ok(parked),
        (found, _) => found,
    }
}

/// The task with all optimizer state at home in other memory, or all that may be where there is no state, if that is at least half
/// of what `budget` leaves above the floor.
fn roomier<'g>(task: &Task<'g>, budget: Bytes, device: &Device) -> Option<Task<'g>> {
    let mut movable = ordered(task);
    let state = movable.iter().take_while(|one| one.is_optimizer_state).count();
    movable.truncate(if state > 0 { state } else { movable.len() });
    let bytes: i64 = movable.iter().map(|one| one.bytes).sum();
    let room = signed(budget.saturating_sub(task.floor().0));
    (bytes >= room / 2).then(|| parked(task, &movable, device)).flatten()
}

/// Tasks with more and more of what may be at home elsewhere there, as far as `device` has room: what `budget` forces, all
/// optimizer state, everything. Each needs no more than `budget` for its largest op; what comes first moves least.
pub(in crate::schedule) fn rungs<'g>(task: &Task<'g>, budget: Bytes, device: &Device) -> Vec<Task<'g>> {
    let movable = ordered(task);
    let fits = |count: usize| parked(task, &movable[..count], device).filter(|task| task.floor().0 <= budget);
    // More at home elsewhere never needs more: the fewest that will do.
    let (mut low, mut high) = (1, movable.len() + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if middle <= movable.len() && fits(middle).is_none() { low = middle + 1 } else { high = middle }
    }
    let state = movable.iter().take_while(|one| one.is_optimizer_state).count();
    let mut counts = vec![low, state, movable.len()];
    counts.retain(|&count| count >= low && count > 0);
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().filter(|&count| count <= movable.len()).filter_map(fits).collect()
}

/// What may be at home elsewhere, in the order in which it goes: optimizer state, then what takes fewest transfers; the largest
/// first.
fn ordered(task: &Task<'_>) -> Vec<Movable> {
    let mut movable = task.movable();
    movable
        .sort_by_key(|one| (!one.is_optimizer_state, one.transfers, std::cmp::Reverse(one.bytes), one.value));
    movable
}

/// `task` with as many of `storages` at home elsewhere as there is room for, from the first on.
fn parked<'g>(task: &Task<'g>, storages: &[Movable], device: &Device) -> Option<Task<'g>> {
    let values: Vec<ValueId> = storages.iter().map(|one| one.value).collect();
    Some(task.parked(&values, device)).filter(Task::is_parked)
}
