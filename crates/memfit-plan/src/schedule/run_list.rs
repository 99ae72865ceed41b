//! A schedule of runs alone: which node runs when; what it takes; its actions and its program.

use memfit_ir::{Action, Bytes, Form, Nanos, OpId, Program, Schedule};

use super::Task;
use super::homes::{HomeStay, beside};
use super::ids::NodeId;
use super::task::{self, nodes_of};
use crate::problem::bytes;

/// How snapshots of small persistent storages are held.
const SNAPSHOT: Form = Form::Encoded(task::SNAPSHOT);

/// A sequence of runs of a task's nodes. First runs are in the order of the nodes; every read finds the latest
/// run of the node that makes its value; a value is freed after its last use before it is made again.
///
/// So it is a list of numbers and nothing else, which is what makes millions of changes to it cheap: what is freed, taken
/// over in place and made again follows from it, and no other choice of frees for the same runs needs fewer bytes at
/// any of them. [`RunList::actions`] is the [`Schedule`] that says the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunList {
    /// Nodes of the task, in the order they run.
    pub(super) runs: Vec<NodeId>,
}

/// What a schedule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Largest sum of live bytes, each buffer rounded up to the alignment.
    pub peak: Bytes,
    /// Sum of the run times.
    pub time: Nanos,
}

impl RunList {
    /// Every node once.
    #[must_use]
    pub fn plain(task: &Task<'_>) -> RunList {
        RunList { runs: task.node_ids().collect() }
    }

    /// Ops in the order in which they run, first and later runs; `None` if one of them is no op of `task`.
    /// [`RunList::cost`] says whether it is a schedule.
    #[must_use]
    pub fn of_ops(task: &Task<'_>, ops: impl IntoIterator<Item = OpId>) -> Option<RunList> {
        let node_of = nodes_of(task.nodes(), &task.order);
        let node = |op: OpId| node_of.get(op.index()).copied().flatten();
        Some(RunList { runs: ops.into_iter().map(node).collect::<Option<_>>()? })
    }

    /// Number of runs, first and later ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What it takes, or `None` if it is no schedule of `task`: a read finds nothing, an op runs again that
    /// must not, or first runs are out of order. Time O(operands of all runs).
    #[must_use]
    pub fn cost(&self, task: &Task<'_>) -> Option<Cost> {
        let mut time = 0u64;
        let mut next = 0;
        let mut again = vec![false; task.nodes()];
        for &node in &self.runs {
            let at = node.index();
            if at == next {
                next += 1;
                time = time.checked_add(task.cost[at])?;
            } else if at > next || !task.recomputable[at] {
                return None;
            } else {
                time = time.checked_add(task.later_cost[at])?;
                if !std::mem::replace(&mut again[at], true) {
                    time = time.checked_add(task.later_cost[at] - task.cost[at])?; // Taking the snapshot.
                }
            }
        }
        if next != task.nodes() {
            return None;
        }
        let mut peak = 0;
        self.backward(task, |_, mem, _| peak = peak.max(mem))?;
        if self.runs.is_empty() && !task.value_ids().any(|value| task.is_unused(value)) {
            return Some(Cost { peak: Bytes::ZERO, time: Nanos(time) }); // A program without steps.
        }
        peak = peak.max(task.sources);
        Some(Cost { peak: bytes(task.constant + peak), time: Nanos(time) })
    }

    /// Walks the runs from the last to the first. Calls `visit` for each with its index, the live bytes
    /// meanwhile (without the constant), and the table of values that are needed after it; operands of the
    /// run are in the table as they are *after* the run. `None` if a read finds nothing.
    fn backward(&self, task: &Task<'_>, mut visit: impl FnMut(usize, i64, &[bool])) -> Option<()> {
        let mut needed = task.live_out.clone();
        let mut live: i64 = (0..needed.len()).filter(|&value| needed[value]).map(|v| task.size[v]).sum();
        let mut left = vec![0u32; task.nodes()];
        for &node in &self.runs {
            *left.get_mut(node.index())? += 1;
        }
        let mut again = vec![false; task.nodes()];
        for (at, &id) in self.runs.iter().enumerate().rev() {
            let node = id.index();
            left[node] -= 1;
            let first = left[node] == 0;
            if !first && !std::mem::replace(&mut again[node], true) {
                live += task.snapshot[node]; // Up to its last later run.
            }
            let taken = task.taken(node, |value| !needed[value.index()]);
            let (mut mem, mut before) = (live + task.workspace_of(id, first) - taken, live);
            for &value in task.writes_of(id, first) {
                let size = task.size[value.index()];
                if needed[value.index()] { before -= size } else { mem += size }
            }
            for &value in task.reads_of(id, first) {
                if !needed[value.index()] {
                    mem += task.size[value.index()];
                    before += task.size[value.index()];
                } else if task.mutator[value.index()] == Some(id) {
                    return None; // Read after it was mutated.
                }
            }
            visit(at, mem, &needed);
            for &value in task.writes_of(id, first) {
                needed[value.index()] = false;
            }
            for &value in task.reads_of(id, first) {
                needed[value.index()] = true;
            }
            live = before;
            if first && again[node] {
                live -= task.snapshot[node];
            }
        }
        let missing = (0..needed.len()).any(|value| needed[value] && task.producer[value].is_some());
        (!missing).then_some(())
    }

