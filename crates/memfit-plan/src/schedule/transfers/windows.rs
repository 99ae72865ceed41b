//! From chosen gaps to a program: each value is kept as long as there is room while its copy is made, and comes back as
//! early as there is room, so that as much of the transfers as may be is hidden behind ops.

use std::collections::BTreeMap;

use memfit_ir::{Action, Bytes, Form, Link, Program, Schedule, Tier, ValueId};

use super::gaps::{Gap, Gaps};
use super::{Algorithms, HomeStay, RunList, Task};

/// A gap in which its value is away.
#[derive(Clone, Copy, Debug)]
pub(in crate::schedule) struct Window {
    pub(in crate::schedule) gap: Gap,
    /// How it waits: as its gap has it, unless there is a disk that takes it.
    pub(in crate::schedule) form: Form,
    /// The run before which its copy is begun.
    pub(in crate::schedule) store: usize,
    /// The last run during which it is still there, in `gap.from..gap.to`.
    pub(in crate::schedule) gone: usize,
    /// The run before which it is fetched, more than one beyond `gone`, and `gap.to` at most.
    pub(in crate::schedule) back: usize,
    /// Whether the copy that an earlier window has made is still there, so that nothing is stored.
    pub(in crate::schedule) kept: bool,
}

impl Window {
    /// From right after the use before `gap` until right before the one after it.
    pub(in crate::schedule) fn whole(gap: Gap) -> Window {
        Window { gap, form: gap.form, store: gap.from + 1, gone: gap.from, back: gap.to, kept: false }
    }

    /// Its copy waits on a disk behind `link`.
    pub(super) fn move_to_disk(&mut self, link: Link) {
        let moved = Bytes(self.gap.copy);
        self.form = match self.form {
            Form::Tier(_) => Form::Tier(Tier::Disk),
            Form::EncodedOn(_, codec) => Form::EncodedOn(Tier::Disk, codec),
            Form::Encoded(_) => return,
        };
        (self.gap.out, self.gap.back) = (link.out_time(moved).0, link.in_time(moved).0);
    }

    /// The queue of its transfers, by tier. What is encoded in device memory waits for none.
    fn queue(&self) -> usize {
        self.form.tier().map_or(0, Tier::index)
    }

    /// Copied beside the run that uses it last before `gap`; where that run makes it, beside the one after it, if there is
    /// time. Away until right before its next use.
    pub(in crate::schedule) fn beside(gap: Gap) -> Window {
        match gap.made {
            false => Window { store: gap.from, ..Window::whole(gap) },
            true => Window { gone: (gap.from + 1).min(gap.to - 2), ..Window::whole(gap) },
        }
    }
}

/// When a value leaves and returns, told by positions in a run list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Leave {
    pub(in crate::schedule) value: ValueId,
    pub(in crate::schedule) form: Form,
    /// As [`Window`] has them.
    pub(in crate::schedule) store: usize,
    pub(in crate::schedule) gone: usize,
    pub(in crate::schedule) back: usize,
    /// The run that uses it next.
    pub(in crate::schedule) used: usize,
    /// As [`Window`] has it.
    pub(in crate::schedule) kept: bool,
}

impl From<&Window> for Leave {
    fn from(window: &Window) -> Leave {
        let Window { gap, form, store, gone, back, kept } = *window;
        Leave { value: gap.value, form, store, gone, back, used: gap.to, kept }
    }
}

/// Has what is kept in a copy wait where that copy is.
pub(super) fn follow_copies(windows: &mut [Window]) {
    let made = windows.iter().filter(|window| !window.kept);
    let forms: BTreeMap<ValueId, Form> = made.map(|window| (window.gap.value, window.form)).collect();
    for window in windows.iter_mut().filter(|window| window.kept) {
        window.form = forms.get(&window.gap.value).copied().unwrap_or(window.form);
    }
}

/// Keeps the value of each of `windows`, in the order in which they begin, until its copy is there, whatever room there is.
pub(in crate::schedule) fn leave_when_copied(step: &Gaps, windows: &mut [Window]) {
    let mut live = vec![0; step.live.len() + 1];
    leave_late(step, windows, &mut live, i64::MAX);
}

