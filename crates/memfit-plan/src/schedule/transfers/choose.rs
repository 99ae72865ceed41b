//! Chooses gaps of a run list until the live bytes fit, by one of several scores, and makes a program of them.
//!
//! The scores are those of the field: pressure on memory over time on the link (Zhang et al., "G10", MICRO 2023), and area
//! of absence, duration of absence and size (Zhang et al., "Efficient Memory Management for GPU-based Deep Learning
//! Systems", arXiv:1903.06631). Each choice is lowered to a program, with waits, and timed by the clock: what a score
//! thinks of time is an opinion, the clock's word counts. Time O(gaps × (gaps + runs)) for a choice.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use memfit_ir::{Bytes, Device, Nanos, ValueId};

use super::gaps::{Gap, Gaps, Pressure, Waits, link};
use super::random::Random;
use super::score::{SCORES, Score};
use super::tiers::spread;
use super::timed::timed;
use super::windows::{Leave, Window, live_without, narrow, windows};
use super::{Algorithms, Away, Front, Infeasible, Moved, NodeId, RunList, Task, signed};
use crate::Context;

/// Changes that are tried, each with a run of the clock, with default effort and a step of few ops.
const CHANGES: usize = 200;

/// Steps of programs that all those runs may take together.
const WORK: usize = 2_000_000;

/// Times that gaps are chosen for less than the budget, at most.
const TIGHTENED: usize = 5;

/// Gaps chosen at a time: one in so many.
const BATCH: usize = 400;

/// Steps that are known again, at most.
const KNOWN: usize = 256;

/// Gaps of a step that is asked for again and again, at most.
const FEW: usize = 64;

/// What [`timed`] says of a step.
type Timed = Option<Result<Moved, Bytes>>;

/// Chooses among the gaps of a run list of a task.
pub(in crate::schedule) struct Chooser<'a> {
    task: &'a Task<'a>,
    runs: &'a RunList,
    step: Gaps,
    context: &'a Context<'a>,
    /// The context's device, with what storages that are at home in other tiers leave of those.
    spare: Device,
    budget: Bytes,
    /// Bytes by which live bytes stay below the budget while gaps are chosen.
    margin: i64,
    /// Time of all runs, nothing waited for.
    base: Nanos,
    algorithms: Algorithms,
    /// The least live bytes that a choice came to which was too large.
    lowest: Option<Bytes>,
    /// What was timed before: steps of few gaps come again and again.
    known: Vec<(Vec<Leave>, Timed)>,
}

impl<'a> Chooser<'a> {
    /// `None` if `runs` is no schedule of `task`. Values wait as `waits` says.
    pub(in crate::schedule) fn new(
        task: &'a Task<'a>,
        runs: &'a RunList,
        waits: Waits,
        budget: Bytes,
        context: &'a Context<'a>,
    ) -> Option<Self> {
        let step = Gaps::of(task, runs, waits, context.device)?;
        let base = Nanos(step.begins.last().copied().unwrap_or(0));
        let (spare, algorithms) = (task.spare(context.device), Algorithms::default());
        let (lowest, known) = (None, Vec::new());
        Some(Chooser { task, runs, step, context, spare, budget, margin: 0, base, algorithms, lowest, known })
    }

    /// As [`Chooser::new`], over the link of the context's device.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if there is no link, or `runs` is no schedule of `task`.
    pub(in crate::schedule) fn of(
        task: &'a Task<'a>,
        runs: &'a RunList,
        budget: Bytes,
        context: &'a Context<'a>,
    ) -> Result<Self, Infeasible> {
        let link = link(context.device)
            .ok_or_else(|| Infeasible::because(task, budget, "the device has no link to host memory"))?;
        Chooser::waiting(task, runs, Waits::Behind(link), budget, context)
    }

