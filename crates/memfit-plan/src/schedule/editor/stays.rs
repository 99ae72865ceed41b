//! When values are in device memory, and what that does to the profile.

use memfit_ir::{Reuse, ValueId};

use super::Editor;
use crate::schedule::ids::{NodeId, RunId};

impl Editor<'_, '_> {
    /// The place of `value` among the operands of `node`, if it is one.
    pub(super) fn operand_at(&self, node: NodeId, value: ValueId) -> Option<usize> {
        self.operands.row(node.index()).iter().position(|&operand| operand == value)
    }

    pub(super) fn scratch(&self, run: RunId) -> i64 {
        let node = self.runs.node(run);
        if node.index() == self.task.nodes() {
            0
        } else {
            let own = self.task.workspace_of(node, !self.runs.is_extra(run));
            own + self.algorithms.more(self.task, node.index()).0
        }
    }

    /// Bytes that the outputs of `run` take over.
    pub(super) fn taken(&self, run: RunId) -> i64 {
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

    /// Whether `value` comes back from elsewhere for `run`, if that is an event of it.
    pub(super) fn comes_back(&self, run: RunId, value: ValueId) -> bool {
        if self.absences.is_empty() || self.defines(run, value) {
            return false;
        }
        let at = self.event_at(value, self.runs.position(run));
        let events = self.events(value);
        let before = at.checked_sub(1).map(|before| events[before]);
        let leaves = |before| self.absences.beginning(value, before).is_some();
        events.get(at) == Some(&run) && before.is_some_and(leaves)
    }

    /// Bytes that come back from elsewhere for `run`.
    fn back(&self, run: RunId) -> i64 {
        if self.absences.is_empty() {
            return 0;
        }
        let operands = self.operands.row(self.runs.node(run).index()).iter().copied();
        let back = self.absences.touched(run).chain(operands).filter(|&value| self.comes_back(run, value));
        back.map(|value| self.task.size[value.index()]).sum()
    }

    /// What is live across the gap before `position`, once the operands of a run that comes there have been lifted.
    pub(super) fn live_before(&self, position: usize) -> i64 {
        let next = self.runs.at(position);
        let mut live =
            self.profile.mem()[position] - self.scratch(next) - self.back(next) - self.packed_by(next);
        let node = self.runs.node(next);
        if node.index() < self.task.nodes() {
            for &value in self.task.writes.row(node.index()) {
                live -= self.task.size[value.index()];
            }
            live += self.taken(next);
        }
        live
    }

    /// Appends the stays of `value` to `stays`, in order: each from one position to another, both included. Whether
    /// every read finds it.
    pub(super) fn stays(&self, value: ValueId, stays: &mut Vec<(usize, usize)>) -> bool {
        let at = value.index();
        let mutator = self.task.mutator[at];
        let mut stay = self.task.producer[at].is_none().then_some((0, 0));
        let (mut right, mut away) = (true, false);
        for &run in &self.events[at] {
            let now = self.runs.position(run);
            let back = std::mem::replace(&mut away, self.absences.beginning(value, run).is_some());
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

    /// Calls `each` with the positions between which, both included, `value` waits encoded in device memory, and with the bytes
    /// that takes: from the run after which it is encoded to the one before which it is decoded.
    fn each_packed(&self, value: ValueId, mut each: impl FnMut(usize, usize, i64)) {
        for &place in self.absences.of(value) {
            let Some(away) = self.absences.get(place) else { continue };
            let (bytes, [gone, _]) = (self.packed(away), away.ends());
            let from = self.runs.position(gone);
            let next = self.events(value).get(self.event_at(value, from) + 1);
            if let Some(&next) = next.filter(|&&next| bytes > 0 && !self.defines(next, value)) {
                each(from, self.runs.position(next), bytes);
            }
        }
    }

    /// Adds what `values` take while they wait encoded, or takes it off.
    fn add_packed(&mut self, sign: i64) {
        if self.absences.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for &value in &self.values {
            self.each_packed(value, |from, to, bytes| found.push((from, to, sign * bytes)));
        }
        for (from, to, bytes) in found {
            self.profile.add(from, to, bytes);
        }
    }

    /// Bytes of what is encoded after `run`, but for `values`.
    fn packed_by(&self, run: RunId) -> i64 {
        if self.absences.is_empty() || self.runs.is_extra(run) {
            return 0;
        }
        let at = self.runs.position(run);
        let operands = self.operands.row(self.runs.node(run).index()).iter().copied();
        let mut sum = 0;
        for value in self.absences.touched(run).chain(operands).filter(|value| !self.values.contains(value)) {
            self.each_packed(value, |from, _, bytes| sum += if from == at { bytes } else { 0 });
        }
        sum
    }

    /// Notes the operands of `node` in `values`.
    pub(super) fn note(&mut self, node: NodeId) {
        self.values.clear();
        self.values.extend_from_slice(self.operands.row(node.index()));
    }

    /// Notes the operands of `node`, of which a run came or went last, in `values`, and in `places` where that was among their events.
    pub(super) fn note_again(&mut self, node: NodeId) {
        self.note(node);
        self.places.clear();
        let from = self.places_done.len() - self.values.len();
        self.places.extend(self.places_done.drain(from..));
    }

    /// Before a run of `node` comes to `position` or goes from there: its operands are noted in `values`, where it is among their
    /// events in `places`, and the runs whose takeovers may change in `takers`: those of the events right before, after which
    /// something else comes now. What those take over is put back. The stays of operands that change elsewhere too are noted in
    /// `before`.
    pub(super) fn lift(&mut self, node: NodeId, position: usize) {
        self.note(node);
        self.places.clear();
        self.takers.clear();
        self.work += 1;
        for at in 0..self.values.len() {
            let value = self.values[at];
            let place = self.event_at(value, position);
            self.places.push(place);
            let events = &self.events[value.index()];
            self.work += events.len() as u64;
            if place > 0 && self.may_take(events[place - 1], value) {
                self.takers.push(events[place - 1]);
            }
        }
        self.places_done.extend_from_slice(&self.places);
        self.lift_takers();
        self.note_stays();
    }

    /// Before `value` is sent away or kept: the same, with the takeovers of all its events.
    pub(super) fn lift_value(&mut self, value: ValueId) {
        self.values.clear();
        self.values.push(value);
        self.places.clear();
        self.takers.clear();
        self.work += 1 + self.events[value.index()].len() as u64;
        for index in 0..self.events[value.index()].len() {
            let run = self.events[value.index()][index];
            if self.may_take(run, value) {
                self.takers.push(run);
            }
        }
        self.lift_takers();
        self.note_stays();
    }

    /// Whether an output of `run` may take over the bytes of `value`.
    fn may_take(&self, run: RunId, value: ValueId) -> bool {
        let node = self.runs.node(run).index();
        let may = |pair: &Reuse| !pair.must && pair.input == value;
        node < self.task.nodes() && self.task.reuses.row(node).iter().any(may)
    }

    fn lift_takers(&mut self) {
        if self.takers.len() > 1 {
            self.takers.sort_unstable();
            self.takers.dedup();
        }
        self.add_taken(1);
        self.add_packed(-1);
    }

    /// Notes the stays of those of `values` that are not [joined](Editor::is_joined), in `before`.
    fn note_stays(&mut self) {
        self.before.clear();
        self.counts.clear();
        for at in 0..self.values.len() {
            if !self.is_joined(at) {
                let mut before = std::mem::take(&mut self.before);
                self.stays(self.values[at], &mut before);
                self.before = before;
            }
            self.counts.push(self.before.len());
        }
    }

    /// Whether the stays of the `at`th of `values` change only between the events before and after the place noted for it: it is
    /// never away and not mutated, so it is there after each event of it. Later runs come after the first ones of what they read.
    fn is_joined(&self, at: usize) -> bool {
        let value = self.values[at];
        let is_placed = at < self.places.len();
        is_placed && self.task.mutator[value.index()].is_none() && self.absences.of(value).is_empty()
    }

    /// After a run of `node` came to `position`, or (`gone`) went from there: brings the profile to what the joined ones of
    /// `values` take now. A value stays between two events if the second reads it.
    pub(super) fn join(&mut self, node: NodeId, position: usize, gone: bool) {
        for at in 0..self.values.len() {
            if !self.is_joined(at) {
                continue;
            }
            let (value, place) = (self.values[at], self.places[at]);
            let bytes = self.task.size[value.index()];
            let events = self.events(value);
            let next = events.get(if gone { place } else { place + 1 });
            let is_read = next.is_some_and(|&next| !self.defines(next, value));
            let defines = Some(node) == self.task.producer[value.index()];
            let from = place.checked_sub(1).map_or(0, |last| self.runs.position(events[last]) + 1);
            // What was held across stays so for a run that reads it; nothing was, and a run that defines it begins a stay.
            match (defines, is_read, gone) {
                (false, true, _) | (true, false, true) => {}
                (true, false, false) => self.profile.add(position, position, bytes),
                (false, false, false) => self.profile.add(from, position, bytes),
                (false, false, true) => self.add_before(from, position, -bytes),
                (true, true, false) => self.add_before(from, position, -bytes),
                (true, true, true) => self.add_before(from, position, bytes),
            }
        }
    }

    /// Adds to the positions from `from` on, up to but not including `position`.
    fn add_before(&mut self, from: usize, position: usize, bytes: i64) {
        if from < position {
            self.profile.add(from, position - 1, bytes);
        }
    }

    /// Puts back what `takers` take over, or takes it off.
    fn add_taken(&mut self, sign: i64) {
        for at in 0..self.takers.len() {
            let (run, taken) = (self.takers[at], self.taken(self.takers[at]));
            let position = self.runs.position(run);
            self.profile.add(position, position, sign * taken);
        }
    }

    /// After the change: brings the profile from the stays in `before`, whose positions are those of now, to the
    /// present ones. Whether every read finds its value; those of joined ones do.
    pub(super) fn settle(&mut self) -> bool {
        let mut right = true;
        let before = std::mem::take(&mut self.before);
        let (mut after, mut edges) = (std::mem::take(&mut self.after), std::mem::take(&mut self.edges));
        let mut from = 0;
        for at in 0..self.values.len() {
            let (value, to) = (self.values[at], self.counts[at]);
            if self.is_joined(at) {
                continue;
            }
            after.clear();
            right &= self.stays(value, &mut after);
            self.shift(&before[from..to], &after, self.task.size[value.index()], &mut edges);
            from = to;
        }
        (self.before, self.after, self.edges) = (before, after, edges);
        self.add_taken(-1);
        self.add_packed(1);
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
                self.profile.add(at, edge - 1, more);
            }
            (at, more) = (edge, more + change);
        }
    }
}
