//! Orders of preference among pieces that could go to the same offset.

use std::cmp::Reverse;

use super::arena::{Arena, ids};

/// Which piece goes first: descending by these keys in turn. W is the number of sections, A size times
/// sections, T the largest load met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// W, A, T.
    Wat,
    /// T, A, W.
    Taw,
    /// T, W, A.
    Twa,
    /// A, T, W.
    Atw,
    /// Size, W, T.
    Size,
    /// Earliest first section, then size, W.
    Birth,
    /// Latest last section, then size, W.
    Death,
    /// How often the worst section met was where a search failed; then W, A.
    Blame,
}

impl Order {
    /// Those that need no search to have failed before.
    pub(crate) const STATIC: [Order; 7] =
        [Order::Atw, Order::Birth, Order::Twa, Order::Taw, Order::Death, Order::Wat, Order::Size];

    /// The keys of a piece that is live in `[lo, hi)`, where `load` and `blame` belong to the sections.
    pub(crate) fn key(self, (lo, hi): (u32, u32), size: u64, load: &[u64], blame: &[u64]) -> [u64; 3] {
        let width = u64::from(hi - lo);
        let area = size.saturating_mul(width);
        let most = |of: &[u64]| {
            of.get(lo as usize..hi as usize).and_then(|of| of.iter().max()).copied().unwrap_or(0)
        };
        match self {
            Order::Wat => [width, area, most(load)],
            Order::Taw => [most(load), area, width],
            Order::Twa => [most(load), width, area],
            Order::Atw => [area, most(load), width],
            Order::Size => [size, width, most(load)],
            Order::Birth => [u64::from(u32::MAX - lo), size, width],
            Order::Death => [u64::from(hi), size, width],
            Order::Blame => [most(blame), width, area],
        }
    }

    /// The pieces of `arena` in this order; ties go to the lower index. Time O(n log n), besides the sum of
    /// the widths for the orders that look at the load.
    pub(crate) fn sorted(self, arena: &Arena) -> Vec<u32> {
        self.noisy(arena, &[])
    }

    /// Which key noise goes to: many pieces share the load they meet, and noise there would take its meaning.
    pub(crate) fn noisy_key(self) -> usize {
        usize::from(matches!(self, Order::Taw | Order::Twa | Order::Blame))
    }

    /// As [`Order::sorted`], with factors to a key of each piece; none: 1.
    pub(crate) fn noisy(self, arena: &Arena, noise: &[u32]) -> Vec<u32> {
        let most = RangeMax::new(&arena.load);
        let mut order = ids(arena.len());
        order.sort_by_cached_key(|&index| {
            let piece = &arena.pieces[index as usize];
            let load = [most.of(piece.lo as usize, piece.hi as usize)];
            let width = u64::from(piece.width());
            let area = piece.size.saturating_mul(width);
            let mut key = match self {
                Order::Wat => [width, area, load[0]],
                Order::Taw => [load[0], area, width],
                Order::Twa => [load[0], width, area],
                Order::Atw => [area, load[0], width],
                _ => self.key((piece.lo, piece.hi), piece.size, &[], &[]),
            };
            if let Some(&factor) = noise.get(index as usize) {
                key[self.noisy_key()] = scaled(key[self.noisy_key()], factor);
            }
            Reverse(key)
        });
        order
    }
}

/// `key` times `factor`, saturating.
pub(crate) fn scaled(key: u64, factor: u32) -> u64 {
    u64::try_from(u128::from(key) * u128::from(factor)).unwrap_or(u64::MAX)
}

/// `len` factors between 1024 and `percent` more than that.
pub(crate) fn noise(len: usize, percent: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let spread = u64::from(percent) * 1024 / 100;
    (0..len).map(|_| 1024 + u32::try_from(random.below(spread)).unwrap_or(0)).collect()
}

/// xorshift64 (13, 7, 17).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts at `seed`.
    pub(crate) fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(1);
        random
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    /// A position in a list of `len`, or 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}

/// The largest of any stretch of a list, in O(1) after O(n log n).
struct RangeMax(Vec<Vec<u64>>);

impl RangeMax {
    fn new(of: &[u64]) -> RangeMax {
        let mut levels = vec![of.to_vec()];
        let mut span = 1;
        while span * 2 <= of.len() {
            let below = &levels[levels.len() - 1];
            levels.push((0..=of.len() - span * 2).map(|at| below[at].max(below[at + span])).collect());
            span *= 2;
        }
        RangeMax(levels)
    }

    /// The largest of `[from, to)`; 0 if that is empty.
    fn of(&self, from: usize, to: usize) -> u64 {
        if from >= to {
            return 0;
        }
        let level = (to - from).ilog2() as usize;
        self.0[level][from].max(self.0[level][to - (1 << level)])
    }
}
