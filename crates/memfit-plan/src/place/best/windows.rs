//! Large-neighbourhood search: packs again what lies in a window around something too high.
//!
//! To get below a trial height, each piece that ends above it is a culprit. A window is a stretch of
//! sections around a culprit, and perhaps only what lies above some offset in it; the pieces inside are
//! taken out and searched for a packing under the trial height, while all others stay. Windows that succeed
//! remove their culprits; now and then a window without one is packed anew at random, so that the search
//! gets out of dead ends. When no culprit is left the trial height is reached, and a lower one is tried.

use rayon::prelude::*;

use crate::place::arena::{Arena, Packing, Piece};
use crate::place::exact::{self, Instance, Part};
use crate::place::rank::{Order, Random};

/// Windows tried at once; those that succeed apart from each other are all taken.
const BATCH: u64 = 8;

const ORDERS: [Order; 6] = [Order::Wat, Order::Twa, Order::Atw, Order::Taw, Order::Birth, Order::Size];

/// Fixed pieces above gaps that a window may have.
const HANGING: usize = 120;

/// What a window came to.
struct Window {
    lo: u32,
    hi: u32,
    /// New offsets of pieces.
    moves: Vec<(u32, u64)>,
    found: bool,
    work: u64,
}

/// Lowers `best` until that is enough, the budget of work is used up, or `stop`. Returns the work done.
pub(crate) fn improve(
    arena: &Arena,
    best: &mut Packing,
    budget: u64,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> u64 {
    let target = arena.enough.max(best.bound);
    let mut work = 0;
    let mut halvings = 1u32;
    let mut round = 0u64;
    let mut offsets = best.offsets.clone();
    while best.height > target && work < budget && !stop() {
        let trial = best.height - ((best.height - target) >> halvings).max(1);
        offsets.clone_from(&best.offsets);
        let patience = 100 << halvings.min(4);
        let mut misses = 0;
        let mut fewest = usize::MAX;
        loop {
            let culprits = culprits(arena, &offsets, trial);
            if culprits.is_empty() {
                *best = Packing { bound: best.bound, ..arena.packing(offsets.clone()) };
                halvings = halvings.saturating_sub(1).max(1);
                break;
            }
            if misses >= patience || work >= budget || stop() {
                halvings = (halvings + 1).min(63);
                break;
            }
            let windows: Vec<Window> = (0..BATCH)
                .into_par_iter()
                .map(|at| {
                    let mut random = Random::new(seed ^ (round * BATCH + at + 1).wrapping_mul(0x2545_f491));
                    let mut around = culprits[random.index(culprits.len())];
                    if at % 2 == 1 {
                        let other = u32::try_from(random.index(arena.len())).unwrap_or(0);
                        if arena.pieces[around as usize].meets(&arena.pieces[other as usize]) || at % 4 == 1 {
                            around = other;
                        }
                    }
                    window(arena, &offsets, trial, around, &mut random, stop)
                })
                .collect();
            round += 1;
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for window in windows {
                work += window.work;
                if window.found && taken.iter().all(|&(lo, hi)| window.hi <= lo || hi <= window.lo) {
                    taken.push((window.lo, window.hi));
                    for (piece, offset) in window.moves {
                        offsets[piece as usize] = offset;
                    }
                }
            }
            work += 20 * arena.len() as u64;
            let left = culprits_count(arena, &offsets, trial);
            misses = if left < fewest {
                fewest = left;
                0
            } else {
                misses + 1
            };
        }
    }
    work
}

fn ends_above(arena: &Arena, offsets: &[u64], piece: u32, trial: u64) -> bool {
    offsets[piece as usize].saturating_add(arena.pieces[piece as usize].size) > trial
}

fn culprits(arena: &Arena, offsets: &[u64], trial: u64) -> Vec<u32> {
    let mut culprits = arena.ids();
    culprits.retain(|&piece| ends_above(arena, offsets, piece, trial));
    culprits
}

fn culprits_count(arena: &Arena, offsets: &[u64], trial: u64) -> usize {
    arena.ids().iter().filter(|&&piece| ends_above(arena, offsets, piece, trial)).count()
}

/// Packs the surroundings of piece `around` under `trial`.
fn window(
    arena: &Arena,
    offsets: &[u64],
    trial: u64,
    around: u32,
    random: &mut Random,
    stop: &(dyn Fn() -> bool + Sync),
) -> Window {
    let center = &arena.pieces[around as usize];
    let sections = u32::try_from(arena.load.len()).unwrap_or(u32::MAX);
    let most = 4usize << random.below(6);
    let wanted = 6 + random.index(most);
    let floor = match random.below(3) {
        0 => 0,
        _ => random.below(offsets[around as usize].saturating_add(1)),
    };
    let inside = |piece: &Piece, offset: u64, lo: u32, hi: u32| {
        piece.lo >= lo && piece.hi <= hi && offset >= floor && piece.pin.is_none()
    };
    let (mut lo, mut hi) = (center.lo, center.hi);
    let mut step = 1 + center.width() / 4;
    let mut count = 0;
    while count < wanted && (lo > 0 || hi < sections) {
        lo = lo.saturating_sub(u32::try_from(random.below(u64::from(step) + 1)).unwrap_or(0));
        hi = hi.saturating_add(u32::try_from(random.below(u64::from(step) + 1)).unwrap_or(0)).min(sections);
        step = step.saturating_add(step / 2 + 1);
        count = arena
            .pieces
            .iter()
            .zip(offsets)
            .filter(|&(piece, &offset)| inside(piece, offset, lo, hi))
            .count();
    }
    let mut free: Vec<u32> = Vec::new();
    let mut fixed: Vec<u32> = Vec::new();
    for ((piece, &offset), index) in arena.pieces.iter().zip(offsets).zip(0u32..) {
        if inside(piece, offset, lo, hi) {
            free.push(index);
        } else if piece.lo < hi && piece.hi > lo && offset < trial {
            fixed.push(index);
        }
    }
    let mut window = Window { lo, hi, moves: Vec::new(), found: false, work: 40 * arena.len() as u64 };
    if free.len() > 4 * wanted + 100 {
        return window;
    }
    // What lies fixed on the ground is ground; what hangs above a gap stays as a pinned piece.
    fixed.sort_by_key(|&index| offsets[index as usize]);
    let mut least = free.iter().map(|&index| arena.pieces[index as usize].size).min().unwrap_or(0);
    let (mut ground, mut hanging) = settle(arena, offsets, (lo, hi), trial, &fixed, least);
    while hanging.len() > HANGING {
        least = least.saturating_mul(4); // gives up the smaller gaps
        (ground, hanging) = settle(arena, offsets, (lo, hi), trial, &fixed, least);
    }
    let mut parts = hanging;
    for &index in &free {
        let piece = &arena.pieces[index as usize];
        let stretch = &ground[(piece.lo - lo) as usize..(piece.hi - lo) as usize];
        let start = stretch.iter().copied().max().unwrap_or(0);
        parts.push((Some(index), Piece { born: piece.lo, gone: piece.hi, ..*piece }, start));
    }
    let inst = Instance::new(arena, parts);
    let limit = 2 * inst.len() as u64 + 100 * (1 + random.below(5));
    for _ in 0..2 {
        let order = ORDERS[random.index(ORDERS.len())];
        let (found, work) = exact::attempt(&inst, order, trial, limit, random.below(1 << 50), &|| stop());
        window.work += work;
        if let Some(found) = found {
            window.found = true;
            window.moves = inst.names.iter().zip(found).filter_map(|(&name, at)| Some((name?, at))).collect();
            return window;
        }
    }
    window
}

/// The top of what lies fixed on the ground in each section of `[lo, hi)`, where gaps of less than `least`
/// count as ground; and what hangs above larger gaps, clipped to the window, as pinned pieces.
fn settle(
    arena: &Arena,
    offsets: &[u64],
    (lo, hi): (u32, u32),
    trial: u64,
    fixed: &[u32],
    least: u64,
) -> (Vec<u64>, Vec<Part>) {
    let mut ground = vec![0u64; (hi - lo) as usize];
    let mut hanging = Vec::new();
    for &index in fixed {
        let (piece, offset) = (&arena.pieces[index as usize], offsets[index as usize]);
        let (from, until) = (piece.lo.max(lo), piece.hi.min(hi));
        let stretch = &mut ground[(from - lo) as usize..(until - lo) as usize];
        let end = offset.saturating_add(piece.size).min(trial);
        if stretch.iter().all(|&ground| offset.saturating_sub(ground) < least) {
            stretch.fill(end);
        } else {
            let clipped = Piece { born: from, gone: until, size: end - offset, pin: Some(offset), ..*piece };
            hanging.push((None, clipped, offset));
        }
    }
    (ground, hanging)
}
