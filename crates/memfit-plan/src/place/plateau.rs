//! The dive over merged plateaus of the skyline: O(1) skyline events for each piece, no pairs, no waking up.
//!
//! The lowest plateau of the skyline takes the preferred piece of those that lie wholly within it. If there
//! is none, no piece can ever rest there, and the plateau rises to its lower neighbour and becomes one with
//! it. That is the canonical dive, for a piece can lie lowest exactly if it lies within a lowest plateau.
//! The preferred piece within a stretch comes from a tree over (first section, end) with the best rank of
//! each node. O(n log n) in practice, O(n^1.5) at worst.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::arena::{Arena, Packing, ids};

const BUCKET: usize = 8;
const NONE: u32 = u32::MAX;

/// A stretch of the tree; `best` is `NONE` where all of its pieces are placed.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Least and greatest first section of the pieces left.
    lo: (u32, u32),
    /// Least and greatest end of the pieces left.
    hi: (u32, u32),
    /// Best rank of the pieces left.
    best: u32,
    parent: u32,
    /// The first of two children, which follow each other; 0 for a leaf.
    child: u32,
    from: u32,
    until: u32,
}

/// All unplaced pieces by lifetime.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    pieces: Vec<u32>,
    leaf: Vec<u32>,
    ranks: Vec<u32>,
}

impl Tree {
    /// The pieces of `arena`, without ranks.
    pub(crate) fn new(arena: &Arena) -> Tree {
        let mut pieces = ids(arena.len());
        let empty =
            Node { lo: (NONE, 0), hi: (NONE, 0), best: NONE, parent: NONE, child: 0, from: 0, until: 0 };
        let end = u32::try_from(pieces.len()).unwrap_or(NONE);
        let mut nodes = vec![Node { until: end, ..empty }];
        let mut at = 0;
        let mut by_lo = vec![true];
        while at < nodes.len() {
            let (from, until) = (nodes[at].from as usize, nodes[at].until as usize);
            if until - from > BUCKET {
                let stretch = &mut pieces[from..until];
                let middle = stretch.len() / 2;
                let piece = |index: u32| &arena.pieces[index as usize];
                if by_lo[at] {
                    stretch.select_nth_unstable_by_key(middle, |&index| {
                        (piece(index).lo, piece(index).hi, index)
                    });
                } else {
                    stretch.select_nth_unstable_by_key(middle, |&index| {
                        (piece(index).hi, piece(index).lo, index)
                    });
                }
                let parent = u32::try_from(at).unwrap_or(NONE);
                let middle = nodes[at].from + u32::try_from(middle).unwrap_or(0);
                nodes[at].child = u32::try_from(nodes.len()).unwrap_or(NONE);
                let (from, until) = (nodes[at].from, nodes[at].until);
                nodes.push(Node { parent, from, until: middle, ..empty });
                nodes.push(Node { parent, from: middle, until, ..empty });
                by_lo.extend([!by_lo[at]; 2]);
            }
            at += 1;
        }
        let mut leaf = vec![0; pieces.len()];
        for (node, number) in nodes.iter().zip(0u32..) {
            if node.child == 0 {
                for &piece in &pieces[node.from as usize..node.until as usize] {
                    leaf[piece as usize] = number;
                }
            }
        }
        Tree { nodes, pieces, leaf, ranks: Vec::new() }
    }

    /// Puts all pieces in, ranked by their position in `order`.
    fn fill(&mut self, arena: &Arena, order: &[u32]) {
        self.ranks = vec![NONE; order.len()];
        for (rank, &piece) in (0u32..).zip(order) {
            self.ranks[piece as usize] = rank;
        }
        for node in (0..self.nodes.len()).rev() {
            self.update(arena, node);
        }
    }

    /// Works out a node from its children or pieces.
    fn update(&mut self, arena: &Arena, at: usize) {
        let (mut lo, mut hi, mut best) = ((NONE, 0), (NONE, 0), NONE);
        let node = &self.nodes[at];
        if node.child == 0 {
            for &piece in &self.pieces[node.from as usize..node.until as usize] {
                let rank = self.ranks[piece as usize];
                if rank != NONE {
                    let piece = &arena.pieces[piece as usize];
                    lo = (piece.lo.min(lo.0), piece.lo.max(lo.1));
                    hi = (piece.hi.min(hi.0), piece.hi.max(hi.1));
                    best = best.min(rank);
                }
            }
        } else {
            for child in &self.nodes[node.child as usize..][..2] {
                lo = (child.lo.0.min(lo.0), child.lo.1.max(lo.1));
                hi = (child.hi.0.min(hi.0), child.hi.1.max(hi.1));
                best = best.min(child.best);
            }
        }
        let node = &mut self.nodes[at];
        (node.lo, node.hi, node.best) = (lo, hi, best);
    }

    /// Takes out a piece.
    fn remove(&mut self, arena: &Arena, piece: u32) {
        self.ranks[piece as usize] = NONE;
        let mut at = self.leaf[piece as usize];
        while at != NONE {
            self.update(arena, at as usize);
            at = self.nodes[at as usize].parent;
        }
    }

