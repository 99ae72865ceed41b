//! Plans that are asked for more than once: by a strategy that looks at what others find, and of those themselves.

use memfit_ir::{Bytes, Codec, Device};

use super::{Front, Infeasible, Scheduler, Task};
use crate::{Context, Info};

/// What was found for a task, by scheduler, budget, and what else a plan depends on.
#[derive(Default)]
struct Known(Vec<Row>);

struct Row {
    who: Info,
    budget: Bytes,
    with: (Device, u64, u32, Vec<Codec>),
    found: Result<Front, Infeasible>,
}

/// What `find` finds for `budget` under the name of `who`, once; what is found in less time than it takes is not kept.
pub(super) fn once(
    task: &Task<'_>,
    (who, budget): (Info, Bytes),
    context: &Context<'_>,
    find: impl FnOnce() -> Result<Front, Infeasible>,
) -> Result<Front, Infeasible> {
    if let Some(found) = get(task, (who, budget), context) {
        return found;
    }
    let found = find();
    if !(context.stop)() {
        let with = (context.device.clone(), context.seed, context.effort, context.lossy.to_vec());
        let row = Row { who, budget, with, found: found.clone() };
        task.memo.with(|known: &mut Known| known.0.push(row));
    }
    found
}

/// As `scheduler.plan`, or what it has found for [`once`] already.
pub(super) fn plan(
    scheduler: &dyn Scheduler,
    task: &Task<'_>,
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let known = get(task, (scheduler.info(), budget), context);
    known.unwrap_or_else(|| scheduler.plan(task, budget, context))
}

fn get(
    task: &Task<'_>,
    (who, budget): (Info, Bytes),
    context: &Context<'_>,
) -> Option<Result<Front, Infeasible>> {
    let is_this = |row: &&Row| {
        let (device, seed, effort, lossy) = &row.with;
        let with = (device, *seed, *effort, lossy.as_slice());
        row.who == who
            && row.budget == budget
            && with == (context.device, context.seed, context.effort, context.lossy)
    };
    task.memo.with(|known: &mut Known| known.0.iter().find(is_this).map(|row| row.found.clone()))
}