/// Keeps the value of each of `windows`, in the order in which they begin, until its copy is there, as long as live bytes stay
/// within `budget`. What is live then, by run.
pub(in crate::schedule) fn leave_in_time(step: &Gaps, windows: &mut [Window], budget: i64) -> Vec<i64> {
    let gaps: Vec<Gap> = windows.iter().map(|window| window.gap).collect();
    let mut live = without(step, &gaps);
    leave_late(step, windows, &mut live, budget);
    live
}

/// Fetches each value that is used after `turn`, where forward turns to backward, while what is fetched before it is used.
pub(in crate::schedule) fn return_one_ahead(windows: &mut [Window], turn: usize) {
    windows.sort_by_key(|window| window.gap.to);
    let mut before = turn;
    let mut last = turn;
    for window in windows {
        if window.gap.to > last {
            (before, last) = (last, window.gap.to);
        }
        window.back = before.clamp(window.gone + 2, window.gap.to);
    }
}

/// What is evicted, and when, if a value goes only where room is needed for a run: of those that the run does not use, the one
/// for which `rank` is least, if it has one. It comes back for its next use. `None` if nothing is left to go.
pub(in crate::schedule) fn on_demand<K: Ord>(
    step: &Gaps,
    limit: i64,
    rank: impl Fn(&Gap) -> Option<K>,
) -> Option<Vec<Window>> {
    let mut live = step.live.clone();
    let mut windows = Vec::new();
    let mut gaps = step.gaps.iter().enumerate().peekable();
    // Those whose value is there, and which the run does not use.
    let mut idle = BTreeMap::new();
    for run in 0..live.len() {
        while let Some((at, gap)) = gaps.next_if(|(_, gap)| gap.from < run) {
            idle.extend(rank(gap).map(|rank| ((rank, at), *gap)));
        }
        while live[run] > limit {
            let (_, gap) = idle.pop_first()?;
            if gap.to > run {
                live[run..gap.to.min(step.live.len())].iter_mut().for_each(|live| *live -= gap.size);
                windows.push(Window { store: run, gone: run - 1, ..Window::whole(gap) });
            }
        }
    }
    Some(windows)
}

/// `live` bytes by run, less those of `leaves` while they are away, and those of `gaps` for as long as they are not used.
pub(in crate::schedule) fn live_of(
    live: &[i64],
    leaves: &[Leave],
    gaps: &[Gap],
    size: impl Fn(&Leave) -> i64,
) -> Vec<i64> {
    let mut live = live.to_vec();
    let runs = live.len();
    for leave in leaves {
        let away = leave.gone + 1..leave.back.min(runs);
        live[away].iter_mut().for_each(|live| *live -= size(leave));
    }
    for gap in gaps {
        live[gap.away(runs)].iter_mut().for_each(|live| *live -= gap.size);
    }
    live
}

/// Live bytes by run with the values of `chosen` away for as long as they are not used.
pub(super) fn live_without(step: &Gaps, chosen: &[usize]) -> Vec<i64> {
    let gaps: Vec<Gap> = chosen.iter().map(|&at| step.gaps[at]).collect();
    without(step, &gaps)
}

fn without(step: &Gaps, gaps: &[Gap]) -> Vec<i64> {
    let mut change = vec![0i64; step.live.len() + 1];
    for gap in gaps {
        let away = gap.away(step.live.len());
        change[away.start] -= gap.size;
        change[away.end] += gap.size;
    }
    let mut sum = 0;
    let mut live = step.live.clone();
    for (live, change) in live.iter_mut().zip(change) {
        sum += change;
        *live += sum;
    }
    live
}

/// The program of `runs`, each by its algorithm, in which values are away as `leaves` say, and storages that are at home in another
/// tier are there for `stays`.
pub(in crate::schedule) fn program(
    task: &Task<'_>,
    (runs, leaves, algorithms): (&RunList, &[Leave], &Algorithms),
    stays: &[HomeStay],
) -> Option<Program> {
    let mut schedule = actions(task, runs, leaves, stays);
    algorithms.enter(task, &mut schedule.actions);
    schedule.program(task.graph, task.in_place).ok()
}

