//! The fastest step in which the runs are as they are and values are away: by all scores, and by local search from the best.

use memfit_ir::{Bytes, Device};

use super::random::Random;
use super::score::SCORES;
use super::windows::live_without;
use super::{Algorithms, Chooser, Moved, RunList, Waits};

/// Changes that are tried, each with a run of the clock, with default effort and a step of few ops.
const CHANGES: usize = 200;

/// Steps of programs that all those runs may take together.
const WORK: usize = 2_000_000;

/// Searches whose results are kept, at most.
const KEPT: usize = 4;

/// What was chosen and what it takes, and the least live bytes of what was too large.
type Found = (Option<Bytes>, Option<(Vec<usize>, Moved)>);

/// All that a search depends on, beside its task.
#[derive(PartialEq)]
struct Key {
    runs: RunList,
    waits: Waits,
    /// The most that may be live, and within which steps have to be.
    limits: (i64, Bytes),
    device: Device,
    /// Seed and effort.
    by: (u64, u32),
    algorithms: Algorithms,
}

/// What the last searches found.
#[derive(Default)]
struct Known(Vec<(Key, Found)>);

impl Known {
    fn get(&self, key: &Key) -> Option<Found> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, found)| found.clone())
    }

    fn add(&mut self, row: (Key, Found)) {
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(row);
    }
}

impl Chooser<'_> {
    fn key(&self) -> Key {
        Key {
            runs: self.runs.clone(),
            waits: self.waits,
            limits: (self.limit(), self.budget),
            device: self.context.device.clone(),
            by: (self.context.seed, self.context.effort),
            algorithms: self.algorithms.clone(),
        }
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

    /// The fastest that fits by any score and by any weighting of scores, changed as long as that makes it faster. Looked for once
    /// for a task: more than one strategy begins with it.
    pub(in crate::schedule) fn fastest(&mut self) -> Option<(Vec<usize>, Moved)> {
        let key = self.key();
        let known = self.task.memo.with(|known: &mut Known| known.get(&key));
        if let Some((lowest, found)) = known {
            self.note(lowest);
            return found;
        }
        let before = self.lowest.take();
        let found = self.searched();
        if !self.is_over() {
            let row = (key, (self.lowest, found.clone()));
            self.task.memo.with(|known: &mut Known| known.add(row));
        }
        self.note(before);
        found
    }

    fn searched(&mut self) -> Option<(Vec<usize>, Moved)> {
        let best = self.best();
        if best.as_ref().is_some_and(|(_, best)| best.time <= self.base) {
            return best;
        }
        let climbed = best.map(|(chosen, moved)| self.climb(chosen, moved));
        let weighed = self.weighed(self.context.seed);
        [climbed, weighed].into_iter().flatten().min_by_key(|(_, moved)| moved.time)
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
            if best.time <= self.base || chosen.is_empty() || self.is_over() {
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
