//! A schedule that is being changed run by run, with its memory profile kept up to date.
//!
//! The profile is a flat array over positions, not a segment tree. The search steers by the sum of what exceeds the
//! limit, which a tree can't keep up under an addition to a range without going down to its leaves; a run that
//! comes or goes moves all positions after it, which is one copy of memory; and ranges are short, since only what
//! changes of a stay is added or taken out: 97 positions in the mean on Inception-v3 (1,120 positions), 113 on a
//! decoder of 7B parameters (4,374), less than 80 ns each, which is what 2 log n nodes of a tree take. Inserting or
//! removing a run takes O(its operands' uses + positions by which their stays change). Most changes are taken back: a
//! journal says what was added to the profile, so that nothing is worked out twice.

use memfit_ir::{Reuse, ValueId};

use super::ids::{NodeId, RunId};
use super::runs::Runs;
use super::{RunList, Task};

use absences::Absences;
pub(super) use absences::Away;

/// A run that was inserted or removed, to be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    run: RunId,
    pub(super) node: NodeId,
    pub(super) inserted: bool,
    position: usize,
    /// Of the state before: steps of the journal, bytes above the limit.
    steps: usize,
    over: i64,
}

/// What happened to the profile.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// To all positions from the first to the second, both included.
    Added(usize, usize, i64),
    Opened(usize),
    /// With what it held.
    Closed(usize, i64),
}

/// See the head of the file.
pub(super) struct State<'t, 'g> {
    pub(super) task: &'t Task<'g>,
    /// By position; the end reads all results.
    pub(super) runs: Runs,
    /// By value: runs that define or read it, by position. Empty where the value needs no bytes.
    events: Vec<Vec<RunId>>,
    tracked: Vec<bool>,
    results: Vec<ValueId>,
    absences: Absences,
    /// By position: live bytes, less the limit.
    mem: Vec<i64>,
    /// Sum over positions of the bytes above the limit.
    pub(super) over: i64,
    /// Sum of run times.
    pub(super) cost: u64,
    values: Vec<ValueId>,
    takers: Vec<RunId>,
    /// The stays of `values` before a change; by value, where its list ends.
    before: Vec<(usize, usize)>,
    counts: Vec<usize>,
    after: Vec<(usize, usize)>,
    edges: Vec<(usize, i64)>,
    /// What was done since `begin`.
    done: Vec<Done>,
    journal: Vec<Step>,
    work: u64,
}

impl<'t, 'g> State<'t, 'g> {
    /// What is above `limit` less all snapshots counts as too much; the values of `away` wait elsewhere meanwhile. `None` for
    /// sizes whose sums are beyond measure, and for what is no schedule.
    pub(super) fn new(task: &'t Task<'g>, schedule: &RunList, limit: i64, away: &[Away]) -> Option<Self> {
        let cost = schedule.cost(task)?;
        let nodes = task.nodes();
        let most: i64 = task.size.iter().chain(&task.workspace).try_fold(0i64, |a, &b| a.checked_add(b))?;
        most.checked_mul(i64::try_from(nodes + 1).ok()?.checked_mul(64)?)?;
        let values = task.size.len();
        let tracked: Vec<bool> = task
            .value_ids()
            .map(|value| {
                let mutated = task.mutator[value.index()].is_some();
                task.size[value.index()] > 0 || (mutated && task.is_recomputable(value))
            })
            .collect();
        let is_result = |value: &ValueId| task.live_out[value.index()] && tracked[value.index()];
        let results = task.value_ids().filter(is_result).collect();
        let mut state = State {
            task,
            runs: Runs::new(nodes, schedule),
            events: vec![Vec::new(); values],
            tracked,
            results,
            absences: Absences::default(),
            mem: Vec::new(),
            over: 0,
            cost: cost.time.0,
            values: Vec::new(),
            takers: Vec::new(),
            before: Vec::new(),
            counts: Vec::new(),
            after: Vec::new(),
            edges: Vec::new(),
            done: Vec::new(),
            journal: Vec::new(),
            work: 0,
        };
        for at in 0..state.runs.len() {
            let run = state.runs.at(at);
            state.note(state.runs.node(run));
            for &value in &state.values {
                state.events[value.index()].push(run);
            }
        }
        let away = away.iter().copied().filter(|away| state.tracked[away.value.index()]);
        state.absences = Absences::of(away, &mut state.events, &state.runs);
        state.mem = vec![task.snapshots - limit; state.runs.len()];
        for value in task.value_ids() {
            let mut stays = Vec::new();
            state.stays(value, &mut stays);
            for (from, to) in stays {
                state.add(from, to, task.size[value.index()]);
            }
        }
        for at in 0..state.runs.len() {
            let run = state.runs.at(at);
            let more = state.scratch(run) - state.taken(run);
            state.mem[at] += more;
        }
        state.over = state.mem.iter().map(|&mem| mem.max(0)).sum();
        state.begin();
        Some(state)
    }

