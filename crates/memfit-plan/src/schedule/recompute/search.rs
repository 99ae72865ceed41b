//! Local search over schedules: runs come and go, one small change after another.
//!
//! Simulated annealing (Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing", Science 220,
//! 1983) on run time plus a price for bytes above the limit; the price rises while the search is above and
//! falls while it is below (strategic oscillation, Glover 1989). Changes: a value is made again before one of
//! its uses, with as much of what that needs as chance says; a later run goes; both at once; a later run moves.
//! All work is counted in changes, none in seconds; changes that take more than a usual one count as several, so that
//! wide graphs with many operands, whose chains are long, take no more time. No guarantee but the start's quality.

use memfit_ir::ValueId;

use super::ids::{NodeId, RunId};
use super::random::Random;
use super::state::{Away, State};
use super::{RunList, Task};

/// Heat at the start and at the end: to build a schedule, to leave a good one's structure, to polish it.
pub(super) const HOT: (f64, f64) = (0.5, 0.002);
pub(super) const MILD: (f64, f64) = (0.3, 0.01);
pub(super) const WARM: (f64, f64) = (0.03, 0.0005);

/// How long and from where.
#[derive(Clone, Copy)]
pub(super) struct Effort<'a> {
    /// Changes to try, of the usual size at most.
    pub(super) changes: usize,
    /// Heat at the start and at the end, as shares of the mean cost of an op.
    pub(super) heat: (f64, f64),
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

pub(super) struct Search<'t, 'g> {
    pub(super) state: State<'t, 'g>,
    task: &'t Task<'g>,
    random: Random,
    /// Values that can be made again and take bytes.
    movable: Vec<ValueId>,
    base: f64,
    /// The most runs of a node, the first one included.
    most_copies: usize,
}

/// The most runs that one change inserts.
const CHAIN: usize = 64;

/// Work of a change of the usual size: the mean of 64 changes is below on all graphs of the corpus.
const USUAL: u64 = 384;

/// How many changes of the usual size take `work`.
fn changes_of(work: u64) -> usize {
    usize::try_from(work / USUAL).unwrap_or(usize::MAX)
}

impl<'t, 'g> Search<'t, 'g> {
    pub(super) fn new(task: &'t Task<'g>, start: &RunList, limit: i64, seed: u64) -> Option<Self> {
        Search::without(task, start, limit, seed, &[])
    }

    /// The same, where the values of `away` wait elsewhere meanwhile.
    pub(in super::super) fn without(
        task: &'t Task<'g>,
        start: &RunList,
        limit: i64,
        seed: u64,
        away: &[Away],
    ) -> Option<Self> {
        let state = State::new(task, start, limit, away)?;
        let movable =
            task.value_ids().filter(|&value| task.is_recomputable(value) && task.size[value.index()] > 0);
        let base = task.base_time().0.max(1) as f64;
        let movable = movable.collect();
        Some(Search { state, task, random: Random::new(seed), movable, base, most_copies: usize::MAX })
    }

    /// Allows at most `most` runs of a node, the first one included.
    pub(super) fn with_copies(mut self, most: usize) -> Self {
        self.most_copies = most;
        self
    }

    /// Whether no node that the last change added a run of has more than it may.
    fn counts(&self) -> bool {
        let mut inserted = self.state.done().iter().filter(|done| done.inserted);
        inserted.all(|done| self.state.runs.copies(done.node) <= self.most_copies)
    }

    /// Anneals. `found` gets each schedule within the limit that is faster than all before it and than `best`.
    pub(super) fn anneal(&mut self, effort: Effort<'_>, best: u64, mut found: impl FnMut(&State<'t, 'g>)) {
        if self.movable.is_empty() {
            return;
        }
        let mut best = best;
        let mean = self.base / self.task.nodes().max(1) as f64 / self.base;
        let (hot, cold) = (mean * effort.heat.0, mean * effort.heat.1);
        let unit = (self.peak_limit()).max(1.0);
        // What exceeds the limit by the largest value costs as much as twenty ops, to begin with.
        let mut price = 20.0 * mean / unit;
        let mut energy = self.energy(price);
        let mut within = 0usize;
        if self.state.over == 0 && self.state.cost < best {
            best = self.state.cost;
            found(&self.state);
        }
        // Changes counted beside those that were tried, for their size.
        let (mut change, mut beside, mut work) = (0, 0, self.state.work());
        while change + beside < effort.changes {
            if change % 64 == 0 {
                if (effort.stop)() {
                    break;
                }
                if change > 0 {
                    let done = changes_of(self.state.work() - work);
                    beside += done.saturating_sub(64);
                    work = self.state.work();
                    // A third of the time within the limit is enough.
                    price *= if within < 16 { 1.1 } else { 0.92 };
                    price = price.clamp(1e-3 / unit, 1e4 / unit);
                    energy = self.energy(price);
                    within = 0;
                }
            }
            let progress = ((change + beside) as f64 / effort.changes as f64).min(1.0);
            change += 1;
            let heat = hot * (cold / hot).powf(progress);
            self.state.begin();
            let right = self.change();
            let right = self.counts() && right;
            let after = self.energy(price);
            let keep = right && (after <= energy || self.random.unit() < ((energy - after) / heat).exp());
            if keep {
                energy = after;
            } else {
                self.state.take_back(0);
            }
            if self.state.over == 0 {
                within += 1;
                if keep && self.state.cost < best {
                    best = self.state.cost;
                    found(&self.state);
                }
            }
        }
    }

