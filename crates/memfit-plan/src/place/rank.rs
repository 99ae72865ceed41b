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
        let most = RangeMax::new(&arena.load);
        let mut order = ids(arena.len());
        order.sort_by_cached_key(|&index| {
            let piece = &arena.pieces[index as usize];
            let load = [most.of(piece.lo as usize, piece.hi as usize)];
            let width = u64::from(piece.width());
            let area = piece.size.saturating_mul(width);
            Reverse(match self {
                Order::Wat => [width, area, load[0]],
                Order::Taw => [load[0], area, width],
                Order::Twa => [load[0], width, area],
                Order::Atw => [area, load[0], width],
                _ => self.key((piece.lo, piece.hi), piece.size, &[], &[]),
            })
        });
        order
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
