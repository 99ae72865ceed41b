//! One bank's worth of a problem, in the form that algorithms want, and the way back to places.
//!
//! Sizes are rounded up to the alignment once, so that every sum of them is aligned. Items without bytes or
//! without a lifetime are set aside. Times become *sections*: the maximal sets of items that are live
//! together, in order; two items meet exactly if they share a section.

use memfit_ir::{Bytes, Csr, Place};

use super::{Placement, Problem, Unplaced};
use crate::Context;

/// An item with bytes and a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First section it is live in.
    pub(crate) lo: u32,
    /// First section after `lo` it is not live in.
    pub(crate) hi: u32,
    /// Bytes, rounded up to the alignment. Never 0.
    pub(crate) size: u64,
    /// First time at which it is live.
    pub(crate) born: u32,
    /// First time at which it is gone.
    pub(crate) gone: u32,
    /// Demanded offset.
    pub(crate) pin: Option<u64>,
}

impl Piece {
    /// Whether both are live in some section.
    pub(crate) fn meets(&self, other: &Piece) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }

    /// Number of sections.
    pub(crate) fn width(&self) -> u32 {
        self.hi - self.lo
    }
}

/// One bank's worth of a problem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    /// What needs an offset, in the order of the problem's items.
    pub(crate) pieces: Vec<Piece>,
    /// For each section, the sum of the sizes live in it.
    pub(crate) load: Vec<u64>,
    /// For each piece, ascending, the pieces to keep apart from although they do not meet. No rows: none.
    pub(crate) apart: Csr<u32>,
    /// For each piece the colours of the ops that define and end it. Empty: no colours.
    pub(crate) colours: Vec<(u16, u16)>,
    /// Pieces with a pin, by offset.
    pub(crate) pins: Vec<u32>,
    /// The largest load, or the highest end of a pin: nothing is lower.
    pub(crate) bound: u64,
    /// Height at which a search may stop: not below `bound`.
    pub(crate) enough: u64,
}

/// A part of an arena, to be packed above the rest of it.
pub(crate) struct Above {
    pub(crate) arena: Arena,
    /// Of each of its pieces, the index in the whole arena.
    names: Vec<u32>,
    /// Bytes beneath.
    base: u64,
}

impl Above {
    /// `packing` of the part as one of `whole`, with the rest beneath.
    pub(crate) fn lift(&self, whole: &Arena, packing: &Packing) -> Packing {
        let mut offsets = vec![None; whole.len()];
        for (&name, offset) in self.names.iter().zip(&packing.offsets) {
            offsets[name as usize] = Some(offset.saturating_add(self.base));
        }
        let mut beneath = 0u64;
        let sizes = whole.pieces.iter().map(|piece| piece.size);
        let offsets = offsets.into_iter().zip(sizes).map(|(offset, size)| {
            offset.unwrap_or_else(|| {
                beneath += size;
                beneath - size
            })
        });
        let lifted = whole.packing(offsets.collect());
        Packing { bound: whole.bound.max(packing.bound.saturating_add(self.base)), ..lifted }
    }
}

/// Offsets for the pieces of an arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Indexed as [`Arena::pieces`].
    pub(crate) offsets: Vec<u64>,
    /// Highest end.
    pub(crate) height: u64,
    /// Proved: no packing is lower.
    pub(crate) bound: u64,
    /// What a run-time allocator would hold; not below `height`.
    pub(crate) reserved: u64,
}

/// What an algorithm can do besides single arenas without further demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Does {
    /// Fixed offsets, and by them several banks.
    pub(crate) pins: bool,
    /// Items kept apart although they do not meet.
    pub(crate) apart: bool,
}

impl Does {
    /// Everything there is.
    pub(crate) const ALL: Does = Does { pins: true, apart: true };
}

