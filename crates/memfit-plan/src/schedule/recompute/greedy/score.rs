//! Rules of eviction.

/// What a score counts as the price of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Price {
    /// 1 for every value.
    One,
    /// The op that makes it.
    Local,
    /// And its evicted ancestors.
    Ancestors,
    /// And its evicted descendants.
    Neighbours,
}

/// What a score divides by, besides bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Age {
    /// Nothing.
    None,
    /// Time since the last access.
    Last,
    /// Time to the next.
    Next,
}

/// A rule of eviction: the least price ÷ (bytes × age) goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Score {
    pub(in super::super) price: Price,
    pub(in super::super) age: Age,
    /// Whether bytes count.
    pub(in super::super) sized: bool,
}

impl Score {
    pub(in super::super) const fn new(price: Price, age: Age) -> Score {
        Score { price, age, sized: true }
    }
}

/// A zero price would hide all else.
pub(super) fn score(price: u64, weight: f64) -> f64 {
    (price as f64 + 1e-3) / weight
}