    fn peak_limit(&self) -> f64 {
        self.movable.iter().map(|&value| self.task.size[value.index()]).max().unwrap_or(1) as f64
    }

    fn energy(&self, price: f64) -> f64 {
        self.state.cost as f64 / self.base + self.state.over as f64 * price
    }

    /// One change; whether what comes out is a schedule.
    fn change(&mut self) -> bool {
        let extras = self.state.runs.extra().len();
        match self.random.below(if extras == 0 { 4 } else { 10 }) {
            0..4 => self.make_again(),
            4..7 => self.drop_one(),
            7..9 => self.drop_one() && self.make_again(),
            _ => self.shift(),
        }
    }

    fn insert(&mut self, node: NodeId, position: usize) -> Option<RunId> {
        if !self.state.in_time(node, position) {
            return None;
        }
        let (run, right) = self.state.insert(node, position);
        right.then_some(run)
    }

    /// Makes a random value again right before one of its uses.
    fn make_again(&mut self) -> bool {
        let wanted = if self.state.over > 0 { 8 } else { 3 };
        for _ in 0..wanted {
            let value = self.movable[self.random.below(self.movable.len())];
            let events = self.state.events(value);
            if events.len() < 2 {
                continue;
            }
            let index = 1 + self.random.below(events.len() - 1);
            let events = self.state.events(value);
            let (before, at) = (events[index - 1], events[index]);
            let (from, to) = (self.state.runs.position(before), self.state.runs.position(at));
            if self.state.defines(at, value) || to - from < 2 {
                continue;
            }
            if self.state.over > 0 {
                let probe = from + 1 + self.random.below(to - from - 1);
                if !self.state.is_over(probe) && self.random.below(4) > 0 {
                    continue;
                }
            }
            let eager = [0.0, 0.3, 0.7, 1.0][self.random.below(4)];
            return self.make_before(value, at, eager);
        }
        false
    }

    /// Makes `value` again right before `use_`; what that needs and is not live there is made again too with
    /// probability `eager`, else kept until there.
    fn make_before(&mut self, value: ValueId, use_: RunId, eager: f64) -> bool {
        let mut todo = vec![(value, use_)];
        let mut made = 0;
        while let Some((value, before)) = todo.pop() {
            made += 1;
            if made > CHAIN {
                return false;
            }
            let position = self.state.runs.position(before);
            let Some(node) = self.task.producer[value.index()] else { return false };
            if !self.state.in_time(node, position) {
                return false;
            }
            let (run, right) = self.state.insert(node, position);
            let reads = self.task.reads.row(node.index());
            for &read in reads {
                if !self.task.is_recomputable(read) || self.state.events(read).is_empty() {
                    continue;
                }
                let at = self.state.event_at(read, self.state.runs.position(run));
                let events = self.state.events(read);
                let last = events[..at].last().copied();
                // Read again later, or not, before it's made again: then it's live here anyway.
                let live = events.get(at + 1).is_some_and(|&next| !self.state.defines(next, read));
                let mutated = last.is_none_or(|last| {
                    let mutator = self.task.mutator[read.index()];
                    mutator == Some(self.state.runs.node(last))
                });
                let near = last
                    .is_some_and(|last| self.state.runs.position(last) + 1 >= self.state.runs.position(run));
                if mutated || (!live && !near && self.random.unit() < eager) {
                    todo.push((read, run));
                }
            }
            if !right && todo.is_empty() {
                return false;
            }
        }
        self.is_sound()
    }

