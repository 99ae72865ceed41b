//! A schedule that is being changed, one action after another, with its memory profile and its time kept up to date.
//!
//! What changes are runs that come and go, and values that are sent away and kept again; all else follows. The profile of the
//! device is a flat array ([`profile`]); what the other tiers hold, and when all is done, is for the [`clock`] to say, which is
//! there only where values may be away. Inserting or removing a run takes O(its operands × log of their uses + positions by which their
//! stays change), and all uses of those that are mutated or away. Most changes are taken back: a journal says what was added to the profile, so that nothing is worked out twice.

mod absences;
mod chains;
mod clock;
mod machine;
mod profile;
mod runs;
mod stays;
mod ticks;
mod ways;

#[cfg(test)]
mod tests;

use memfit_ir::{Csr, Device, ValueId};

use super::ids::{NodeId, RunId};
use super::random::Random;
use super::transfers::Leave;
use super::{Algorithms, RunList, Task};

use absences::Absences;
pub(super) use absences::Away;
use clock::Told;
use profile::{Mark, Profile};
use runs::Runs;
use ticks::Ticks;

/// What was done, to be taken back.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Inserted(RunId, NodeId),
    /// From this position.
    Removed(NodeId, usize),
    /// To this place among those that are away.
    Sent(usize),
    /// From there.
    Kept(Away),
    /// Instead of the algorithm of this number.
    Chosen(NodeId, usize),
}

/// See the head of the file.
pub(super) struct Editor<'t, 'g> {
    pub(super) task: &'t Task<'g>,
    /// By position; the end reads all results.
    pub(super) runs: Runs,
    /// By value: runs that define or read it, by position. Empty where the value needs no bytes.
    events: Vec<Vec<RunId>>,
    tracked: Vec<bool>,
    /// By node: those of its reads and writes that are tracked; all results, for the end.
    operands: Csr<ValueId>,
    absences: Absences,
    algorithms: Algorithms,
    profile: Profile,
    /// If values may be away.
    ticks: Option<Ticks>,
    /// Sum of run times.
    cost: u64,
    values: Vec<ValueId>,
    /// By value: how many of its events are before the run that comes or goes. Empty where no run does.
    places: Vec<usize>,
    /// Those of all that was done since it was last kept, one after the other.
    places_done: Vec<usize>,
    takers: Vec<RunId>,
    /// The stays of `values` before a change; by value, where its list ends.
    before: Vec<(usize, usize)>,
    counts: Vec<usize>,
    after: Vec<(usize, usize)>,
    edges: Vec<(usize, i64)>,
    /// What was done since it was last kept, each with how the profile was before.
    done: Vec<(Edit, Mark)>,
    work: u64,
}

impl<'t, 'g> Editor<'t, 'g> {
    /// What is above `limit` less all snapshots counts as too much. `None` for sizes whose sums are beyond measure, and for
    /// what is no schedule.
    pub(super) fn new(task: &'t Task<'g>, schedule: &RunList, limit: i64) -> Option<Self> {
        let cost = schedule.cost(task)?;
        let nodes = task.nodes();
        let of_node =
            |node: usize| task.ways.row(node).iter().map(|way| way.workspace).chain([task.workspace[node]]);
        let scratch: Vec<i64> = (0..nodes).map(|node| of_node(node).max().unwrap_or(0)).collect();
        let most: i64 = task.size.iter().chain(&scratch).try_fold(0i64, |a, &b| a.checked_add(b))?;
        most.checked_mul(i64::try_from(nodes + 1).ok()?.checked_mul(64)?)?;
        let values = task.size.len();
        let tracked: Vec<bool> = task
            .value_ids()
            .map(|value| {
                let mutated = task.mutator[value.index()].is_some();
                task.size[value.index()] > 0 || (mutated && task.is_recomputable(value))
            })
            .collect();
        let is_tracked = |value: &ValueId| tracked[value.index()];
        let mut operands = Csr::default();
        for node in 0..nodes {
            let all = task.reads.row(node).iter().chain(task.writes.row(node));
            operands.push(all.copied().filter(is_tracked));
        }
        operands.push(task.value_ids().filter(|value| task.live_out[value.index()] && is_tracked(value)));
        let mut editor = Editor {
            task,
            runs: Runs::new(nodes, schedule),
            events: vec![Vec::new(); values],
            tracked,
            operands,
            absences: Absences::default(),
            algorithms: Algorithms::default(),
            profile: Profile::default(),
            ticks: None,
            cost: cost.time.0,
            values: Vec::new(),
            places: Vec::new(),
            places_done: Vec::new(),
            takers: Vec::new(),
            before: Vec::new(),
            counts: Vec::new(),
            after: Vec::new(),
            edges: Vec::new(),
            done: Vec::new(),
            work: 0,
        };
        for at in 0..editor.runs.len() {
            let run = editor.runs.at(at);
            editor.note(editor.runs.node(run));
            for &value in &editor.values {
                editor.events[value.index()].push(run);
            }
        }
        editor.profile = Profile::new(editor.runs.len(), task.snapshots - limit);
        for value in task.value_ids() {
            let mut stays = Vec::new();
            editor.stays(value, &mut stays);
            for (from, to) in stays {
                editor.profile.add(from, to, task.size[value.index()]);
            }
        }
        for at in 0..editor.runs.len() {
            let run = editor.runs.at(at);
            let own = editor.scratch(run) - editor.taken(run);
            editor.profile.add(at, at, own);
        }
        editor.keep();
        Some(editor)
    }