    /// Whether `value` comes back from elsewhere for `run`, if that is an event of it.
    fn comes_back(&self, run: RunId, value: ValueId) -> bool {
        if self.absences.is_empty() || self.defines(run, value) {
            return false;
        }
        let at = self.event_at(value, self.runs.position(run));
        let events = self.events(value);
        let before = at.checked_sub(1).map(|before| events[before]);
        events.get(at) == Some(&run) && before.is_some_and(|before| self.absences.begins(value, before))
    }

    /// Bytes that come back from elsewhere for `run`.
    fn back(&self, run: RunId) -> i64 {
        if self.absences.is_empty() {
            return 0;
        }
        let node = self.runs.node(run);
        let operands = (0..self.operand_count(node)).map(|at| self.operand(node, at));
        let back = self.absences.touched(run).chain(operands).filter(|&value| self.comes_back(run, value));
        back.map(|value| self.task.size[value.index()]).sum()
    }

    /// Forgets what was done up to now: it is here to stay.
    pub(super) fn begin(&mut self) {
        self.done.clear();
        self.journal.clear();
    }

    /// What was done since `begin`, in order.
    pub(super) fn done(&self) -> &[Done] {
        &self.done
    }

    /// Work since the start: runs that came or went, each with all events of its operands. The same on every machine.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Takes back all but the first `kept` of what was done since `begin`.
    pub(super) fn take_back(&mut self, kept: usize) {
        while self.done.len() > kept {
            let Some(Done { run, node, inserted, position, steps, over }) = self.done.pop() else { return };
            self.note(node);
            if inserted {
                self.unlist(run);
            } else {
                self.list(node, position);
            }
            for step in self.journal.drain(steps..).rev() {
                match step {
                    Step::Added(from, to, bytes) => {
                        for mem in &mut self.mem[from..=to] {
                            *mem -= bytes;
                        }
                    }
                    Step::Opened(position) => {
                        self.mem.remove(position);
                    }
                    Step::Closed(position, mem) => self.mem.insert(position, mem),
                }
            }
            self.over = over;
        }
    }

    pub(super) fn events(&self, value: ValueId) -> &[RunId] {
        &self.events[value.index()]
    }

    pub(super) fn is_over(&self, position: usize) -> bool {
        self.mem[position] > 0
    }

    /// Whether `run` defines `value`, else it reads it.
    pub(super) fn defines(&self, run: RunId, value: ValueId) -> bool {
        Some(self.runs.node(run)) == self.task.producer[value.index()]
    }

    /// Index in `events(value)` of the first event at or after `position`.
    pub(super) fn event_at(&self, value: ValueId, position: usize) -> usize {
        self.events[value.index()].partition_point(|&run| self.runs.position(run) < position)
    }

    fn operand_count(&self, node: NodeId) -> usize {
        if node.index() == self.task.nodes() {
            return self.results.len();
        }
        self.task.reads.row(node.index()).len() + self.task.writes.row(node.index()).len()
    }

    fn operand(&self, node: NodeId, at: usize) -> ValueId {
        if node.index() == self.task.nodes() {
            return self.results[at];
        }
        let reads = self.task.reads.row(node.index());
        if at < reads.len() { reads[at] } else { self.task.writes.row(node.index())[at - reads.len()] }
    }

    fn scratch(&self, run: RunId) -> i64 {
        let node = self.runs.node(run);
        if node.index() == self.task.nodes() {
            0
        } else {
            self.task.workspace_of(node, !self.runs.is_extra(run))
        }
    }

    /// Bytes that the outputs of `run` take over.
    fn taken(&self, run: RunId) -> i64 {
        let node = self.runs.node(run).index();
        if node == self.task.nodes() {
            return 0;
        }
        self.task.taken(node, |value| {
            let at = self.event_at(value, self.runs.position(run)) + 1;
            let events = self.events(value);
            events.get(at).is_none_or(|&next| self.defines(next, value))
        })
    }

