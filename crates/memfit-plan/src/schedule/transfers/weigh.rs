//! Chooses gaps by weighted sums of many scores, whose weights are searched for.
//!
//! Which score is best depends on what is short: memory in one place or many, the link before the peak or after it. AutoSwap
//! (arXiv:1903.06631) weighs four of them by a Gaussian process; here are more, among them when a transfer could begin and
//! when it has to be done, and weights are drawn, and then changed a little where they were best. The clock says which.

use super::random::Random;
use super::{Chooser, Gap, Gaps, Moved, Pressure};

/// Scores that a gap has: those that depend on what has been chosen come first.
const SCORES: usize = 8;
const CHANGING: usize = 2;

/// Weightings that are drawn, those that are made of the best, and changes of what was chosen by it.
const DRAWS: usize = 40;
const NEAR: usize = 60;
const CHANGES: usize = 200;

/// Ops in the programs of all choices, at most.
const WORK: usize = 600_000;

impl Chooser<'_> {
    /// The fastest step that fits by any weighting, and what was chosen for it. The same seed, the same one.
    pub(in crate::schedule) fn weighed(&mut self, seed: u64) -> Option<(Vec<usize>, Moved)> {
        let scores = Scores::of(self.step(), self.limit());
        let mut random = Random::new(seed);
        let mut weights = [0.0; SCORES];
        let mut best: Option<(Vec<usize>, Moved)> = None;
        let most = (SCORES + DRAWS + NEAR + CHANGES).min(WORK / self.step().live.len().max(1));
        for at in 0..most {
            if best.as_ref().is_some_and(|(_, moved)| moved.time <= self.base()) || self.is_over() {
                break;
            }
            let mut weight = |spread: f64| spread * (random.below(2001) as f64 / 1000.0 - 1.0);
            let tried: [f64; SCORES] = match at {
                _ if at < SCORES => std::array::from_fn(|score| f64::from(u8::from(score == at))),
                _ if at < SCORES + DRAWS || best.is_none() => std::array::from_fn(|_| weight(1.0)),
                _ => weights.map(|kept| kept + weight(0.3)),
            };
            // Part of what was chosen stays.
            let kept =
                best.as_ref().filter(|_| at >= SCORES + DRAWS + NEAR).map_or_else(Vec::new, |(chosen, _)| {
                    let more = 1 << random.below(5);
                    let goes = 1 + random.below(more);
                    chosen.iter().copied().filter(|_| random.below(chosen.len()) >= goes).collect()
                });
            let rate =
                |at: usize, gap: &Gap, pressure: &Pressure| Some(scores.rate((at, gap), pressure, &tried));
            let Some(chosen) = self.completed(kept, rate).map(|chosen| self.needed(chosen)) else { continue };
            let Some(moved) = self.run(&chosen) else { continue };
            if best.as_ref().is_none_or(|(_, best)| moved.time < best.time) {
                weights = tried;
                best = Some((chosen, moved));
            }
        }
        best
    }
}

/// The scores of all gaps, each less its mean and over its deviation, so that they can be added.
struct Scores {
    /// By gap: those that are what they are whatever is chosen.
    known: Vec<[f64; SCORES - CHANGING]>,
    /// Mean and deviation of the others, where nothing is chosen.
    scale: [(f64, f64); CHANGING],
}

impl Scores {
    fn of(step: &Gaps, limit: i64) -> Scores {
        let each = |gap: &Gap| {
            let (slack, size) = (gap.slack(step), gap.size as f64);
            let area = if slack >= 0.0 { size * slack } else { slack / size };
            let (from, to) = (step.begins[gap.from + 1] as f64, step.begins[gap.to] as f64);
            [slack, area, slack * size, size, from, to]
        };
        let mut known: Vec<[f64; SCORES - CHANGING]> = step.gaps.iter().map(each).collect();
        for score in 0..SCORES - CHANGING {
            standardise(known.iter_mut().map(|known| &mut known[score]));
        }
        let pressure = Pressure::of(step, &step.live, limit);
        let mut changing: Vec<[f64; CHANGING]> =
            step.gaps.iter().map(|gap| changing(&pressure, gap)).collect();
        let scale =
            std::array::from_fn(|score| standardise(changing.iter_mut().map(|each| &mut each[score])));
        Scores { known, scale }
    }

    fn rate(&self, (at, gap): (usize, &Gap), pressure: &Pressure, weights: &[f64; SCORES]) -> f64 {
        let (first, rest) = weights.split_at(CHANGING);
        let mut sum: f64 = self.known[at].iter().zip(rest).map(|(score, weight)| score * weight).sum();
        if first.iter().any(|&weight| weight != 0.0) {
            let now = changing(pressure, gap);
            let scaled =
                now.iter().zip(&self.scale).map(|(score, (mean, deviation))| (score - mean) / deviation);
            sum += scaled.zip(first).map(|(score, weight)| score * weight).sum::<f64>();
        }
        sum
    }
}

/// What of what is above the limit an absence takes off, for a ns on the link (G10); and all that there is under it (SWDOA).
fn changing(pressure: &Pressure, gap: &Gap) -> [f64; CHANGING] {
    let link = gap.out.saturating_add(gap.back).max(1) as f64;
    [pressure.relief(gap) / link, pressure.area(gap)]
}

/// Takes the mean off all of `numbers` and divides them by their deviation, and returns both.
pub(in crate::schedule) fn standardise<'a>(numbers: impl Iterator<Item = &'a mut f64>) -> (f64, f64) {
    let numbers: Vec<&mut f64> = numbers.collect();
    let count = numbers.len().max(1) as f64;
    let mean = numbers.iter().map(|number| **number).sum::<f64>() / count;
    let squares = numbers.iter().map(|number| (**number - mean) * (**number - mean));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    // Where all are alike none counts for more.
    let deviation = if deviation > 0.0 { deviation } else { 1.0 };
    for number in numbers {
        *number = (*number - mean) / deviation;
    }
    (mean, deviation)
}