impl Arena {
    /// The items `members` of `problem`, in bank `bank`.
    fn new(problem: &Problem, bank: usize, members: &[u32], enough: Bytes) -> Arena {
        let align = problem.banks.get(bank).map_or(Bytes(1), |bank| bank.align);
        let mut pieces: Vec<Piece> = members
            .iter()
            .map(|&index| {
                let item = &problem.items[index as usize];
                Piece {
                    lo: 0,
                    hi: 0,
                    size: item.size.round_up(align).0,
                    born: item.from,
                    gone: item.until,
                    pin: item.pin.and_then(|pin| pin.offset).map(|offset| offset.0),
                }
            })
            .collect();
        let load = sections(&mut pieces);
        let mut pins = ids(pieces.len());
        pins.retain(|&index| pieces[index as usize].pin.is_some());
        pins.sort_by_key(|&index| pieces[index as usize].pin);
        let apart = if problem.lanes.apart.rows() == 0 {
            Csr::default()
        } else {
            let mut piece_of = vec![u32::MAX; problem.items.len()];
            for (piece, &item) in ids(members.len()).iter().zip(members) {
                piece_of[item as usize] = *piece;
            }
            let mut apart = Csr::default();
            for &item in members {
                let row = problem.lanes.apart.row(item as usize).iter();
                apart.push(row.map(|&other| piece_of[other as usize]).filter(|&piece| piece != u32::MAX));
            }
            apart
        };
        let colours = if problem.lanes.colours.is_empty() {
            Vec::new()
        } else {
            members.iter().map(|&item| problem.lanes.colours[item as usize]).collect()
        };
        let pinned = pins.iter().map(|&index| {
            let piece = &pieces[index as usize];
            piece.pin.unwrap_or(0).saturating_add(piece.size)
        });
        let bound = load.iter().copied().chain(pinned).max().unwrap_or(0);
        Arena { pieces, load, apart, colours, pins, bound, enough: bound.max(enough.0) }
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Every piece's index.
    pub(crate) fn ids(&self) -> Vec<u32> {
        ids(self.len())
    }

    /// The lowest offset from `offset` upwards at which `piece` does not run into a pinned piece it meets.
    pub(crate) fn above_pins(&self, piece: u32, mut offset: u64) -> u64 {
        let this = &self.pieces[piece as usize];
        for &index in &self.pins {
            let pinned = &self.pieces[index as usize];
            let start = pinned.pin.unwrap_or(0);
            let end = start.saturating_add(pinned.size);
            if start < offset.saturating_add(this.size)
                && end > offset
                && index != piece
                && (pinned.meets(this) || self.keeps_apart(piece, index))
            {
                offset = end;
            }
        }
        offset
    }

    /// Whether the two must not share bytes although they do not meet.
    pub(crate) fn keeps_apart(&self, one: u32, other: u32) -> bool {
        self.apart.rows() > 0 && self.apart.row(one as usize).binary_search(&other).is_ok()
    }

    /// What is to be packed above the pieces that are live in every section: those can lie beneath all others, for what is
    /// above one of them in a packing can move down by its size. `None` where that is nothing or everything, or where pieces
    /// are pinned or kept apart.
    pub(crate) fn above(&self) -> Option<Above> {
        let all = u32::try_from(self.load.len()).unwrap_or(u32::MAX);
        let is_whole = |piece: &Piece| piece.width() == all;
        if self.apart.rows() > 0 || !self.pins.is_empty() || !self.pieces.iter().any(is_whole) {
            return None;
        }
        let mut names = self.ids();
        names.retain(|&index| !is_whole(&self.pieces[index as usize]));
        let mut pieces: Vec<Piece> = names.iter().map(|&index| self.pieces[index as usize]).collect();
        if pieces.is_empty() {
            return None;
        }
        let base = self.pieces.iter().filter(|piece| is_whole(piece)).map(|piece| piece.size).sum::<u64>();
        let load = sections(&mut pieces);
        let bound = self.bound.saturating_sub(base);
        let arena =
            Arena { pieces, load, bound, enough: self.enough.saturating_sub(base), ..Arena::default() };
        Some(Above { arena, names, base })
    }

    /// The packing with these offsets.
    pub(crate) fn packing(&self, offsets: Vec<u64>) -> Packing {
        let ends = self.pieces.iter().zip(&offsets).map(|(piece, &offset)| offset.saturating_add(piece.size));
        let height = ends.max().unwrap_or(0);
        Packing { offsets, height, bound: self.bound, reserved: height }
    }
}

/// `0..len` as piece or item indices.
pub(crate) fn ids(len: usize) -> Vec<u32> {
    (0..u32::try_from(len).unwrap_or(u32::MAX)).collect()
}

/// Fills in the sections of `pieces` and returns the load of each.
pub(crate) fn sections(pieces: &mut [Piece]) -> Vec<u64> {
    let mut births = ids(pieces.len());
    births.sort_unstable_by_key(|&index| pieces[index as usize].born);
    let mut deaths = ids(pieces.len());
    deaths.sort_unstable_by_key(|&index| pieces[index as usize].gone);
    let mut load = vec![0u64];
    let (mut now, mut section, mut died) = (0u64, 0usize, false);
    let mut deaths = deaths.into_iter().peekable();
    let narrow = |section: usize| u32::try_from(section).unwrap_or(u32::MAX);
    for index in births {
        let born = pieces[index as usize].born;
        while let Some(dead) = deaths.next_if(|&dead| pieces[dead as usize].gone <= born) {
            pieces[dead as usize].hi = narrow(section + 1);
            now = now.saturating_sub(pieces[dead as usize].size);
            died = true;
        }
        if died {
            section += 1;
            load.push(0);
            died = false;
        }
        pieces[index as usize].lo = narrow(section);
        now = now.saturating_add(pieces[index as usize].size);
        load[section] = now;
    }
    for dead in deaths {
        pieces[dead as usize].hi = narrow(section + 1);
    }
    load
}

/// Lays out `problem` with `pack`, which lays out one arena: bank after bank, what ends above a bank's
/// capacity moving on to the next.
pub(crate) fn place(
    problem: &Problem,
    context: &Context<'_>,
    does: Does,
    pack: &dyn Fn(&Arena) -> Result<Packing, Unplaced>,
) -> Result<Placement, Unplaced> {
    if !does.apart && problem.lanes.apart.rows() > 0 {
        return Err(Unplaced::Unsupported("keeping ops on parallel lanes unordered"));
    }
    let pinned = |index: u32| problem.items[index as usize].pin;
    let (banks, all) = (problem.banks.len().max(1), ids(problem.items.len()));
    if !does.pins && (banks > 1 || all.iter().any(|&index| pinned(index).is_some())) {
        return Err(Unplaced::Unsupported("fixed offsets and several banks"));
    }
    if all.iter().any(|&index| pinned(index).is_some_and(|pin| usize::from(pin.bank) >= banks)) {
        return Err(Unplaced::Unsupported("a pin to a bank that does not exist"));
    }
    let misaligned = |index: u32| {
        let pin = pinned(index)?;
        let align = problem.banks.get(usize::from(pin.bank)).map_or(Bytes(1), |bank| bank.align);
        (pin.offset?.round_up(align) != pin.offset?).then_some(())
    };
    if all.iter().any(|&index| misaligned(index).is_some()) {
        return Err(Unplaced::Unsupported("a pin to an offset that is not aligned"));
    }
    let (pieces, idle): (Vec<u32>, Vec<u32>) = all.iter().partition(|&&index| {
        let item = &problem.items[index as usize];
        item.from < item.until && item.size > Bytes::ZERO
    });
    let mut places = vec![Place::default(); problem.items.len()];
    // What has no lifetime conflicts with nothing, but its bank must be as high as its end.
    let mut least = 0;
    for index in idle {
        if let Some(pin) = pinned(index) {
            places[index as usize] = Place { bank: pin.bank, offset: pin.offset.unwrap_or_default() };
        }
        let end = places[index as usize].offset + problem.items[index as usize].size;
        least = least.max(end.round_up(problem.align()).0);
    }
    let mut waiting: Vec<u32> = pieces.iter().copied().filter(|&index| pinned(index).is_none()).collect();
    let (mut bound, mut reserved) = (0, 0);
    for bank in 0..banks {
        let number = u16::try_from(bank).unwrap_or(u16::MAX);
        let mut members = waiting;
        members.extend(pieces.iter().filter(|&&index| pinned(index).is_some_and(|pin| pin.bank == number)));
        members.sort_unstable();
        let capacity = problem.banks.get(bank).map_or(Bytes::MAX, |bank| bank.capacity);
        let enough = if banks == 1 { context.enough } else { capacity };
        let mut arena = Arena::new(problem, bank, &members, enough);
        if banks == 1 {
            arena.bound = arena.bound.max(least);
            arena.enough = arena.enough.max(least);
        }
        check_pins(&arena)?;
        let packing = pack(&arena)?;
        let limit = if banks == 1 { u64::MAX - 1 } else { capacity.0 };
        waiting = Vec::new();
        for (piece, &index) in members.iter().enumerate() {
            let offset = packing.offsets[piece];
            if offset.saturating_add(arena.pieces[piece].size) <= limit {
                places[index as usize] = Place { bank: number, offset: Bytes(offset) };
            } else if pinned(index).is_some() || bank + 1 == banks {
                return Err(Unplaced::TooSmall {
                    needed: Bytes(packing.height),
                    proved: banks == 1
                        || (bank == 0 && pinned(index).is_some_and(|pin| pin.offset.is_some())),
                });
            } else {
                waiting.push(index);
            }
        }
        if bank == 0 {
            (bound, reserved) = (if banks == 1 { packing.bound } else { 0 }, packing.reserved);
        }
    }
    let height = problem.height(&places);
    if banks > 1 {
        bound = in_bank_zero(problem).min(height.0);
        reserved = height.0;
    }
    let bound = Bytes(bound).min(height);
    Ok(Placement { places, height, bound, reserved: Bytes(reserved).max(height) })
}

/// A bound on the height of bank 0 where there are others: what is pinned there, and what the others cannot
/// hold even if they were filled without a gap.
fn in_bank_zero(problem: &Problem) -> u64 {
    let pinned = Problem {
        items: problem
            .items
            .iter()
            .filter(|item| item.pin.is_some_and(|pin| pin.bank == 0))
            .copied()
            .collect(),
        banks: problem.banks.clone(),
        ..Problem::default()
    };
    let elsewhere: Bytes = problem.banks.iter().skip(1).map(|bank| bank.capacity).sum();
    let unaligned = problem.banks.iter().all(|bank| bank.align == problem.align());
    let rest = if unaligned { problem.lower_bound().saturating_sub(elsewhere) } else { Bytes::ZERO };
    pinned.lower_bound().max(rest).0
}

/// Refuses pins that contradict each other. Time O(p²) for p pins.
fn check_pins(arena: &Arena) -> Result<(), Unplaced> {
    for (at, &one) in arena.pins.iter().enumerate() {
        let (first, start) = (&arena.pieces[one as usize], arena.pieces[one as usize].pin.unwrap_or(0));
        let Some(end) = start.checked_add(first.size) else {
            return Err(Unplaced::TooSmall { needed: Bytes::MAX, proved: true });
        };
        for &other in &arena.pins[at + 1..] {
            let second = &arena.pieces[other as usize];
            if second.pin.unwrap_or(0) >= end {
                break;
            }
            if first.meets(second) || arena.keeps_apart(one, other) {
                return Err(Unplaced::Unsupported("pins that contradict each other"));
            }
        }
    }
    Ok(())
}
