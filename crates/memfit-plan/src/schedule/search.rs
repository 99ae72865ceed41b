//! Local search over schedules: runs come and go, values leave and return, one small change after another.
//!
//! Simulated annealing (Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing", Science 220,
//! 1983) on run time plus a price for bytes above the limit; the price rises while the search is above and
//! falls while it is below (strategic oscillation, Glover 1989). What a change is, the table of moves says ([`MOVES`]). All work is counted in changes, none in seconds; changes that take more than a usual one count as several, so that
//! wide graphs with many operands, whose chains are long, take no more time. No guarantee but the start's quality.

use memfit_ir::Device;

use super::editor::{Away, Editor};
use super::ids::RunId;
use super::moves::{Choices, MOVES, Move};
use super::random::Random;
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
    pub(super) editor: Editor<'t, 'g>,
    task: &'t Task<'g>,
    random: Random,
    choices: Choices,
    base: f64,
    /// The most runs of a node, the first one included.
    most_copies: usize,
}

/// What a schedule takes: ns, and bytes above the limits, over all positions.
#[derive(Clone, Copy)]
struct Reading {
    time: u64,
    over: f64,
}

/// Work of a change of the usual size: the mean of 64 changes is below on all graphs of the corpus.
const USUAL: u64 = 384;

/// Changes of a search of default effort: one costs about as much as there are positions between two uses, and small tasks need
/// few.
pub(super) fn usual_changes(task: &Task<'_>) -> usize {
    let nodes = task.nodes();
    (30_000 * nodes.clamp(200, 800) / (nodes + 50)).min((16 * nodes * nodes).max(2000))
}

/// How many changes of the usual size take `work`.
fn changes_of(work: u64) -> usize {
    usize::try_from(work / USUAL).unwrap_or(usize::MAX)
}

impl<'t, 'g> Search<'t, 'g> {
    /// A search in which nothing is away.
    pub(super) fn new(task: &'t Task<'g>, start: &RunList, limit: i64, seed: u64) -> Option<Self> {
        Some(Search::of(task, Editor::new(task, start, limit)?, Choices::runs(task), seed))
    }

    /// The same where the values of `away` wait elsewhere meanwhile, whatever that takes.
    pub(super) fn around(
        task: &'t Task<'g>,
        start: &RunList,
        limit: i64,
        seed: u64,
        away: &[Away],
    ) -> Option<Self> {
        let editor = Editor::with_away(task, start, limit, (away, None))?;
        Some(Search::of(task, editor, Choices::runs(task), seed))
    }

    /// A search from where the values of `away` wait elsewhere, over the links of `device`, in which others may as well.
    pub(super) fn with_away(
        task: &'t Task<'g>,
        start: &RunList,
        limit: i64,
        (away, device): (&[Away], &Device),
        (choices, seed): (Choices, u64),
    ) -> Option<Self> {
        let editor = Editor::with_away(task, start, limit, (away, Some(device)))?;
        Some(Search::of(task, editor, choices, seed))
    }

    fn of(task: &'t Task<'g>, editor: Editor<'t, 'g>, choices: Choices, seed: u64) -> Self {
        let base = task.base_time().0.max(1) as f64;
        Search { editor, task, random: Random::new(seed), choices, base, most_copies: usize::MAX }
    }

    /// Allows at most `most` runs of a node, the first one included.
    pub(super) fn with_copies(mut self, most: usize) -> Self {
        self.most_copies = most;
        self
    }

    /// Whether no node that the last change added a run of has more than it may.
    fn counts(&self) -> bool {
        self.editor.inserted().all(|node| self.editor.runs.copies(node) <= self.most_copies)
    }

    /// Anneals. `found` gets each schedule within the limits that is faster than all before it and than `best`.
    pub(super) fn anneal(&mut self, effort: Effort<'_>, best: u64, mut found: impl FnMut(&Editor<'t, 'g>)) {
        if self.choices.is_empty() {
            return;
        }
        let mut best = best;
        let mean = self.base / self.task.nodes().max(1) as f64 / self.base;
        let (hot, cold) = (mean * effort.heat.0, mean * effort.heat.1);
        let unit = (self.choices.largest(self.task) as f64).max(1.0);
        // What exceeds the limit by the largest value costs as much as twenty ops, to begin with.
        let mut price = 20.0 * mean / unit;
        let mut now = self.reading();
        let mut energy = self.energy(now, price);
        let mut within = 0usize;
        if now.over == 0.0 && now.time < best {
            best = now.time;
            found(&self.editor);
        }
        // Changes counted beside those that were tried, for their size.
        let (mut change, mut beside, mut work) = (0, 0, self.editor.work());
        while change + beside < effort.changes {
            if change % 64 == 0 {
                if (effort.stop)() {
                    break;
                }
                if change > 0 {
                    let done = changes_of(self.editor.work() - work);
                    beside += done.saturating_sub(64);
                    work = self.editor.work();
                    // A third of the time within the limit is enough.
                    price *= if within < 16 { 1.1 } else { 0.92 };
                    price = price.clamp(1e-3 / unit, 1e4 / unit);
                    energy = self.energy(now, price);
                    within = 0;
                }
            }
            let progress = ((change + beside) as f64 / effort.changes as f64).min(1.0);
            change += 1;
            let heat = hot * (cold / hot).powf(progress);
            self.editor.keep();
            let mut keep = false;
            if self.change() && self.counts() {
                let reading = self.reading();
                let after = self.energy(reading, price);
                keep = after <= energy || self.random.unit() < ((energy - after) / heat).exp();
                if keep {
                    (now, energy) = (reading, after);
                }
            }
            if !keep {
                self.editor.take_back(0);
            }
            if now.over == 0.0 {
                within += 1;
                if keep && now.time < best {
                    best = now.time;
                    found(&self.editor);
                }
            }
        }
    }

