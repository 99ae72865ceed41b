//! What is there at the start, ids of nothing, and tighter limits.

use memfit_ir::{Bank, BufferId, Bytes, Codec, Content, CopyId, OpId, Tier, ValueId};

use super::Patient;
use crate::Act;

pub(super) fn resident(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let at = p.rng.below(p.draft.resident.len() + 1);
    match p.rng.below(3) {
        0 => p.draft.resident.push(buffer),
        1 if at < p.draft.resident.len() => drop(p.draft.resident.remove(at)),
        _ => *p.draft.resident.get_mut(at)? = buffer,
    }
    Some(())
}

pub(super) fn parked(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.parked.len() + 1);
    if p.rng.chance(50) && at < p.draft.parked.len() {
        p.draft.parked.remove(at);
    } else {
        let copy = p.any_copy()?;
        p.draft.parked.push(copy);
    }
    Some(())
}

pub(super) fn wild_id(p: &mut Patient<'_>) -> Option<()> {
    let far = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let more = [0, 1, u32::MAX - 1_000_000][p.rng.below(3)];
    let buffer = BufferId(far(p.draft.buffers.len()) + more);
    let copy = CopyId(far(p.draft.copies.len()) + more);
    let value = ValueId(far(p.graph.value_count()) + more);
    let wild_op = OpId(far(p.graph.op_count()) + more);
    match p.rng.below(5) {
        0 => p.draft.resident.push(buffer),
        1 => p.draft.parked.push(copy),
        2 => {
            let at = p.any_buffer()?;
            match p.rng.below(3) {
                0 => p.draft.buffers[at.index()].over = Some(buffer),
                1 => p.draft.buffers[at.index()].content = Content::Value(value),
                _ => p.draft.buffers[at.index()].content = Content::Encoded(value, Codec::Zvc),
            }
        }
        _ => {
            let at = p.line(|_| true)?;
            let which = p.rng.below(4);
            match &mut p.draft.lines[at].act {
                Act::Compute { op, .. } if which == 0 => *op = wild_op,
                Act::Compute { workspace, .. } if which == 1 => *workspace = Some(buffer),
                Act::Compute { reads, .. } if which == 2 => *reads.first_mut()? = buffer,
                Act::Compute { writes, .. } => *writes.first_mut()? = buffer,
                Act::Free(freed) => *freed = buffer,
                Act::Discard(freed) => *freed = copy,
                Act::Await(tag) => *tag = u32::MAX,
                Act::Offload { from, .. } | Act::Encode { from, .. } if which < 2 => *from = buffer,
                Act::Fetch { from, .. } if which < 2 => *from = copy,
                Act::Offload { to, .. } => *to = copy,
                Act::Fetch { to, .. } | Act::Encode { to, .. } | Act::Decode { to, .. } => *to = buffer,
            }
        }
    }
    Some(())
}

pub(super) fn bank<'p>(p: &'p mut Patient<'_>) -> Option<&'p mut Bank> {
    let at = p.rng.below(p.limits.banks.len());
    p.limits.banks.get_mut(at)
}

pub(super) fn shrink_bank(p: &mut Patient<'_>) -> Option<()> {
    let by = 1 + p.rng.below(16) as u64;
    let bank = bank(p)?;
    bank.capacity = Bytes(bank.capacity.0.checked_sub(by)?);
    Some(())
}

pub(super) fn shrink_tier(p: &mut Patient<'_>) -> Option<()> {
    let less = 1 + p.rng.below(16) as u64;
    let tier = if p.rng.chance(50) { &mut p.limits.host } else { &mut p.limits.disk };
    *tier = Bytes(tier.0.checked_sub(less)?);
    Some(())
}

/// A copy waits on another tier: its transfers are in another queue.
pub(super) fn another_tier(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.copies.len());
    let copy = p.draft.copies.get_mut(at)?;
    copy.tier = if copy.tier == Tier::Host { Tier::Disk } else { Tier::Host };
    (p.limits.host, p.limits.disk) = (Bytes(1 << 40), Bytes(1 << 40));
    Some(())
}

pub(super) fn no_lossy(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.limits.lossy.len());
    if at < p.limits.lossy.len() {
        p.limits.lossy.remove(at);
        return Some(());
    }
    None
}

pub(super) fn no_replay(p: &mut Patient<'_>) -> Option<()> {
    std::mem::replace(&mut p.limits.replays_random, false).then_some(())
}

pub(super) fn align(p: &mut Patient<'_>) -> Option<()> {
    let align = Bytes([3, 8, 32, 128][p.rng.below(4)]);
    bank(p)?.align = align;
    Some(())
}

pub(super) fn fewer_lanes(p: &mut Patient<'_>) -> Option<()> {
    p.limits.lanes = p.limits.lanes.checked_sub(1)?;
    Some(())
}