    /// Live bytes during each run, the constant included. `None` if this is no schedule of `task`.
    #[must_use]
    pub fn profile(&self, task: &Task<'_>) -> Option<Vec<Bytes>> {
        let mut profile = vec![Bytes::ZERO; self.runs.len()];
        self.backward(task, |at, mem, _| profile[at] = bytes(task.constant + mem))?;
        Some(profile)
    }

    /// Its runs in order: the node, and whether it is the node's first run.
    pub(super) fn each<'a>(&'a self, task: &Task<'_>) -> impl Iterator<Item = (NodeId, bool)> + use<'a> {
        let mut ran = vec![false; task.nodes()];
        self.runs.iter().map(move |&node| (node, !std::mem::replace(&mut ran[node.index()], true)))
    }

    /// The same as actions, beside which stand what keeps the snapshots of persistent storages: stored before the first
    /// run of an op that mutates them, loaded before each later one, given up after the last.
    #[must_use]
    pub fn actions(&self, task: &Task<'_>) -> Schedule {
        self.actions_with(task, &beside(task, self.each(task)), |_, _| {})
    }

    /// The same, with what `more` adds before each run, by its position, and at the end. Storages that are at home in another
    /// tier are there for `stays`: what they give up goes before what `more` adds, what they need comes after that.
    pub(super) fn actions_with(
        &self,
        task: &Task<'_>,
        stays: &[HomeStay],
        mut more: impl FnMut(usize, &mut Vec<Action>),
    ) -> Schedule {
        let mut homes = by_run(stays, self.len());
        let mut more = |at: usize, actions: &mut Vec<Action>| {
            let Some([stores, releases, loads]) = homes.get_mut(at).map(std::mem::take) else {
                return more(at, actions);
            };
            actions.extend(stores.into_iter().chain(releases).map(|(_, action)| action));
            more(at, actions);
            actions.extend(loads.into_iter().map(|(_, action)| action));
        };
        let mut left = vec![0u32; task.nodes()];
        for &node in &self.runs {
            left[node.index()] += 1;
        }
        let mut actions = Vec::with_capacity(self.runs.len());
        for (at, (node, first)) in self.each(task).enumerate() {
            let node = node.index();
            more(at, &mut actions);
            left[node] -= 1;
            let again = left[node] > 0;
            let storages = task.snapped.row(node).iter().map(|&(input, _)| input);
            if !first {
                actions.extend(storages.clone().map(|storage| Action::Load(storage, SNAPSHOT)));
            } else if again {
                actions.extend(storages.clone().map(|storage| Action::Store(storage, SNAPSHOT)));
            }
            actions.push(Action::Run { op: task.order[node], algorithm: 0 });
            if !first && !again {
                actions.extend(storages.map(|storage| Action::Release(storage, Some(SNAPSHOT))));
            }
        }
        more(self.runs.len(), &mut actions);
        actions.extend(task.held.iter().map(|&value| Action::Release(value, None)));
        Schedule { actions, parked: task.homes.parked() }
    }

    /// The program: each run a compute step, each buffer freed right after its last use or taken over.
    /// `None` if this is no schedule of `task`. Time O(operands of all runs).
    #[must_use]
    pub fn program(&self, task: &Task<'_>) -> Option<Program> {
        self.cost(task)?;
        self.actions(task).program(task.graph, task.in_place).ok()
    }
}

/// What is done before a run, and the run that it is for.
type Ordered = Vec<(usize, Action)>;

/// By run, and at the end of so many: what is stored, released and loaded for `stays`, who is needed first first. Empty if
/// there are no stays.
fn by_run(stays: &[HomeStay], runs: usize) -> Vec<[Ordered; 3]> {
    if stays.is_empty() {
        return Vec::new();
    }
    let mut by_run: Vec<[Ordered; 3]> = vec![Default::default(); runs + 1];
    for stay in stays {
        let (at, load, used) = stay.load();
        by_run[at][2].push((used, load));
        for (kind, action) in [stay.store(), stay.release()].into_iter().enumerate() {
            if let Some((at, action)) = action {
                by_run[at][kind].push((used, action));
            }
        }
    }
    for each in by_run.iter_mut().flatten() {
        each.sort_by_key(|&(used, _)| used);
    }
    by_run
}
