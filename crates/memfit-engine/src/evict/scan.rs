//! One pass over the pool for the least score, in the order and with the ties of DTR's simulator.

use std::num::NonZeroUsize;
use std::str::FromStr;

use thiserror::Error;

use crate::state::State;

/// How many of the candidates are looked at for one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sample {
    /// All of them.
    #[default]
    All,
    /// About √n of n, spread over the whole pool. (DTR's prototype, MegEngine: theirs covers half.)
    Sqrt,
    /// So many, or all where there are fewer: each set of that many with the same chance. Never more, also where all that is left is smaller
    /// than what the [`Sieve`] asks for.
    Count(NonZeroUsize),
}

/// What is neither `all`, `sqrt`, nor a number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("`all`, `sqrt`, or a number from 1")]
pub struct NoSample;

impl FromStr for Sample {
    type Err = NoSample;

    fn from_str(text: &str) -> Result<Sample, NoSample> {
        match text {
            "all" => Ok(Sample::All),
            "sqrt" => Ok(Sample::Sqrt),
            number => number.parse().map(Sample::Count).map_err(|_| NoSample),
        }
    }
}

/// Which candidates are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sieve {
    /// How many of them.
    pub sample: Sample,
    /// Leave out what is smaller than this share of the mean size: 0.01 for 1 %, as DTR's prototype has it.
    pub share_of_mean: f64,
    /// Leave out what is smaller than this many bytes.
    pub minimum: u64,
}

impl Sieve {
    /// Bytes below which candidates are left out.
    pub(crate) fn floor(&self, state: &State) -> u64 {
        let mean = state.pool_bytes as f64 / state.pool_len.max(1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let share = (mean * self.share_of_mean).ceil() as u64;
        self.minimum.max(share)
    }
}

/// A small generator, so that a run is the same on every machine: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// A number in `[0, count)`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let wide = u128::from(mixed ^ (mixed >> 31)) * count as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// A pass over the pool.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    sieve: Sieve,
    draws: Draws,
    pub(crate) evaluations: u64,
}

impl Scan {
    pub(crate) fn new(sieve: Sieve, seed: u64) -> Scan {
        Scan { sieve, draws: Draws(seed), evaluations: 0 }
    }

    /// The candidate with the least score: of equals the last, and a score of 0 ends the pass. If the sieve
    /// holds all back, it is as if there were none.
    pub(crate) fn least(&mut self, state: &State, mut score: impl FnMut(u32) -> f64) -> Option<u32> {
        // About √n may miss all that are large enough, where most are small. A count misses none, and is kept to.
        let kept = match self.sieve.sample {
            Sample::Sqrt => Sample::All,
            sample => sample,
        };
        let sieves =
            [self.sieve, Sieve { sample: kept, ..self.sieve }, Sieve { sample: kept, ..Sieve::default() }];
        let is_new = |&at: &usize| at == 0 || sieves[at] != sieves[at - 1];
        (0..sieves.len()).filter(is_new).find_map(|at| self.pass(state, sieves[at], &mut score))
    }

    fn pass(&mut self, state: &State, sieve: Sieve, score: &mut impl FnMut(u32) -> f64) -> Option<u32> {
        let floor = sieve.floor(state);
        let is_large = |&storage: &u32| state.storage(storage).size >= floor;
        let mut taken = Taken::new(sieve.sample, state, is_large, &mut self.draws);
        let (mut best, mut least) = (None, f64::INFINITY);
        for storage in state.pool().filter(is_large) {
            if !taken.takes(&mut self.draws) {
                continue;
            }
            let score = score(storage);
            self.evaluations += 1;
            if score <= least {
                (best, least) = (Some(storage), score);
            }
            if score == 0.0 {
                break;
            }
        }
        best
    }
}

/// Which of the candidates that pass one after another are taken.
enum Taken {
    All,
    /// After `skip` more one is; then as many are skipped as are drawn below twice the `stride`.
    Strides {
        stride: usize,
        skip: usize,
    },
    /// `wanted` of the `left` that are still to come: Knuth's selection sampling (TAOCP 2, 3.4.2, algorithm S).
    Count {
        wanted: usize,
        left: usize,
    },
}

impl Taken {
    fn new(sample: Sample, state: &State, is_large: impl Fn(&u32) -> bool, draws: &mut Draws) -> Taken {
        match sample {
            Sample::Sqrt if state.pool_len >= 4 => {
                let stride = state.pool_len.isqrt();
                Taken::Strides { stride, skip: draws.below(stride) }
            }
            Sample::All | Sample::Sqrt => Taken::All,
            Sample::Count(count) => {
                Taken::Count { wanted: count.get(), left: state.pool().filter(is_large).count() }
            }
        }
    }

    fn takes(&mut self, draws: &mut Draws) -> bool {
        match self {
            Taken::All => true,
            Taken::Strides { stride, skip } => {
                let is_due = *skip == 0;
                *skip = if is_due { draws.below(2 * *stride - 1) } else { *skip - 1 };
                is_due
            }
            Taken::Count { wanted, left } => {
                let is_drawn = draws.below(*left) < *wanted;
                *left = left.saturating_sub(1);
                *wanted -= usize::from(is_drawn);
                is_drawn
            }
        }
    }
}

/// `cost ÷ (size · staleness)`; infinite where that is not defined.
pub(crate) fn ratio(cost: i128, size: u64, staleness: u64) -> f64 {
    let denominator = u128::from(size) * u128::from(staleness);
    if denominator == 0 { f64::INFINITY } else { cost as f64 / denominator as f64 }
}
