//! The pieces a search works on, with everything it looks up.

use memfit_ir::Csr;

use crate::place::arena::{Arena, Piece, ids, sections};

/// A piece, its index in the arena unless it is not to be placed, and the lowest offset that it may rest at.
pub(crate) type Part = (Option<u32>, Piece, u64);

/// Pieces that are to be packed together. They are renumbered by their first section, so that the pieces of
/// a stretch of sections are neighbours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instance {
    /// The arena's index of each piece; `None` for what is there but not to be placed.
    pub(crate) names: Vec<Option<u32>>,
    pub(super) lo: Vec<u32>,
    pub(super) hi: Vec<u32>,
    pub(super) size: Vec<u64>,
    pub(super) pin: Vec<Option<u64>>,
    /// Lowest offset of each piece: that of its pin, or above what lies fixed beneath.
    pub(super) start: Vec<u64>,
    /// For each piece, the pieces it must not overlap.
    pub(super) conflicts: Csr<u32>,
    /// For each section, the pieces live in it.
    pub(super) members: Vec<Vec<u32>>,
    /// Where the sections of each piece start in a flat list of (piece, section) pairs.
    pub(super) base: Vec<u32>,
    /// Length of that list.
    pub(super) pairs: usize,
    pub(super) load: Vec<u64>,
    /// Whether pieces that do not meet are independent.
    pub(super) splits: bool,
}

impl Instance {
    /// These pieces of `arena`, each resting at its `start` or higher. Their sections are worked out anew
    /// from `born` and `gone`. Time O(n log n + pairs of pieces that meet), O(n²) where pieces are kept apart.
    pub(crate) fn new(arena: &Arena, mut parts: Vec<Part>) -> Instance {
        parts.sort_by_key(|(_, piece, _)| (piece.born, piece.gone));
        let names: Vec<Option<u32>> = parts.iter().map(|&(name, ..)| name).collect();
        let mut pieces: Vec<Piece> = parts.iter().map(|&(_, piece, _)| piece).collect();
        let start = parts.iter().map(|&(_, piece, start)| piece.pin.unwrap_or(start)).collect();
        let load = sections(&mut pieces);
        let mut members = vec![Vec::new(); load.len()];
        let mut base = Vec::with_capacity(pieces.len());
        let mut pairs = 0;
        for (index, piece) in (0u32..).zip(&pieces) {
            base.push(pairs);
            for section in piece.lo..piece.hi {
                members[section as usize].push(index);
            }
            pairs += piece.width();
        }
        let splits = arena.apart.rows() == 0;
        let mut conflicts = Csr::default();
        let mut row: Vec<u32> = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            row.clear();
            // Those live when it is born, and those born while it lives, which follow each other.
            let follow = pieces.partition_point(|other| other.lo <= piece.lo);
            let until = pieces.partition_point(|other| other.lo < piece.hi);
            row.extend(members[piece.lo as usize].iter().copied().filter(|&other| other as usize != at));
            row.extend(ids(until).into_iter().skip(follow));
            if !splits {
                let kept = |other: &u32| {
                    let both = names[at].zip(names[*other as usize]);
                    both.is_some_and(|(one, other)| arena.keeps_apart(one, other))
                };
                row.extend(ids(pieces.len()).iter().filter(|other| kept(other)));
                row.sort_unstable();
                row.dedup();
            }
            conflicts.push(row.iter().copied());
        }
        Instance {
            lo: pieces.iter().map(|piece| piece.lo).collect(),
            hi: pieces.iter().map(|piece| piece.hi).collect(),
            size: pieces.iter().map(|piece| piece.size).collect(),
            pin: pieces.iter().map(|piece| piece.pin).collect(),
            start,
            conflicts,
            members,
            base,
            pairs: pairs as usize,
            load,
            splits,
            names,
        }
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Number of sections.
    pub(crate) fn sections(&self) -> usize {
        self.load.len()
    }
}
