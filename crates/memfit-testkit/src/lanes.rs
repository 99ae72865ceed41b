//! Awaits: puts the steps of a draft on lanes and makes every step wait for those it depends on.

use memfit_ir::{BufferId, Bytes, CopyId, Effect, Graph, OpId, Tier};

use crate::Rng;
use crate::draft::{Act, Draft, Line};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Buffer(BufferId),
    Copy(CopyId),
    /// The order of effects: seeded, or once and collective.
    Order(bool),
    /// Where the numbers of a seeded op begin.
    Numbers(OpId),
}

/// A line that is done.
struct Past {
    tag: u32,
    touched: Vec<(What, bool)>,
    /// Lane or queue it ran on.
    thread: usize,
    /// How much of each thread has happened when it is complete.
    clock: Vec<usize>,
}

/// What a line touches, and whether it changes it.
fn touches(draft: &Draft, graph: &Graph, act: &Act, first: bool) -> Vec<(What, bool)> {
    let mut touched: Vec<(What, bool)> = act.reads().map(|buffer| (What::Buffer(buffer), false)).collect();
    for buffer in act.fills() {
        touched.push((What::Buffer(buffer), true));
        touched.extend(draft.buffers[buffer.index()].over.map(|over| (What::Buffer(over), true)));
    }
    match *act {
        Act::Compute { op, .. } => match graph.op(op).effect {
            Effect::Seeded if first => touched.extend([(What::Order(true), true), (What::Numbers(op), true)]),
            Effect::Seeded => touched.push((What::Numbers(op), false)),
            Effect::Once | Effect::Collective if first => touched.push((What::Order(false), true)),
            Effect::Pure | Effect::Once | Effect::Collective => {}
        },
        Act::Free(buffer) => touched.push((What::Buffer(buffer), true)),
        Act::Offload { to, .. } => touched.push((What::Copy(to), true)),
        Act::Fetch { from, .. } => touched.push((What::Copy(from), false)),
        Act::Discard(copy) => touched.push((What::Copy(copy), true)),
        _ => {}
    }
    touched
}

fn conflict(draft: &Draft, a: &[(What, bool)], b: &[(What, bool)]) -> bool {
    let range = |buffer: BufferId| {
        let place = draft.places[buffer.index()];
        (place.bank, place.offset, place.offset + draft.buffers[buffer.index()].size)
    };
    let meet = |a: What, b: What| match (a, b) {
        (What::Buffer(a), What::Buffer(b)) if a != b => {
            let (a, b) = (range(a), range(b));
            a.0 == b.0 && a.1 < b.2 && b.1 < a.2 && a.2 > a.1 && b.2 > b.1
        }
        _ => a == b,
    };
    a.iter().any(|&(what, writes)| b.iter().any(|&(other, wrote)| (writes || wrote) && meet(what, other)))
}

/// Moves the lines of `draft`, which has places, onto `lanes` lanes and adds the awaits that keep every
/// conflicting pair of lines in order. A draft on one lane without transfers needs none.
pub(crate) fn schedule(draft: &mut Draft, graph: &Graph, lanes: u16, rng: &mut Rng) {
    let lanes = lanes.max(1);
    let threads = usize::from(lanes) + 2 * Tier::ALL.len();
    let mut clocks = vec![vec![0usize; threads]; threads];
    let mut past: Vec<Past> = Vec::new();
    let mut ran = vec![false; graph.op_count()];
    let mut lane = 0;
    for mut line in std::mem::take(&mut draft.lines) {
        if rng.chance(30) {
            lane = u16::try_from(rng.below(usize::from(lanes))).unwrap_or(0);
        }
        line.lane = lane;
        let first = match line.act {
            Act::Compute { op, .. } => !std::mem::replace(&mut ran[op.index()], true),
            _ => false,
        };
        let own = usize::from(lane);
        let thread = match line.act {
            Act::Offload { to, .. } => usize::from(lanes) + 2 * draft.copies[to.index()].tier.index(),
            Act::Fetch { from, .. } => usize::from(lanes) + 2 * draft.copies[from.index()].tier.index() + 1,
            _ => own,
        };
        let touched = touches(draft, graph, &line.act, first);
        for Past { tag, touched: other, thread: by, clock } in past.iter().rev() {
            let seen = clocks[own][*by].max(clocks[thread][*by]);
            if seen < clock[*by] && conflict(draft, &touched, other) {
                join(&mut clocks[own], clock);
                let wait = draft.line(Act::Await(*tag), lane);
                draft.lines.push(wait);
            }
        }
        // Waiting for more than needed is allowed.
        if let Some(Past { tag, clock, .. }) = past.get(rng.below(past.len() * 10)) {
            join(&mut clocks[own], clock);
            let wait = draft.line(Act::Await(*tag), lane);
            draft.lines.push(wait);
        }
        let issued = clocks[own].clone();
        join(&mut clocks[thread], &issued);
        clocks[thread][thread] += 1;
        past.push(Past { tag: line.tag, touched, thread, clock: clocks[thread].clone() });
        draft.lines.push(line);
    }
    if rng.chance(50) {
        let unseen = past.iter().filter(|past| clocks[0][past.thread] < past.clock[past.thread]);
        let unseen: Vec<u32> = unseen.map(|past| past.tag).collect();
        for tag in unseen {
            let wait: Line = draft.line(Act::Await(tag), 0);
            draft.lines.push(wait);
        }
    }
}

fn join(into: &mut [usize], other: &[usize]) {
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

/// The most bytes of copies in `tier` that `plan` holds at once, in the order of issue.
#[must_use]
pub fn peak_of_copies(plan: &memfit_ir::Plan, tier: Tier) -> Bytes {
    tier_peak(&Draft::of(plan), tier)
}

/// The most bytes that live copies in `tier` take, counted in issue order.
#[must_use]
pub(crate) fn tier_peak(draft: &Draft, tier: Tier) -> Bytes {
    let size = |copy: CopyId| {
        let copy = draft.copies[copy.index()];
        if copy.tier == tier { copy.size } else { Bytes::ZERO }
    };
    let mut now: Bytes = draft.parked.iter().map(|&copy| size(copy)).sum();
    let mut peak = now;
    for line in &draft.lines {
        match line.act {
            Act::Offload { to, .. } => now += size(to),
            Act::Discard(copy) => now = now.saturating_sub(size(copy)),
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}
