//! Sequences of ops as hills and valleys, and how to interleave them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A run of ops that a good order need not break.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Most bytes live during the run, less those live before it.
    pub(super) hill: i64,
    /// Bytes live after the run, less those live before it.
    pub(super) net: i64,
    /// Its first and last op in [`Chain`].
    pub(super) first: u32,
    last: u32,
}

impl Segment {
    /// The hill as it looks to one who comes from the end.
    pub(super) fn hill_from_end(&self) -> i64 {
        self.hill - self.net
    }
}

/// For each op the one after it in its segment.
pub(super) struct Chain(Vec<u32>);

impl Chain {
    pub(super) fn new(ops: usize) -> Chain {
        Chain(vec![u32::MAX; ops])
    }

    /// The ops of a segment.
    pub(super) fn ops(&self, segment: &Segment) -> impl Iterator<Item = u32> {
        let mut next = Some(segment.first);
        std::iter::from_fn(move || {
            let op = next?;
            next = (op != segment.last).then(|| self.0[op as usize]);
            Some(op)
        })
    }

    fn join(&mut self, a: Segment, b: Segment) -> Segment {
        self.0[a.last as usize] = b.first;
        Segment { hill: a.hill.max(a.net + b.hill), net: a.net + b.net, first: a.first, last: b.last }
    }
}

/// A sequence of ops, cut where the fewest bytes are live: segments down to there, segments up from there.
///
/// Segments down end no higher than they begin and have ever higher hills; segments up are the same, seen from
/// the end. A segment whose hill is no higher than that of the one before would be run right after it in any
/// good interleaving, so the two are joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub(super) down: VecDeque<Segment>,
    pub(super) up: VecDeque<Segment>,
}

impl Sequence {
    /// One op.
    pub(super) fn of(op: u32, (needs, leaves): (i64, i64)) -> Sequence {
        let segment = Segment { hill: needs, net: leaves, first: op, last: op };
        let mut sequence = Sequence::default();
        if leaves <= 0 { &mut sequence.down } else { &mut sequence.up }.push_back(segment);
        sequence
    }

    /// All segments.
    pub(super) fn segments(self) -> impl Iterator<Item = Segment> {
        self.down.into_iter().chain(self.up)
    }

    /// This sequence, then another.
    pub(super) fn then(mut self, mut next: Sequence, chain: &mut Chain) -> Sequence {
        let rise: i64 = self.up.iter().map(|segment| segment.net).sum();
        let fall: i64 = next.down.iter().map(|segment| segment.net).sum();
        if rise + fall <= 0 {
            // The lowest point is that of `next`: what lies between goes down as a whole.
            let mut between = self.up.drain(..).reduce(|a, b| chain.join(a, b));
            while between.is_some_and(|between| between.net > 0) {
                between = between.zip(next.down.pop_front()).map(|(a, b)| chain.join(a, b));
            }
            between.into_iter().for_each(|between| next.down.push_front(between));
            while let Some((a, b)) = self.down.back().zip(next.down.front()) {
                if b.hill > a.hill {
                    break;
                }
                let joined = chain.join(*a, *b);
                next.down.pop_front();
                self.down.pop_back();
                self.down.push_back(joined);
            }
            return Sequence { down: append(self.down, next.down), up: next.up };
        }
        let mut between = next.down.drain(..).reduce(|a, b| chain.join(a, b));
        while between.is_some_and(|between| between.net < 0) {
            between = self.up.pop_back().zip(between).map(|(a, b)| chain.join(a, b));
        }
        between.into_iter().for_each(|between| self.up.push_back(between));
        while let Some((a, b)) = self.up.back().zip(next.up.front()) {
            if a.hill_from_end() > b.hill_from_end() {
                break;
            }
            let joined = chain.join(*a, *b);
            self.up.pop_back();
            next.up.pop_front();
            next.up.push_front(joined);
        }
        Sequence { down: self.down, up: append(self.up, next.up) }
    }

    /// Several sequences side by side, at their smallest peak.
    pub(super) fn beside(mut all: Vec<Sequence>, chain: &mut Chain) -> Sequence {
        if all.len() < 2 {
            return all.pop().unwrap_or_default();
        }
        let mut merged = Sequence::default();
        let mut heads: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        for (at, one) in all.iter().enumerate() {
            heads.extend(one.down.front().map(|segment| Reverse((segment.hill, at))));
        }
        while let Some(Reverse((_, at))) = heads.pop() {
            let Some(segment) = all[at].down.pop_front() else { continue };
            heads.extend(all[at].down.front().map(|segment| Reverse((segment.hill, at))));
            match merged.down.back_mut() {
                Some(last) if segment.hill <= last.hill => *last = chain.join(*last, segment),
                _ => merged.down.push_back(segment),
            }
        }
        for (at, one) in all.iter().enumerate() {
            heads.extend(one.up.back().map(|segment| Reverse((segment.hill_from_end(), at))));
        }
        while let Some(Reverse((_, at))) = heads.pop() {
            let Some(segment) = all[at].up.pop_back() else { continue };
            heads.extend(all[at].up.back().map(|segment| Reverse((segment.hill_from_end(), at))));
            match merged.up.front_mut() {
                Some(first) if segment.hill_from_end() <= first.hill_from_end() => {
                    *first = chain.join(segment, *first);
                }
                _ => merged.up.push_front(segment),
            }
        }
        merged
    }
}

/// The two lists as one; the shorter one is moved.
fn append(mut a: VecDeque<Segment>, mut b: VecDeque<Segment>) -> VecDeque<Segment> {
    if a.len() >= b.len() {
        a.append(&mut b);
        return a;
    }
    a.into_iter().rev().for_each(|segment| b.push_front(segment));
    b
}