    fn add(&mut self, from: usize, to: usize, bytes: i64) {
        // Twice what is above the limit is the sum with the magnitude: vector units without a maximum of 64 bits are
        // three times as fast at that.
        let range = &mut self.mem[from..=to];
        let mut twice = bytes * i64::try_from(range.len()).unwrap_or(i64::MAX);
        for mem in range {
            twice -= mem.abs();
            *mem += bytes;
            twice += mem.abs();
        }
        self.over += twice / 2;
        self.journal.push(Step::Added(from, to, bytes));
    }

    /// Appends the stays of `value` to `stays`, in order: each from one position to another, both included. Whether
    /// every read finds it.
    fn stays(&self, value: ValueId, stays: &mut Vec<(usize, usize)>) -> bool {
        let at = value.index();
        let mutator = self.task.mutator[at];
        let mut stay = self.task.producer[at].is_none().then_some((0, 0));
        let (mut right, mut away) = (true, false);
        for &run in &self.events[at] {
            let now = self.runs.position(run);
            let back = std::mem::replace(&mut away, self.absences.begins(value, run));
            if self.defines(run, value) {
                stays.extend(stay);
                stay = Some((now, now));
                continue;
            }
            right &= stay.is_some();
            let mut from = stay.map_or(now, |(from, _)| from);
            if back {
                stays.extend(stay);
                from = now;
            }
            if Some(self.runs.node(run)) == mutator {
                stays.push((from, now));
                stay = None;
            } else {
                stay = Some((from, now));
            }
        }
        // A source that nothing reads is freed before the first run.
        stays.extend(stay.filter(|_| !self.events[at].is_empty()));
        right
    }

    /// Notes the operands of `node` in `values`.
    fn note(&mut self, node: NodeId) {
        self.values.clear();
        for at in 0..self.operand_count(node) {
            let value = self.operand(node, at);
            if self.tracked[value.index()] {
                self.values.push(value);
            }
        }
    }

    /// Before `node` comes or goes: its operands are noted in `values`, their stays in `before`, and the runs whose
    /// takeovers may change in `takers`; what those take over is put back.
    fn lift(&mut self, node: NodeId) {
        self.note(node);
        self.takers.clear();
        self.work += 1;
        for at in 0..self.values.len() {
            let value = self.values[at];
            self.work += self.events[value.index()].len() as u64;
            for index in 0..self.events[value.index()].len() {
                let run = self.events[value.index()][index];
                let node = self.runs.node(run).index();
                let may = |pair: &Reuse| !pair.must && pair.input == value;
                if node < self.task.nodes() && self.task.reuses.row(node).iter().any(may) {
                    self.takers.push(run);
                }
            }
        }
        self.takers.sort_unstable();
        self.takers.dedup();
        for at in 0..self.takers.len() {
            let (run, taken) = (self.takers[at], self.taken(self.takers[at]));
            self.add(self.runs.position(run), self.runs.position(run), taken);
        }
        let (mut before, mut counts) = (std::mem::take(&mut self.before), std::mem::take(&mut self.counts));
        before.clear();
        counts.clear();
        for at in 0..self.values.len() {
            self.stays(self.values[at], &mut before);
            counts.push(before.len());
        }
        (self.before, self.counts) = (before, counts);
    }

    /// After the change: brings the profile from the stays in `before`, whose positions are those of now, to the
    /// present ones.
    fn settle(&mut self) -> bool {
        let mut right = true;
        let before = std::mem::take(&mut self.before);
        let (mut after, mut edges) = (std::mem::take(&mut self.after), std::mem::take(&mut self.edges));
        let mut from = 0;
        for at in 0..self.values.len() {
            let (value, to) = (self.values[at], self.counts[at]);
            after.clear();
            right &= self.stays(value, &mut after);
            self.shift(&before[from..to], &after, self.task.size[value.index()], &mut edges);
            from = to;
        }
        (self.before, self.after, self.edges) = (before, after, edges);
        for at in 0..self.takers.len() {
            let (run, taken) = (self.takers[at], self.taken(self.takers[at]));
            self.add(self.runs.position(run), self.runs.position(run), -taken);
        }
        right
    }