    /// As [`Chooser::new`].
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if `runs` is no schedule of `task`, or values are to be encoded and the graph says of none that this makes
    /// it smaller.
    pub(in crate::schedule) fn waiting(
        task: &'a Task<'a>,
        runs: &'a RunList,
        waits: Waits,
        budget: Bytes,
        context: &'a Context<'a>,
    ) -> Result<Self, Infeasible> {
        let chooser = Chooser::new(task, runs, waits, budget, context);
        let chooser = chooser
            .ok_or_else(|| Infeasible::because(task, budget, "the graph is no step that can run as it is"))?;
        let is_encoded = |gap: &Gap| gap.form.codec().is_some();
        let encodes = !matches!(waits, Waits::Behind(_));
        if encodes && !chooser.step.gaps.iter().any(is_encoded) {
            return Err(Infeasible::because(task, budget, "the graph says of no value that it is sparse"));
        }
        Ok(chooser)
    }

    /// Has gaps chosen for less than the budget, by what the last choice was too large: between two runs a value and its
    /// encoded form are there together. False if that would be in vain.
    fn tighten(&mut self) -> bool {
        let over = self.lowest.map_or(0, |lowest| signed(lowest) - signed(self.budget));
        let more = self.margin + over;
        if over <= 0 || more > signed(self.budget) / 2 || (self.context.stop)() {
            return false;
        }
        (self.margin, self.lowest) = (more, None);
        true
    }

    /// What `find` finds, which is asked again with less where its choices turn out to be too large.
    pub(in crate::schedule) fn settled<T>(&mut self, find: impl Fn(&mut Self) -> Option<T>) -> Option<T> {
        for _ in 0..TIGHTENED {
            let found = find(self);
            if found.is_some() || !self.tighten() {
                return found;
            }
        }
        None
    }

    /// The front of `moved` alone, or that nothing was found that fits.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if nothing was.
    pub(in crate::schedule) fn found(&self, moved: Option<Moved>) -> Result<Front, Infeasible> {
        let moved = moved.ok_or_else(|| Infeasible::new(self.task, self.budget, self.lowest))?;
        Ok(moved.front(self.task, self.runs))
    }

    /// The least live bytes that a choice came to which was too large.
    pub(in crate::schedule) fn lowest(&self) -> Option<Bytes> {
        self.lowest
    }

    /// The fastest that fits by any score, and what was chosen for it.
    pub(in crate::schedule) fn best(&mut self) -> Option<(Vec<usize>, Moved)> {
        let mut best: Option<(Vec<usize>, Moved)> = None;
        for score in SCORES {
            let Some(chosen) = self.choose(score) else { continue };
            let Some(moved) = self.run(&chosen) else { continue };
            if best.as_ref().is_none_or(|(_, best)| moved.time < best.time) {
                best = Some((chosen, moved));
            }
        }
        best
    }

    /// The fastest that fits by any score and by any weighting of scores, changed as long as that makes it faster.
    pub(in crate::schedule) fn fastest(&mut self) -> Option<(Vec<usize>, Moved)> {
        let best = self.best();
        if best.as_ref().is_some_and(|(_, best)| best.time <= self.base) {
            return best;
        }
        let climbed = best.map(|(chosen, moved)| self.climb(chosen, moved));
        let weighed = self.weighed(self.context.seed);
        [climbed, weighed].into_iter().flatten().min_by_key(|(_, moved)| moved.time)
    }

    /// Has ops run by `algorithms` from now on.
    pub(in crate::schedule) fn set_algorithms(&mut self, algorithms: Algorithms) {
        let mut later = 0i64;
        for (run, (node, _)) in self.runs.each(self.task).enumerate() {
            let was = self.algorithms.more(self.task, node.index());
            let is = algorithms.more(self.task, node.index());
            self.step.live[run] += is.0 - was.0;
            later += is.1 - was.1;
            self.step.begins[run + 1] = self.step.begins[run + 1].saturating_add_signed(later);
        }
        self.base = Nanos(self.step.begins.last().copied().unwrap_or(0));
        self.algorithms = algorithms;
        self.known.clear();
    }

    /// By which algorithms ops run.
    pub(in crate::schedule) fn algorithms(&self) -> &Algorithms {
        &self.algorithms
    }