    /// The best rank of the pieces within `[from, until)`, or `NONE`.
    fn best_within(&self, arena: &Arena, from: u32, until: u32, stack: &mut Vec<u32>) -> u32 {
        let mut best = NONE;
        stack.clear();
        stack.push(0);
        while let Some(at) = stack.pop() {
            let node = &self.nodes[at as usize];
            if node.best >= best || node.lo.1 < from || node.hi.0 > until {
                continue;
            }
            if node.lo.0 >= from && node.hi.1 <= until {
                best = node.best;
            } else if node.child == 0 {
                for &index in &self.pieces[node.from as usize..node.until as usize] {
                    let (piece, rank) = (&arena.pieces[index as usize], self.ranks[index as usize]);
                    if rank < best && piece.lo >= from && piece.hi <= until {
                        best = rank;
                    }
                }
            } else {
                let (left, right) = (node.child, node.child + 1);
                let swap = self.nodes[left as usize].best < self.nodes[right as usize].best;
                stack.extend(if swap { [right, left] } else { [left, right] }); // the better on top
            }
        }
        best
    }
}

/// The skyline as plateaus of different heights, side by side.
struct Plateaus {
    /// For the start of each plateau, its end; 0 for sections that start none.
    end: Vec<u32>,
    /// For the end of each plateau, its start.
    start: Vec<u32>,
    height: Vec<u64>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Plateaus {
    fn new(sections: u32) -> Plateaus {
        let mut plateaus = Plateaus {
            end: vec![0; sections as usize],
            start: vec![0; sections as usize + 1],
            height: vec![0; sections as usize],
            heap: BinaryHeap::new(),
        };
        plateaus.set(0, sections, 0);
        plateaus
    }

    /// Makes `[from, until)` a plateau, one with neighbours of the same height.
    fn set(&mut self, mut from: u32, mut until: u32, height: u64) {
        let left = self.start[from as usize];
        if from > 0 && self.end[left as usize] == from && self.height[left as usize] == height {
            from = left;
        }
        if (until as usize) < self.end.len()
            && self.end[until as usize] > 0
            && self.height[until as usize] == height
        {
            let right = until;
            until = std::mem::take(&mut self.end[right as usize]);
        }
        self.end[from as usize] = until;
        self.start[until as usize] = from;
        self.height[from as usize] = height;
        self.heap.push(Reverse((height, from)));
    }

    /// The lowest plateau: its start, end and height.
    fn lowest(&mut self) -> Option<(u32, u32, u64)> {
        while let Some(Reverse((height, from))) = self.heap.pop() {
            let until = self.end[from as usize];
            if until > 0 && self.height[from as usize] == height {
                return Some((from, until, height));
            }
        }
        None
    }

    /// The height of the lower neighbour, if there is any.
    fn lower_neighbour(&self, from: u32, until: u32) -> Option<u64> {
        let left = (from > 0).then(|| self.height[self.start[from as usize] as usize]);
        let right = self.height.get(until as usize).copied();
        left.into_iter().chain(right).min()
    }
}

/// The dive by `order`, which names every piece once. None if it reaches the height `ceiling`, which may
/// fall meanwhile, or has to stop. Knows neither pins nor pieces to keep apart.
pub(crate) fn dive(
    arena: &Arena,
    tree: &mut Tree,
    order: &[u32],
    ceiling: &dyn Fn() -> u64,
    stop: &dyn Fn() -> bool,
) -> Option<Packing> {
    tree.fill(arena, order);
    let mut offsets = vec![0u64; arena.len()];
    let mut plateaus = Plateaus::new(u32::try_from(arena.load.len()).unwrap_or(NONE));
    let mut stack = Vec::new();
    let mut left = arena.len();
    while left > 0 {
        let (from, until, height) = plateaus.lowest()?;
        let rank = tree.best_within(arena, from, until, &mut stack);
        if rank == NONE {
            plateaus.end[from as usize] = 0;
            let raised = plateaus.lower_neighbour(from, until)?;
            plateaus.set(from, until, raised);
            continue;
        }
        let index = order[rank as usize];
        let piece = &arena.pieces[index as usize];
        let top = height.saturating_add(piece.size);
        left -= 1;
        if top >= ceiling() || (left & 255 == 0 && stop()) {
            return None;
        }
        offsets[index as usize] = height;
        tree.remove(arena, index);
        plateaus.end[from as usize] = 0;
        if from < piece.lo {
            plateaus.set(from, piece.lo, height);
        }
        if piece.hi < until {
            plateaus.set(piece.hi, until, height);
        }
        plateaus.set(piece.lo, piece.hi, top);
    }
    Some(arena.packing(offsets))
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Arena, Piece, sections};
    use super::super::rank::Order;
    use super::{Tree, dive};

    #[test]
    fn matches_the_dive_with_a_heap() {
        let mut seed = 1u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        for _ in 0..300 {
            let mut pieces: Vec<Piece> = (0..1 + below(120))
                .map(|_| {
                    let born = u32::try_from(below(60)).unwrap();
                    let gone = born + 1 + u32::try_from(below(20)).unwrap();
                    Piece { lo: 0, hi: 0, size: 1 + below(9), born, gone, pin: None }
                })
                .collect();
            let load = sections(&mut pieces);
            let arena = Arena { pieces, load, ..Arena::default() };
            for order in Order::STATIC {
                let order = order.sorted(&arena);
                let slow = super::super::descent::dive(&arena, &order, &|| u64::MAX, &|| false);
                let fast = dive(&arena, &mut Tree::new(&arena), &order, &|| u64::MAX, &|| false);
                assert_eq!(slow, fast);
            }
        }
    }
}