/// When the values of the gaps `chosen` are away, where live bytes stay within `budget`.
pub(super) fn windows(step: &Gaps, chosen: &[usize], budget: i64) -> Vec<Window> {
    let mut windows: Vec<Window> = chosen.iter().map(|&at| Window::whole(step.gaps[at])).collect();
    windows.sort_by_key(|window| (window.gap.from, window.gap.to, window.gap.value));
    narrow(step, &mut windows, budget);
    windows
}

/// Has each of `windows`, which are in the order in which they begin, leave as late and return as early as hides its transfers,
/// where live bytes stay within `budget`.
pub(super) fn narrow(step: &Gaps, windows: &mut [Window], budget: i64) {
    // Where ops wait for transfers anyway, nothing is hidden behind them.
    if step.asynchronous {
        let gaps: Vec<Gap> = windows.iter().map(|window| window.gap).collect();
        let mut live = without(step, &gaps);
        leave_late(step, windows, &mut live, budget);
        return_early(step, windows, &mut live, budget);
    }
}

/// Keeps each value until its copy is there, if there is room. Copies to a tier are made one after the
/// other.
fn leave_late(step: &Gaps, windows: &mut [Window], live: &mut [i64], budget: i64) {
    let mut queues = [0u64; Tier::ALL.len()];
    for window in windows {
        let Gap { flight, from, to, out, .. } = window.gap;
        let mut free = queues[window.queue()];
        free = free.max(step.begins[from + 1]).saturating_add(out);
        // One run in between at least in which it is away.
        while window.gone + 2 < to
            && step.begins[window.gone + 1] < free
            && live[window.gone + 1].saturating_add(flight) <= budget
        {
            live[window.gone + 1] += flight;
            window.gone += 1;
        }
        // What is not done by then is waited for.
        free = free.min(step.begins[window.gone + 1].max(step.begins[from + 1].saturating_add(out)));
        queues[window.queue()] = free;
    }
}

/// Brings each value back early enough, if there is room, from the last on. Copies in a tier are read one after the
/// other.
fn return_early(step: &Gaps, windows: &mut [Window], live: &mut [i64], budget: i64) {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(windows[at].gap.to), at));
    let mut queues = [u64::MAX; Tier::ALL.len()];
    for at in order {
        let window = &mut windows[at];
        let Gap { flight, to, back, .. } = window.gap;
        let next = &mut queues[window.queue()];
        let begin = (*next).min(step.begins[to]).saturating_sub(back);
        while window.back > window.gone + 2
            && step.begins[window.back] > begin
            && live[window.back - 1].saturating_add(flight) <= budget
        {
            window.back -= 1;
            live[window.back] += flight;
        }
        *next = begin.max(step.begins[window.back]);
    }
}

fn actions(task: &Task<'_>, runs: &RunList, leaves: &[Leave], stays: &[HomeStay]) -> Schedule {
    // What stands before each run, and after the last.
    let mut stores: Vec<Vec<usize>> = vec![Vec::new(); runs.len() + 1];
    let mut releases = stores.clone();
    let mut loads = stores.clone();
    for (at, leave) in leaves.iter().enumerate() {
        if !leave.kept {
            stores[leave.store].push(at);
        }
        // A stay ends with its last use, which the store is, if it is not before the run that is.
        if leave.gone >= leave.store {
            releases[leave.gone + 1].push(at);
        }
        loads[leave.back].push(at);
    }
    let value = |at: usize| leaves[at].value;
    let form = |at: usize| leaves[at].form;
    // What the transfer reads stays until it is done, or as long as it may.
    let held = |at: usize| match leaves[at].form {
        Form::EncodedOn(_, codec) => Some(Form::Encoded(codec)),
        Form::Tier(_) | Form::Encoded(_) => None,
    };
    runs.actions_with(task, stays, |run, actions| {
        actions.extend(stores[run].iter().map(|&at| Action::Store(value(at), form(at))));
        actions.extend(releases[run].iter().map(|&at| Action::Release(value(at), held(at))));
        // Who is needed first is fetched first.
        loads[run].sort_by_key(|&at| (leaves[at].used, at));
        actions.extend(loads[run].iter().map(|&at| Action::Load(value(at), form(at))));
    })
}
