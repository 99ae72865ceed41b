//! One pass over the pool for the least score, in the order and with the ties of DTR's simulator.

use crate::state::State;

/// Which candidates are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sieve {
    /// Look at about √n of n, spread over the whole pool. (DTR's prototype, MegEngine: theirs covers half.)
    pub sample: bool,
    /// Leave out what is below 1 % of the mean size.
    pub skip_small: bool,
    /// Leave out what is smaller than this many bytes.
    pub minimum: u64,
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
        let sieved = self.pass(state, true, &mut score);
        if sieved.is_some() || self.sieve == Sieve::default() {
            return sieved;
        }
        self.pass(state, false, &mut score)
    }

    fn pass(&mut self, state: &State, sieve: bool, score: &mut impl FnMut(u32) -> f64) -> Option<u32> {
        let sieve = if sieve { self.sieve } else { Sieve::default() };
        let mut floor = sieve.minimum;
        if sieve.skip_small {
            floor = floor.max(state.pool_bytes / (state.pool_len.max(1) as u64) / 100);
        }
        let stride = if sieve.sample { state.pool_len.isqrt().max(1) } else { 1 };
        let (mut best, mut least) = (None, f64::INFINITY);
        let mut skip = if stride > 1 { self.draws.below(stride) } else { 0 };
        for storage in state.pool() {
            if state.storage(storage).size < floor {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if stride > 1 {
                skip = self.draws.below(2 * stride - 1);
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

/// `cost ÷ (size · staleness)`; infinite where that is not defined.
pub(crate) fn ratio(cost: i128, size: u64, staleness: u64) -> f64 {
    let denominator = u128::from(size) * u128::from(staleness);
    if denominator == 0 { f64::INFINITY } else { cost as f64 / denominator as f64 }
}