    /// One change; whether what comes out is a schedule.
    fn change(&mut self) -> bool {
        let Search { editor, choices, random, .. } = self;
        let applies = |&&(_, way): &&(usize, &dyn Move)| way.applies(editor, choices);
        let total: usize = MOVES.iter().filter(applies).map(|(often, _)| often).sum();
        let mut drawn = random.below(total);
        let way = MOVES.iter().filter(applies).find(|(often, _)| {
            let is_it = drawn < *often;
            drawn = drawn.saturating_sub(*often);
            is_it
        });
        way.is_some_and(|(_, way)| way.propose(editor, choices, random))
    }

    /// Ns that the schedule takes by the clock of the editor.
    pub(super) fn told(&mut self) -> u64 {
        self.editor.told().time
    }

    fn reading(&mut self) -> Reading {
        let told = self.editor.told();
        Reading { time: told.time, over: self.editor.over() as f64 + told.over as f64 }
    }

    fn energy(&self, reading: Reading, price: f64) -> f64 {
        reading.time as f64 / self.base + reading.over * price
    }

    /// Removes later runs, dearest first, for as long as the limit holds and `stop` does not say that it is enough.
    pub(super) fn prune(&mut self, stop: &(dyn Fn() -> bool + Sync)) {
        let mut runs: Vec<RunId> = self.editor.runs.extra().to_vec();
        runs.sort_by_key(|&run| (std::cmp::Reverse(self.task.cost[self.editor.runs.node(run).index()]), run));
        let over = self.editor.over();
        for run in runs {
            if !self.editor.runs.is_extra(run) {
                continue;
            }
            if stop() {
                return;
            }
            self.editor.keep();
            if !self.editor.drop_run(run) || self.editor.over() > over {
                self.editor.take_back(0);
            }
        }
    }

    /// Keeps values that are away, the largest first, for as long as the limit holds and that takes no more time.
    pub(super) fn prune_away(&mut self, stop: &(dyn Fn() -> bool + Sync)) {
        let mut places = self.editor.places();
        let size = |place: usize| self.editor.away(place).map(|away| self.task.size[away.value.index()]);
        places.sort_by_key(|&place| (std::cmp::Reverse(size(place)), place));
        let mut now = self.reading();
        for place in places {
            if stop() {
                return;
            }
            self.editor.keep();
            let right = self.editor.recall(place);
            let reading = self.reading();
            if right && reading.over <= now.over && reading.time <= now.time {
                now = reading;
            } else {
                self.editor.take_back(0);
            }
        }
    }

    /// Replaces one later run, or two, by cheaper ones for as long as that is found within the limit: every
    /// later run out, dearest first, and every value in before every one of its uses. Looks at up to `most`
    /// changes, of the usual size at most; asks `stop` after each 64.
    pub(super) fn polish(&mut self, most: usize, stop: &(dyn Fn() -> bool + Sync)) {
        let (mut tried, start) = (0, self.editor.work());
        'again: loop {
            let mut runs: Vec<RunId> = self.editor.runs.extra().to_vec();
            runs.sort_by_key(|&run| {
                (std::cmp::Reverse(self.task.cost[self.editor.runs.node(run).index()]), run)
            });
            for run in runs {
                if stop() {
                    return;
                }
                let before = self.editor.cost();
                self.editor.keep();
                if !self.editor.runs.is_extra(run) || !self.editor.drop_run(run) {
                    self.editor.take_back(0);
                    continue;
                }
                if self.editor.over() == 0 {
                    continue 'again;
                }
                let kept = self.editor.edits();
                let spare = before - self.editor.cost();
                for at in 0..self.choices.made().len() {
                    let value = self.choices.made()[at];
                    let producer = self.task.producer[value.index()];
                    if producer.is_none_or(|node| self.task.later_cost[node.index()] >= spare) {
                        continue;
                    }
                    for index in 1..self.editor.events(value).len() {
                        let events = self.editor.events(value);
                        let (last, next) = (events[index - 1], events[index]);
                        let near = self.editor.runs.position(next) - self.editor.runs.position(last) < 2;
                        if near || self.editor.defines(next, value) {
                            continue;
                        }
                        for eager in [0.0, 1.0] {
                            let counted = changes_of(self.editor.work() - start).max(tried);
                            if counted >= most || (tried % 64 == 63 && stop()) {
                                self.editor.take_back(0);
                                return;
                            }
                            tried += 1;
                            let right = self.editor.make_before(value, next, (eager, &mut self.random));
                            if right && self.editor.over() == 0 && self.editor.cost() < before {
                                continue 'again;
                            }
                            self.editor.take_back(kept);
                        }
                    }
                }
                self.editor.take_back(0);
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
    use crate::schedule::Scheduler;
    use crate::schedule::recompute::Best;

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
            let work = search.editor.work();
            assert!(work > 6400 * USUAL / 2, "{work}: too little to say anything");
            assert!(work < 6400 * USUAL / 4 * 5, "{work}");
            let schedule = search.editor.runs.schedule();
            let mut search = Search::new(task, &schedule, limit, 1).unwrap();
            search.polish(640, context.stop);
            assert!(search.editor.work() < 640 * USUAL / 4 * 5, "{}", search.editor.work());
        });
    }

    #[test]
    fn nothing_is_done_once_it_is_over() {
        on(&wide(), &|| true, |task, context, limit| {
            let mut search = Search::new(task, &RunList::plain(task), limit, 1).unwrap();
            search.anneal(Effort { changes: 10_000, heat: HOT, stop: context.stop }, u64::MAX, |_| {});
            search.prune(context.stop);
            search.polish(10_000, context.stop);
            assert_eq!(search.editor.work(), 0);
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