    /// The same with the values of `away` away. Over the links of `device`, if it is told: else nothing is waited for, and what
    /// is encoded takes no room. `None` as for [`Editor::new`].
    pub(super) fn with_away(
        task: &'t Task<'g>,
        schedule: &RunList,
        limit: i64,
        (away, device): (&[Away], Option<&Device>),
    ) -> Option<Self> {
        let mut editor = Editor::new(task, schedule, limit)?;
        editor.ticks = device.map(|device| Ticks::new(&editor, device));
        for &away in away {
            editor.send(away);
        }
        editor.told();
        editor.keep();
        Some(editor)
    }

    /// What was done up to now is here to stay.
    pub(super) fn keep(&mut self) {
        self.done.clear();
        self.places_done.clear();
        self.profile.keep();
        if let Some(ticks) = &mut self.ticks {
            ticks.clock.keep();
        }
    }

    /// How many edits were made since it was last kept.
    pub(super) fn edits(&self) -> usize {
        self.done.len()
    }

    /// Nodes of which runs were inserted since then, in order.
    pub(super) fn inserted(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.done.iter().filter_map(|&(edit, _)| match edit {
            Edit::Inserted(_, node) => Some(node),
            Edit::Removed(..) | Edit::Sent(_) | Edit::Kept(_) | Edit::Chosen(..) => None,
        })
    }

    /// Work since the start: runs that came or went, each with all events of its operands, though few of those are looked at. The same
    /// on every machine.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Takes back all but the first `kept` of what was done since it was last kept.
    pub(super) fn take_back(&mut self, kept: usize) {
        while self.done.len() > kept {
            let Some((edit, mark)) = self.done.pop() else { return };
            match edit {
                Edit::Inserted(run, node) => {
                    self.note_again(node);
                    self.unlist(run);
                }
                Edit::Removed(node, position) => {
                    self.note_again(node);
                    self.list(node, position);
                }
                Edit::Sent(place) => {
                    self.unlist_away(place);
                }
                Edit::Kept(away) => {
                    self.list_away(away);
                }
                Edit::Chosen(node, was) => {
                    self.switch(node, was);
                }
            }
            self.profile.take_back(mark);
        }
        if kept == 0
            && let Some(ticks) = &mut self.ticks
        {
            ticks.clock.take_back();
        }
    }

    pub(super) fn events(&self, value: ValueId) -> &[RunId] {
        &self.events[value.index()]
    }

    pub(super) fn is_over(&self, position: usize) -> bool {
        self.profile.mem()[position] > 0
    }

    /// Sum over positions of the bytes of device memory above the limit.
    pub(super) fn over(&self) -> i64 {
        self.profile.over()
    }

    /// Time of all runs, nothing waited for.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// When all is done, with what is waited for, and what is too much for other tiers.
    pub(super) fn told(&mut self) -> Told {
        let Some(mut ticks) = self.ticks.take() else { return Told { time: self.cost, over: 0 } };
        let (told, work) = ticks.read(self);
        self.work += work;
        self.ticks = Some(ticks);
        told
    }

    /// Whether `run` defines `value`, else it reads it.
    pub(super) fn defines(&self, run: RunId, value: ValueId) -> bool {
        Some(self.runs.node(run)) == self.task.producer[value.index()]
    }

    /// Index in `events(value)` of the first event at or after `position`.
    pub(super) fn event_at(&self, value: ValueId, position: usize) -> usize {
        self.events[value.index()].partition_point(|&run| self.runs.position(run) < position)
    }

    /// Whether a later run of `node` may stand before `position` as far as what is mutated for good goes.
    pub(super) fn in_time(&self, node: NodeId, position: usize) -> bool {
        let deadline = self.task.deadline[node.index()];
        deadline.is_none_or(|deadline| position <= self.runs.position(RunId::first(deadline)))
    }

    /// Inserts a run of `node` before `position`. The second says whether every read still finds its value;
    /// if not, take it back.
    pub(super) fn insert(&mut self, node: NodeId, position: usize) -> (RunId, bool) {
        let mark = self.profile.mark();
        self.lift(node, position);
        let live = self.live_before(position);
        let next = self.runs.at(position);
        let mut from = 0;
        for at in 0..self.values.len() {
            let (value, to) = (self.values[at], self.counts[at]);
            if from == to {
                continue;
            }
            let born = self.defines(next, value) || self.comes_back(next, value);
            for stay in &mut self.before[from..to] {
                stay.0 += usize::from(stay.0 > position || (born && stay.0 == position));
                stay.1 += usize::from(stay.1 >= position);
            }
            from = to;
        }
        let run = self.list(node, position);
        self.done.push((Edit::Inserted(run, node), mark));
        self.profile.open(position, live);
        self.join(node, position, false);
        let right = self.settle();
        let own = self.scratch(run) - self.taken(run);
        self.profile.add(position, position, own);
        (run, right)
    }