    /// The most that may be live.
    pub(in crate::schedule) fn limit(&self) -> i64 {
        signed(self.budget) - self.margin
    }

    /// Ns of all runs, if nothing is waited for.
    pub(super) fn base(&self) -> Nanos {
        self.base
    }

    /// Whether the search is to stop.
    pub(super) fn is_over(&self) -> bool {
        (self.context.stop)()
    }

    /// The step in which gaps are chosen.
    pub(in crate::schedule) fn step(&self) -> &Gaps {
        &self.step
    }

    /// Takes gaps one by one until all live bytes fit: of those in which the value is away during the run that holds most, the
    /// one for which `rate(its index, it, what is above the limit by then)` is highest. `None` if those run out to which `rate` gives a
    /// number, or host memory does.
    pub(in crate::schedule) fn greedy(
        &self,
        rate: impl Fn(usize, &Gap, &Pressure) -> Option<f64>,
    ) -> Option<Vec<usize>> {
        self.completed(Vec::new(), rate)
    }

    /// As [`Chooser::greedy`], with some chosen already.
    pub(in crate::schedule) fn completed(
        &self,
        mut chosen: Vec<usize>,
        rate: impl Fn(usize, &Gap, &Pressure) -> Option<f64>,
    ) -> Option<Vec<usize>> {
        let mut live = live_without(&self.step, &chosen);
        let mut copies = vec![0u64; live.len() + 1];
        let mut left: Vec<usize> = (0..self.step.gaps.len()).collect();
        for &at in &chosen {
            self.fits_host(&mut copies, &self.step.gaps[at]);
        }
        left.retain(|at| !chosen.contains(at));
        while let Some((highest, most)) = Gaps::highest(&live) {
            if most <= self.limit() {
                return Some(chosen);
            }
            if (self.context.stop)() {
                return None;
            }
            let pressure = Pressure::of(&self.step, &live, self.limit());
            let covers = |at: usize| self.step.gaps[at].away(live.len()).contains(&highest);
            let rated = left.iter().enumerate().filter(|&(_, &at)| covers(at)).filter_map(|(place, &at)| {
                Some((rate(at, &self.step.gaps[at], &pressure)?, Reverse(at), place))
            });
            let (_, Reverse(at), place) =
                rated.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)))?;
            left.remove(place);
            let gap = &self.step.gaps[at];
            if self.fits_host(&mut copies, gap) {
                change(&mut live, gap, -gap.size);
                chosen.push(at);
            }
        }
        None
    }

    /// Gaps with which all live bytes fit, chosen by `score`; what turns out not to be needed is left out.
    fn choose(&self, score: Score) -> Option<Vec<usize>> {
        let Gaps { live, begins, gaps, .. } = &self.step;
        let limit = self.limit();
        let mut live = live.clone();
        let mut copies = vec![0u64; live.len() + 1];
        let (mut chosen, mut left): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..gaps.len()).collect());
        let mut is_chosen = vec![false; gaps.len()];
        while live.iter().any(|&live| live > limit) {
            if (self.context.stop)() {
                return None;
            }
            // Ns above the budget before each run.
            let mut above = vec![0u64; live.len() + 1];
            for (run, &live) in live.iter().enumerate() {
                let time = if live > limit { (begins[run + 1] - begins[run]).max(1) } else { 0 };
                above[run + 1] = above[run].saturating_add(time);
            }
            let covers = |gap: &Gap| above[gap.away(live.len()).end] - above[gap.from + 1];
            left.retain(|&at| covers(&gaps[at]) > 0);
            let mut rated: Vec<(f64, usize)> =
                left.iter().map(|&at| (score.rate(&gaps[at], covers(&gaps[at]), begins), at)).collect();
            rated.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
            let mut taken = 0;
            for &(_, at) in rated.iter() {
                if self.fits_host(&mut copies, &gaps[at]) {
                    change(&mut live, &gaps[at], -gaps[at].size);
                    is_chosen[at] = true;
                    chosen.push(at);
                    taken += 1;
                }
                if taken > gaps.len() / BATCH {
                    break;
                }
            }
            if taken == 0 {
                return None;
            }
            left.retain(|&at| !is_chosen[at]);
        }
        Some(self.trimmed(chosen, live))
    }

    /// `chosen` without what turns out not to be needed: the last to be chosen were chosen with most known.
    pub(super) fn needed(&self, chosen: Vec<usize>) -> Vec<usize> {
        let live = live_without(&self.step, &chosen);
        self.trimmed(chosen, live)
    }

    /// `live`: what is live with `chosen` away.
    fn trimmed(&self, mut chosen: Vec<usize>, mut live: Vec<i64>) -> Vec<usize> {
        let limit = self.limit();
        chosen.retain(|&at| {
            let gap = &self.step.gaps[at];
            let needed = live[gap.away(live.len())].iter().any(|&live| live + gap.size > limit);
            if !needed {
                change(&mut live, gap, gap.size);
            }
            needed
        });
        chosen
    }

    /// Counts the copy of `gap`, if there is room for it.
    fn fits_host(&self, copies: &mut [u64], gap: &Gap) -> bool {
        let size = gap.copy;
        let during = gap.from..gap.to.min(copies.len() - 1) + 1;
        let device = &self.spare;
        let room = device.host_memory.0.saturating_add(device.disk.map_or(0, |disk| disk.capacity.0));
        let fits = copies[during.clone()].iter().all(|&held| held + size <= room);
        if fits {
            copies[during].iter_mut().for_each(|held| *held += size);
        }
        fits
    }

    /// When the values of `chosen` are away, told by first runs, which stay where others come and go.
    pub(in crate::schedule) fn away(&self, chosen: &[usize]) -> Vec<Away> {
        let firsts: Vec<Option<NodeId>> =
            self.runs.each(self.task).map(|(node, first)| first.then_some(node)).collect();
        let away = windows(&self.step, chosen, self.limit()).into_iter().filter_map(|window| {
            let gone = (window.gone..window.back).find(|&at| firsts[at].is_some())?;
            let end = || (window.back == firsts.len()).then_some((window.back, self.task.end()));
            let first = |at: usize| firsts[at].map(|node| (at, node));
            let (at, back) = end().or_else(|| (gone..=window.back).rev().find_map(first))?;
            let Window { gap, form, .. } = window;
            (at > gone + 1).then_some(Away { value: gap.value, form, gone: firsts[gone]?, back })
        });
        away.collect()
    }

    /// The gaps in which the values of `away` can be away as it says.
    pub(in crate::schedule) fn gaps_of(&self, away: &[Away]) -> Vec<usize> {
        let mut position = vec![0; self.task.nodes()];
        for (at, (node, first)) in self.runs.each(self.task).enumerate() {
            if first {
                position[node.index()] = at;
            }
        }
        let mut away: Vec<(ValueId, usize)> =
            away.iter().map(|away| (away.value, position[away.gone.index()])).collect();
        away.sort_unstable();
        let covers = |gap: &Gap| {
            let at = away.partition_point(|&wanted| wanted < (gap.value, gap.from));
            away.get(at).is_some_and(|&(value, gone)| value == gap.value && gone < gap.to)
        };
        let gaps = self.step.gaps.iter().enumerate();
        gaps.filter(|(_, gap)| covers(gap)).map(|(at, _)| at).collect()
    }

    /// The step with the values of `chosen` moved, if it fits and is a step at all: copies are made while there is room for
    /// what they are of, and what is away comes back as early as there is room.
    pub(in crate::schedule) fn run(&mut self, chosen: &[usize]) -> Option<Moved> {
        if self.context.device.disk.is_none() || !self.is_tiered() {
            return self.timed(&windows(&self.step, chosen, self.limit()));
        }
        let mut whole: Vec<Window> = chosen.iter().map(|&at| Window::whole(self.step.gaps[at])).collect();
        whole.sort_by_key(|window| (window.gap.from, window.gap.to, window.gap.value));
        let ways = spread(&self.step, &whole, self.limit(), &self.spare).into_iter().map(|mut way| {
            narrow(&self.step, &mut way, self.limit());
            way
        });
        self.fastest_of(ways.collect())
    }

    /// As [`Chooser::run`], with copies that stay: what leaves again is not copied again.
    pub(in crate::schedule) fn run_keeping_copies(&mut self, chosen: &[usize]) -> Option<Moved> {
        let mut windows = windows(&self.step, chosen, self.limit());
        let mut stored = BTreeSet::new();
        windows.iter_mut().for_each(|window| window.kept = !stored.insert(window.gap.value));
        self.run_at(&windows)
    }

    /// The step with what `windows` say away as they say, if it fits and is a step at all.
    pub(in crate::schedule) fn run_at(&mut self, windows: &[Window]) -> Option<Moved> {
        if !self.is_tiered() {
            return self.timed(windows);
        }
        let ways = spread(&self.step, windows, self.limit(), &self.spare);
        self.fastest_of(ways)
    }

    /// Whether values leave device memory.
    fn is_tiered(&self) -> bool {
        self.step.gaps.iter().any(|gap| gap.form.tier().is_some())
    }

    /// Has the copies of all of `windows` wait on the disk, if there is one.
    pub(in crate::schedule) fn on_disk(&self, windows: &mut [Window]) {
        if let Some(disk) = self.context.device.disk {
            windows.iter_mut().for_each(|window| window.move_to_disk(disk.link));
        }
    }

    /// As [`Chooser::run_at`], with each copy in the tier that its window says.
    pub(in crate::schedule) fn run_as(&mut self, windows: &[Window]) -> Option<Moved> {
        self.timed(windows)
    }

    fn fastest_of(&mut self, ways: Vec<Vec<Window>>) -> Option<Moved> {
        ways.iter().filter_map(|windows| self.timed(windows)).min_by_key(|moved| moved.time)
    }

    fn timed(&mut self, windows: &[Window]) -> Option<Moved> {
        let leaves: Vec<Leave> = windows.iter().map(Leave::from).collect();
        let known = self.known.iter().find(|(known, _)| *known == leaves);
        let found = known.map(|(_, found)| found.clone()).unwrap_or_else(|| {
            let ways = (self.runs, &leaves[..], &self.algorithms);
            let found = timed(self.task, ways, self.budget, self.context.device);
            if self.known.len() < KNOWN && self.step.gaps.len() <= FEW {
                self.known.push((leaves, found.clone()));
            }
            found
        });
        match found? {
            Ok(moved) => Some(moved),
            Err(peak) => {
                self.lowest = Some(self.lowest.map_or(peak, |lowest| lowest.min(peak)));
                None
            }
        }
    }

    /// Adds, takes away and exchanges gaps as long as that makes the step faster.
    pub(in crate::schedule) fn climb(
        &mut self,
        mut chosen: Vec<usize>,
        mut best: Moved,
    ) -> (Vec<usize>, Moved) {
        let gaps = self.step.gaps.len();
        let mut random = Random::new(self.context.seed);
        let tries =
            (CHANGES * self.context.effort.max(1) as usize).min(WORK / best.program.steps.len().max(1));
        for _ in 0..tries {
            if best.time <= self.base || chosen.is_empty() || (self.context.stop)() {
                break;
            }
            let mut other = chosen.clone();
            let kind = random.below(3);
            if kind != 0 {
                other.swap_remove(random.below(other.len()));
            }
            if kind != 1 {
                let more = random.below(gaps);
                if !other.contains(&more) {
                    other.push(more);
                }
            }
            let limit = self.limit();
            if live_without(&self.step, &other).iter().any(|&live| live > limit) {
                continue;
            }
            if let Some(moved) = self.run(&other).filter(|moved| moved.time < best.time) {
                (chosen, best) = (other, moved);
            }
        }
        (chosen, best)
    }
}

/// Adds the bytes of `gap` while its value is away, or takes them off.
fn change(live: &mut [i64], gap: &Gap, bytes: i64) {
    let away = gap.away(live.len());
    live[away].iter_mut().for_each(|live| *live += bytes);
}
