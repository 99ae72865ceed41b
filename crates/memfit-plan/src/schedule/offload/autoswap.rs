//! Periods by duration of absence, area of absence, and load under them.
//!
//! Source: Zhang, Yeung, Shu, He and Wang, "Efficient Memory Management for GPU-based Deep Learning Systems",
//! arXiv:1903.06631, §4: of the variables whose accesses lie to both sides of the peak, those with the highest priority score
//! go, until the load fits. Scores: duration of absence less both transfers (DOA); that times the bytes, or over them where it is
//! negative (AOA); the load above the limit under the absence (WDOA); the same load as the choices so far have left it
//! (SWDOA); a weighted sum of all four (BO). We differ: candidates are of at least 1 MB or a thousandth of the peak, whichever
//! is less, the peak is that of the load as it is by then, and the weights of BO are drawn at random as often as the paper asks
//! its Gaussian process, the clock telling the best. Time O(chosen × (gaps + runs)), 30 times that for BO. Ties go to the gap
//! that begins first.

use memfit_ir::Bytes;

use super::random::Random;
use super::{Chooser, Front, Gap, Gaps, Infeasible, Moved, Pressure, RunList, Scheduler, Task, standardise};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct AutoSwap {
    name: &'static str,
    summary: &'static str,
    /// Of DOA, AOA, WDOA, SWDOA; none: drawn at random.
    weights: Option<[f64; 4]>,
}

impl AutoSwap {
    /// By duration of absence.
    pub const DOA: AutoSwap = AutoSwap {
        name: "autoswap-doa",
        summary: "what is longest away, less its transfers",
        weights: Some([1.0, 0.0, 0.0, 0.0]),
    };

    /// By area of absence.
    pub const AOA: AutoSwap = AutoSwap {
        name: "autoswap-aoa",
        summary: "bytes for the time they are away, less their transfers",
        weights: Some([0.0, 1.0, 0.0, 0.0]),
    };

    /// By the load under the absence.
    pub const WDOA: AutoSwap = AutoSwap {
        name: "autoswap-wdoa",
        summary: "the load above the budget while it is away",
        weights: Some([0.0, 0.0, 1.0, 0.0]),
    };

    /// By the load that is left under the absence.
    pub const SWDOA: AutoSwap = AutoSwap {
        name: "autoswap-swdoa",
        summary: "the load above the budget that earlier choices have left",
        weights: Some([0.0, 0.0, 0.0, 1.0]),
    };

    /// By a weighted sum of the four.
    pub const BO: AutoSwap = AutoSwap {
        name: "autoswap",
        summary: "the four scores of absence, weighted: the fastest of 30 weightings and each alone",
        weights: None,
    };
}

/// Weightings that BO draws.
const DRAWS: usize = 30;

/// What is smaller stays, if it is smaller than this part of the peak too.
const LEAST: (i64, i64) = (1_000_000, 1000);

impl Scheduler for AutoSwap {
    fn info(&self) -> Info {
        let source = "Zhang et al., AutoSwap, arXiv:1903.06631";
        Info { name: self.name, summary: self.summary, source, year: 2019 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let scores = Scores::of(chooser.step(), chooser.limit());
        let weightings = self.weights.map_or_else(|| drawn(context.seed), |weights| vec![weights]);
        let mut best: Option<Moved> = None;
        for weights in weights_until(&weightings, context) {
            let chosen = chooser.greedy(|at, gap, pressure| scores.rate((at, gap), pressure, weights));
            let Some(moved) = chosen.and_then(|chosen| chooser.run(&chosen)) else { continue };
            if best.as_ref().is_none_or(|best| moved.time < best.time) {
                best = Some(moved);
            }
        }
        chooser.found(best)
    }
}

/// Those that there is time for: the first one always.
fn weights_until<'a>(
    weightings: &'a [[f64; 4]],
    context: &'a Context<'_>,
) -> impl Iterator<Item = &'a [f64; 4]> {
    weightings
        .iter()
        .enumerate()
        .take_while(|&(at, _)| at == 0 || !(context.stop)())
        .map(|(_, weights)| weights)
}

/// Each score alone, and weights from −1 to 1.
fn drawn(seed: u64) -> Vec<[f64; 4]> {
    let mut random = Random::new(seed);
    let mut weightings: Vec<[f64; 4]> =
        (0..4).map(|one| std::array::from_fn(|at| f64::from(u8::from(at == one)))).collect();
    weightings.extend((0..DRAWS).map(|_| std::array::from_fn(|_| random.below(2001) as f64 / 1000.0 - 1.0)));
    weightings
}

/// The scores of all gaps, each less its mean and over its deviation, so that they can be added.
struct Scores {
    least: i64,
    /// By gap: DOA, AOA and WDOA, which are what they are whatever is chosen.
    known: Vec<[f64; 3]>,
    scale: [(f64, f64); 3],
}

impl Scores {
    fn of(step: &Gaps, limit: i64) -> Scores {
        let peak = Gaps::highest(&step.live).map_or(0, |(_, most)| most);
        let least = LEAST.0.min(peak / LEAST.1);
        let load = Pressure::of(step, &step.live, limit);
        let each = |gap: &Gap| {
            let absence = gap.slack(step);
            let size = gap.size as f64;
            let area = if absence >= 0.0 { size * absence } else { absence / size };
            [absence, area, load.area(gap)]
        };
        let mut known: Vec<[f64; 3]> = step.gaps.iter().map(each).collect();
        let scale = std::array::from_fn(|score| standardise(known.iter_mut().map(|known| &mut known[score])));
        Scores { least, known, scale }
    }

    fn rate(&self, (at, gap): (usize, &Gap), pressure: &Pressure, weights: &[f64; 4]) -> Option<f64> {
        let [known @ .., left] = weights;
        if gap.size < self.least {
            return None;
        }
        let mut sum: f64 = self.known[at].iter().zip(known).map(|(score, weight)| score * weight).sum();
        if *left != 0.0 {
            let (mean, deviation) = self.scale[2];
            sum += left * (pressure.area(gap) - mean) / deviation;
        }
        Some(sum)
    }
}