    /// Whether what was inserted finds its inputs: only values that are mutated can fail.
    fn is_sound(&self) -> bool {
        self.state.done().iter().filter(|done| done.inserted).all(|done| {
            let node = done.node.index();
            let operands = self.task.reads.row(node).iter().chain(self.task.writes.row(node));
            operands.copied().all(|value| self.is_found(value))
        })
    }

    /// Whether every read of `value` finds it.
    fn is_found(&self, value: ValueId) -> bool {
        let Some(mutator) = self.task.mutator[value.index()] else { return true };
        let mut here = self.task.producer[value.index()].is_none();
        for &run in self.state.events(value) {
            if self.state.defines(run, value) {
                here = true;
            } else if !here {
                return false;
            } else if self.state.runs.node(run) == mutator {
                here = false;
            }
        }
        true
    }

    /// Removes a random later run, and the later runs that were there for it alone.
    fn drop_one(&mut self) -> bool {
        if self.state.runs.extra().is_empty() {
            return false;
        }
        let run = self.state.runs.extra()[self.random.below(self.state.runs.extra().len())];
        self.drop_run(run)
    }

    fn drop_run(&mut self, run: RunId) -> bool {
        let mut todo = vec![run];
        while let Some(run) = todo.pop() {
            if !self.state.runs.is_extra(run) {
                continue;
            }
            let (node, position) = (self.state.runs.node(run), self.state.runs.position(run));
            if !self.state.remove(run) {
                return false;
            }
            for &read in self.task.reads.row(node.index()) {
                let at = self.state.event_at(read, position);
                let producers = &self.state.events(read)[..at];
                let producer = producers.iter().rev().copied().find(|&run| self.state.defines(run, read));
                if let Some(producer) =
                    producer.filter(|&producer| self.state.runs.is_extra(producer) && self.is_idle(producer))
                {
                    todo.push(producer);
                }
            }
        }
        true
    }

    /// Whether nothing reads what `run` makes.
    fn is_idle(&self, run: RunId) -> bool {
        let position = self.state.runs.position(run);
        self.task.writes.row(self.state.runs.node(run).index()).iter().all(|&value| {
            let at = self.state.event_at(value, position) + 1;
            self.state.events(value).get(at).is_none_or(|&next| self.state.defines(next, value))
        })
    }

    /// Moves a random later run to another place between the events around it.
    fn shift(&mut self) -> bool {
        if self.state.runs.extra().is_empty() {
            return false;
        }
        let run = self.state.runs.extra()[self.random.below(self.state.runs.extra().len())];
        let (node, position) = (self.state.runs.node(run), self.state.runs.position(run));
        let (mut low, mut high) = (node.index() + 1, self.state.runs.len() - 1);
        for &value in self.task.writes.row(node.index()) {
            let at = self.state.event_at(value, position);
            let events = self.state.events(value);
            if events.get(at) != Some(&run) {
                continue;
            }
            if let Some(&before) = events[..at].last() {
                low = low.max(self.state.runs.position(before) + 1);
            }
            if let Some(&after) = events.get(at + 1) {
                high = high.min(self.state.runs.position(after) - 1);
            }
        }
        if high <= low {
            return false;
        }
        if !self.state.remove(run) {
            return false;
        }
        let target = low + self.random.below(high - low + 1);
        self.insert(node, target.min(self.state.runs.len() - 1)).is_some()
    }

    /// Removes later runs, dearest first, for as long as the limit holds and `stop` does not say that it is enough.
    pub(super) fn prune(&mut self, stop: &(dyn Fn() -> bool + Sync)) {
        let mut runs: Vec<RunId> = self.state.runs.extra().to_vec();
        runs.sort_by_key(|&run| (std::cmp::Reverse(self.task.cost[self.state.runs.node(run).index()]), run));
        let over = self.state.over;
        for run in runs {
            if !self.state.runs.is_extra(run) {
                continue;
            }
            if stop() {
                return;
            }
            self.state.begin();
            if !self.drop_run(run) || self.state.over > over {
                self.state.take_back(0);
            }
        }
    }

