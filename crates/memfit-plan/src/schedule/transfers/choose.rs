//! Chooses gaps of a run list until the live bytes fit, by one of several scores, and makes a program of them.
//!
//! The scores are those of the field: pressure on memory over time on the link (Zhang et al., "G10", MICRO 2023), and area
//! of absence, duration of absence and size (Zhang et al., "Efficient Memory Management for GPU-based Deep Learning
//! Systems", arXiv:1903.06631). Each choice is lowered to a program, with waits, and timed by the clock: what a score
//! thinks of time is an opinion, the clock's word counts. Time O(gaps × (gaps + runs)) for a choice.

use std::collections::BTreeSet;

use memfit_ir::{Bytes, Device, Nanos, ValueId};

use super::gaps::{Gap, Gaps, Waits, link};
use super::tiers::spread;
use super::timed::timed;
use super::windows::{Leave, Window, narrow, windows};
use super::{Algorithms, Away, Front, Infeasible, Moved, NodeId, RunList, Task, signed};
use crate::Context;

/// Times that gaps are chosen for less than the budget, at most.
const TIGHTENED: usize = 5;

/// Steps that are known again, at most.
const KNOWN: usize = 256;

/// Gaps of a step that is asked for again and again, at most.
const FEW: usize = 64;

/// What [`timed`] says of a step.
type Timed = Option<Result<Moved, Bytes>>;

/// Chooses among the gaps of a run list of a task.
pub(in crate::schedule) struct Chooser<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) runs: &'a RunList,
    pub(super) step: Gaps,
    pub(super) waits: Waits,
    pub(super) context: &'a Context<'a>,
    /// The context's device, with what storages that are at home in other tiers leave of those.
    pub(super) spare: Device,
    pub(super) budget: Bytes,
    /// Bytes by which live bytes stay below the budget while gaps are chosen.
    margin: i64,
    /// Time of all runs, nothing waited for.
    pub(super) base: Nanos,
    pub(super) algorithms: Algorithms,
    /// The least live bytes that a choice came to which was too large.
    pub(super) lowest: Option<Bytes>,
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
        Some(Chooser {
            task,
            runs,
            step,
            waits,
            context,
            spare,
            budget,
            margin: 0,
            base,
            algorithms,
            lowest,
            known,
        })
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

    /// That a choice came to `live` bytes, which was too large.
    pub(super) fn note(&mut self, live: Option<Bytes>) {
        self.lowest = [self.lowest, live].into_iter().flatten().min();
    }

    /// The least live bytes that a choice came to which was too large.
    pub(in crate::schedule) fn lowest(&self) -> Option<Bytes> {
        self.lowest
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
                self.note(Some(peak));
                None
            }
        }
    }
}