    /// Adds `bytes` to the profile where `after` is and `before` isn't, and takes them out where it's the other way.
    fn shift(
        &mut self,
        before: &[(usize, usize)],
        after: &[(usize, usize)],
        bytes: i64,
        edges: &mut Vec<(usize, i64)>,
    ) {
        let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        edges.clear();
        for (stays, sign) in [(&before[same..], -bytes), (&after[same..], bytes)] {
            for &(from, to) in stays.iter().filter(|(from, to)| from <= to) {
                edges.extend([(from, sign), (to + 1, -sign)]);
            }
        }
        edges.sort_unstable_by_key(|edge| edge.0);
        let (mut at, mut more) = (0, 0);
        for &(edge, change) in &*edges {
            if more != 0 && edge > at {
                self.add(at, edge - 1, more);
            }
            (at, more) = (edge, more + change);
        }
    }

    /// Whether a later run of `node` may stand before `position` as far as what is mutated for good goes.
    pub(super) fn in_time(&self, node: NodeId, position: usize) -> bool {
        let deadline = self.task.deadline[node.index()];
        deadline.is_none_or(|deadline| position <= self.runs.position(RunId::first(deadline)))
    }

    /// Inserts a run of `node` before `position`. The second says whether every read still finds its value;
    /// if not, take it back.
    pub(super) fn insert(&mut self, node: NodeId, position: usize) -> (RunId, bool) {
        let (steps, over) = (self.journal.len(), self.over);
        self.lift(node);
        // What is live across the gap.
        let next = self.runs.at(position);
        let mut live = self.mem[position] - self.scratch(next) - self.back(next);
        let next_node = self.runs.node(next);
        if next_node.index() < self.task.nodes() {
            for &value in self.task.writes.row(next_node.index()) {
                live -= self.task.size[value.index()];
            }
            if self.takers.binary_search(&next).is_err() {
                live += self.taken(next);
            }
        }
        let mut from = 0;
        for at in 0..self.values.len() {
            let (value, to) = (self.values[at], self.counts[at]);
            let born = self.defines(next, value) || self.comes_back(next, value);
            for stay in &mut self.before[from..to] {
                stay.0 += usize::from(stay.0 > position || (born && stay.0 == position));
                stay.1 += usize::from(stay.1 >= position);
            }
            from = to;
        }
        let run = self.list(node, position);
        self.done.push(Done { run, node, inserted: true, position, steps, over });
        self.mem.insert(position, live);
        self.journal.push(Step::Opened(position));
        self.over += live.max(0);
        let right = self.settle();
        let own = self.scratch(run) - if self.takers.contains(&run) { 0 } else { self.taken(run) };
        self.add(position, position, own);
        (run, right)
    }

    /// Removes a run that is not a first one; whether every read still finds its value. Returns to the same
    /// state if it is inserted at the same position.
    pub(super) fn remove(&mut self, run: RunId) -> bool {
        let (node, position) = (self.runs.node(run), self.runs.position(run));
        let (steps, over) = (self.journal.len(), self.over);
        self.done.push(Done { run, node, inserted: false, position, steps, over });
        let own = self.scratch(run) - self.taken(run);
        self.add(position, position, -own);
        self.lift(node);
        if let Ok(at) = self.takers.binary_search(&run) {
            // Its own takeover was taken out already.
            let taken = self.taken(run);
            self.add(position, position, -taken);
            self.takers.remove(at);
        }
        for stay in &mut self.before {
            // One of this position alone ends before it begins, which is to say that it's none.
            let alone = *stay == (position, position);
            stay.0 = if alone { 1 } else { stay.0 - usize::from(stay.0 > position) };
            stay.1 = if alone { 0 } else { stay.1 - usize::from(stay.1 >= position) };
        }
        let held = self.mem.remove(position);
        self.journal.push(Step::Closed(position, held));
        self.over -= held.max(0);
        self.unlist(run);
        self.settle()
    }

    /// Enters a run of `node`, whose operands are in `values`, before `position`, everywhere but in the profile.
    fn list(&mut self, node: NodeId, position: usize) -> RunId {
        let run = self.runs.insert(node, position);
        for at in 0..self.values.len() {
            let value = self.values[at];
            let index = self.event_at(value, position);
            self.events[value.index()].insert(index, run);
        }
        self.cost += self.task.later_cost[node.index()];
        run
    }

    /// The opposite.
    fn unlist(&mut self, run: RunId) {
        let position = self.runs.position(run);
        for at in 0..self.values.len() {
            let value = self.values[at];
            let index = self.event_at(value, position);
            self.events[value.index()].remove(index);
        }
        self.cost -= self.task.later_cost[self.runs.node(run).index()];
        self.runs.remove(run);
    }
}

mod absences;
#[cfg(test)]
mod tests;