    /// Replaces one later run, or two, by cheaper ones for as long as that is found within the limit: every
    /// later run out, dearest first, and every value in before every one of its uses. Looks at up to `most`
    /// changes, of the usual size at most; asks `stop` after each 64.
    pub(super) fn polish(&mut self, most: usize, stop: &(dyn Fn() -> bool + Sync)) {
        let (mut tried, start) = (0, self.state.work());
        'again: loop {
            let mut runs: Vec<RunId> = self.state.runs.extra().to_vec();
            runs.sort_by_key(|&run| {
                (std::cmp::Reverse(self.task.cost[self.state.runs.node(run).index()]), run)
            });
            for run in runs {
                if stop() {
                    return;
                }
                let before = self.state.cost;
                self.state.begin();
                if !self.state.runs.is_extra(run) || !self.drop_run(run) {
                    self.state.take_back(0);
                    continue;
                }
                if self.state.over == 0 {
                    continue 'again;
                }
                let kept = self.state.done().len();
                let spare = before - self.state.cost;
                for at in 0..self.movable.len() {
                    let value = self.movable[at];
                    let producer = self.task.producer[value.index()];
                    if producer.is_none_or(|node| self.task.later_cost[node.index()] >= spare) {
                        continue;
                    }
                    for index in 1..self.state.events(value).len() {
                        let events = self.state.events(value);
                        let (last, next) = (events[index - 1], events[index]);
                        let near = self.state.runs.position(next) - self.state.runs.position(last) < 2;
                        if near || self.state.defines(next, value) {
                            continue;
                        }
                        for eager in [0.0, 1.0] {
                            let counted = changes_of(self.state.work() - start).max(tried);
                            if counted >= most || (tried % 64 == 63 && stop()) {
                                self.state.take_back(0);
                                return;
                            }
                            tried += 1;
                            let right = self.make_before(value, next, eager);
                            if right && self.state.over == 0 && self.state.cost < before {
                                continue 'again;
                            }
                            self.state.take_back(kept);
                        }
                    }
                }
                self.state.take_back(0);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use memfit_ir::{Graph, InPlace, OpId};
    use memfit_testkit::{Layered, device, layered};

    use super::*;
    use crate::Context;
    use crate::schedule::recompute::{Best, Recompute};

    fn wide() -> Graph {
        layered(Layered { ops: 1000, edges: 5875, layers: 60, skips: 14, unit: 16, sparse: 0 }, 1)
    }

    /// Runs `with` on the task of `graph`, and on nine tenths of its peak, the constant not counted.
    fn on<T>(
        graph: &Graph,
        stop: &(dyn Fn() -> bool + Sync),
        with: impl Fn(&Task<'_>, Context<'_>, i64) -> T,
    ) -> T {
        let device = device();
        let context = Context { stop, ..Context::new(&device) };
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(graph, &order, InPlace::May, false, &context);
        let limit = crate::problem::signed(task.reference()) / 10 * 9 - task.constant;
        with(&task, context, limit)
    }

    /// Changes of a wide graph insert long chains: that counts.
    #[test]
    fn effort_is_counted_in_work() {
        on(&wide(), &|| false, |task, context, limit| {
            let mut search = Search::new(task, &RunList::plain(task), limit, 1).unwrap();
            let effort = Effort { changes: 6400, heat: HOT, stop: context.stop };
            search.anneal(effort, u64::MAX, |_| {});
            let work = search.state.work();
            assert!(work > 6400 * USUAL / 2, "{work}: too little to say anything");
            assert!(work < 6400 * USUAL / 4 * 5, "{work}");
            let schedule = search.state.runs.schedule();
            let mut search = Search::new(task, &schedule, limit, 1).unwrap();
            search.polish(640, context.stop);
            assert!(search.state.work() < 640 * USUAL / 4 * 5, "{}", search.state.work());
        });
    }

    #[test]
    fn nothing_is_done_once_it_is_over() {
        on(&wide(), &|| true, |task, context, limit| {
            let mut search = Search::new(task, &RunList::plain(task), limit, 1).unwrap();
            search.anneal(Effort { changes: 10_000, heat: HOT, stop: context.stop }, u64::MAX, |_| {});
            search.prune(context.stop);
            search.polish(10_000, context.stop);
            assert_eq!(search.state.work(), 0);
        });
    }

    /// Whoever is told that the time is over asks a few more times on the way out, and takes what it has.
    #[test]
    fn a_plan_ends_soon_after_it_is_told_to() {
        for most in [0, 100, 3000] {
            let asked = AtomicUsize::new(0);
            let stop = || asked.fetch_add(1, Ordering::Relaxed) >= most;
            on(&wide(), &stop, |task, context, limit| {
                let budget = crate::problem::bytes(limit + task.constant);
                if let Ok(front) = Best.plan(task, budget, &context) {
                    assert!(front.points.iter().all(|point| point.cost.peak <= budget));
                }
            });
            let asked = asked.into_inner();
            assert!(asked <= most + 64, "{asked}, {most} allowed");
        }
    }
}
