//! Transfers, awaits and lanes.

use memfit_ir::{BufferId, CopyId};

use super::steps::move_line;
use super::{Patient, is_transfer};
use crate::Act;

pub(super) fn retarget_transfer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| is_transfer(act) || matches!(act, Act::Free(_) | Act::Discard(_)))?;
    let old = match &p.draft.lines[at].act {
        Act::Offload { from, .. } | Act::Encode { from, .. } | Act::Decode { from, .. } => *from,
        Act::Fetch { to, .. } => *to,
        Act::Free(buffer) => *buffer,
        _ => BufferId(0),
    };
    let (buffer, copy, side) = (p.like(old)?, p.any_copy().unwrap_or(CopyId(0)), p.rng.chance(50));
    match &mut p.draft.lines[at].act {
        Act::Offload { from, .. } if side => *from = buffer,
        Act::Offload { to, .. } => *to = copy,
        Act::Fetch { to, .. } if side => *to = buffer,
        Act::Fetch { from, .. } => *from = copy,
        Act::Encode { from, .. } | Act::Decode { from, .. } if side => *from = buffer,
        Act::Encode { to, .. } | Act::Decode { to, .. } => *to = buffer,
        Act::Free(freed) => *freed = buffer,
        Act::Discard(freed) => *freed = copy,
        _ => return None,
    }
    Some(())
}

pub(super) fn drop_transfer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_transfer)?;
    p.draft.lines.remove(at);
    Some(())
}

pub(super) fn late_transfer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_transfer)?;
    move_line(p, at)
}

pub(super) fn is_await(act: &Act) -> bool {
    matches!(act, Act::Await(_))
}

pub(super) fn drop_await(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    p.draft.lines.remove(at);
    Some(())
}

pub(super) fn retarget_await(p: &mut Patient<'_>) -> Option<()> {
    let (at, to) = (p.line(is_await)?, p.line(|_| true)?);
    let to = if p.rng.chance(50) { at.saturating_sub(1 + p.rng.below(4)) } else { to };
    p.draft.lines[at].act = Act::Await(p.draft.lines[to].tag);
    Some(())
}

pub(super) fn late_await(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    let line = p.draft.lines.remove(at);
    let to = (at + 1 + p.rng.below(4)).min(p.draft.lines.len());
    p.draft.lines.insert(to, line);
    Some(())
}

pub(super) fn lane(p: &mut Patient<'_>) -> Option<()> {
    if p.limits.lanes == 1 && p.rng.chance(80) {
        p.limits.lanes = 2;
    }
    let at = p.line(|_| true)?;
    p.draft.lines[at].lane = u16::try_from(p.rng.below(usize::from(p.limits.lanes) + 1)).ok()?;
    Some(())
}

pub(super) fn await_on_lane(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    p.draft.lines[at].lane = u16::try_from(p.rng.below(usize::from(p.limits.lanes))).ok()?;
    Some(())
}