    /// Removes a run that is not a first one; whether every read still finds its value. Returns to the same
    /// state if it is inserted at the same position.
    pub(super) fn remove(&mut self, run: RunId) -> bool {
        let (node, position) = (self.runs.node(run), self.runs.position(run));
        self.done.push((Edit::Removed(node, position), self.profile.mark()));
        let own = self.scratch(run) - self.taken(run);
        self.profile.add(position, position, -own);
        self.lift(node, position);
        for stay in &mut self.before {
            // One of this position alone ends before it begins, which is to say that it's none.
            let alone = *stay == (position, position);
            stay.0 = if alone { 1 } else { stay.0 - usize::from(stay.0 > position) };
            stay.1 = if alone { 0 } else { stay.1 - usize::from(stay.1 >= position) };
        }
        self.profile.close(position);
        self.unlist(run);
        self.join(node, position, true);
        self.settle()
    }

    /// Sends a value away; whether every read still finds its value. What takes no bytes stays.
    pub(super) fn send(&mut self, away: Away) -> bool {
        if !self.tracked[away.value.index()] {
            return true;
        }
        let mark = self.profile.mark();
        self.lift_value(away.value);
        let place = self.list_away(away);
        self.done.push((Edit::Sent(place), mark));
        self.settle()
    }

    /// Keeps the value that is away as `place` says; whether every read still finds its value.
    pub(super) fn recall(&mut self, place: usize) -> bool {
        let Some(away) = self.absences.get(place) else { return true };
        self.done.push((Edit::Kept(away), self.profile.mark()));
        self.lift_value(away.value);
        self.unlist_away(place);
        self.settle()
    }

    /// What is away, by its place.
    pub(super) fn away(&self, place: usize) -> Option<Away> {
        self.absences.get(place)
    }

    /// Whether `value` is away from `run`, an event of it, to its next one.
    pub(super) fn is_away_from(&self, run: RunId, value: ValueId) -> bool {
        self.absences.beginning(value, run).is_some()
    }

    /// Whether anything is away.
    pub(super) fn is_any_away(&self) -> bool {
        !self.absences.is_empty()
    }

    /// A place of what is away, drawn at random; `None` if nothing is.
    pub(super) fn any_away(&self, random: &mut Random) -> Option<usize> {
        let count = self.absences.count();
        let at = (count > 0).then(|| random.below(count))?;
        self.absences.places().nth(at)
    }

    /// All that is away, by place.
    pub(super) fn all_away(&self) -> Vec<Away> {
        self.absences.places().filter_map(|place| self.absences.get(place)).collect()
    }

    /// Places of all that is away.
    pub(super) fn places(&self) -> Vec<usize> {
        self.absences.places().collect()
    }

    /// Enters a run of `node`, whose operands are in `values` and the places of those in `places`, before `position`, everywhere
    /// but in the profile.
    fn list(&mut self, node: NodeId, position: usize) -> RunId {
        let run = self.runs.insert(node, position);
        for (value, &place) in self.values.iter().zip(&self.places) {
            self.events[value.index()].insert(place, run);
        }
        self.cost = self.cost.saturating_add(self.task.later_cost[node.index()]);
        self.cost = self.cost.saturating_add_signed(self.longer(node));
        self.touch(run);
        self.find_noted_trips();
        run
    }

    /// The opposite.
    fn unlist(&mut self, run: RunId) {
        for (value, &place) in self.values.iter().zip(&self.places) {
            self.events[value.index()].remove(place);
        }
        let node = self.runs.node(run);
        self.cost = self.cost.saturating_sub(self.task.later_cost[node.index()]);
        self.cost = self.cost.saturating_add_signed(-self.longer(node));
        self.touch(run);
        self.find_noted_trips();
        self.runs.remove(run);
    }

    fn list_away(&mut self, away: Away) -> usize {
        let events = &mut self.events[away.value.index()];
        let place = self.absences.enter(away, events, &self.runs);
        self.find_trips(away.value);
        place
    }

    fn unlist_away(&mut self, place: usize) {
        let Some(away) = self.absences.get(place) else { return };
        self.absences.leave(place, &mut self.events[away.value.index()], &self.runs);
        self.forget_trip(place);
        self.find_trips(away.value);
    }

    /// What runs, and what is away meanwhile, by when it leaves.
    pub(super) fn schedule(&self) -> (RunList, Vec<Leave>) {
        (self.runs.schedule(), self.leaves())
    }
}
