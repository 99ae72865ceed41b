//! Chooses gaps one by one, or a few at a time, until all live bytes fit.

use std::cmp::Reverse;

use super::score::Score;
use super::windows::live_without;
use super::{Chooser, Gap, Gaps, Pressure};

/// Gaps chosen at a time: one in so many.
const BATCH: usize = 400;

impl Chooser<'_> {
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
        let gaps = &self.step.gaps;
        let mut live = live_without(&self.step, &chosen);
        let mut host = HostRoom::of(self);
        let mut is_left = vec![true; gaps.len()];
        for &at in &chosen {
            host.take(&gaps[at]);
            is_left[at] = false;
        }
        let away = |at: usize| gaps[at].away(live.len());
        // Nothing but what is looked at for each choice: gaps begin in this order.
        let mut left: Vec<(usize, usize, usize)> =
            (0..gaps.len()).filter(|&at| is_left[at]).map(|at| (away(at).start, away(at).end, at)).collect();
        let mut pressure = Pressure::of(&self.step, &live, self.limit());
        while let Some((highest, most)) = Gaps::highest(&live) {
            if most <= self.limit() {
                return Some(chosen);
            }
            if self.is_over() {
                return None;
            }
            let begun = left.partition_point(|&(start, ..)| start <= highest);
            let covers = left[..begun].iter().enumerate().filter(|(_, (_, end, _))| highest < *end);
            let rated = covers.filter_map(|(place, &(_, _, at))| {
                Some((rate(at, &gaps[at], &pressure)?, Reverse(at), place))
            });
            let (_, Reverse(at), place) =
                rated.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)))?;
            left.remove(place);
            let gap = &gaps[at];
            if host.take(gap) {
                change(&mut live, gap, -gap.size);
                pressure.renew(gap.away(live.len()).start, &self.step, &live, self.limit());
                chosen.push(at);
            }
        }
        None
    }

    /// Gaps with which all live bytes fit, chosen by `score`; what turns out not to be needed is left out.
    pub(super) fn choose(&self, score: Score) -> Option<Vec<usize>> {
        let Gaps { live, begins, gaps, .. } = &self.step;
        let limit = self.limit();
        let mut live = live.clone();
        let mut host = HostRoom::of(self);
        let (mut chosen, mut left): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..gaps.len()).collect());
        let mut is_chosen = vec![false; gaps.len()];
        while live.iter().any(|&live| live > limit) {
            if self.is_over() {
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
                if host.take(&gaps[at]) {
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
}

/// What copies take in other memory.
struct HostRoom {
    room: u64,
    /// By run, and at the end; nothing is counted where there is room for all copies there can be.
    taken: Option<Vec<u64>>,
}

impl HostRoom {
    /// Nothing is taken yet.
    fn of(chooser: &Chooser<'_>) -> HostRoom {
        let (device, step) = (&chooser.spare, &chooser.step);
        let room = device.host_memory.0.saturating_add(device.disk.map_or(0, |disk| disk.capacity.0));
        let all = step.gaps.iter().fold(0u64, |sum, gap| sum.saturating_add(gap.copy));
        HostRoom { room, taken: (all > room).then(|| vec![0; step.live.len() + 1]) }
    }

    /// Counts the copy of `gap`, if there is room for it.
    fn take(&mut self, gap: &Gap) -> bool {
        let Some(taken) = &mut self.taken else { return true };
        let during = gap.from..gap.to.min(taken.len() - 1) + 1;
        let fits = taken[during.clone()].iter().all(|&held| held.saturating_add(gap.copy) <= self.room);
        if fits {
            taken[during].iter_mut().for_each(|held| *held += gap.copy);
        }
        fits
    }
}

/// Adds the bytes of `gap` while its value is away, or takes them off.
fn change(live: &mut [i64], gap: &Gap, bytes: i64) {
    let away = gap.away(live.len());
    live[away].iter_mut().for_each(|live| *live += bytes);
}
