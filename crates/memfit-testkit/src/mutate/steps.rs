//! Which steps there are, in which order, and what computes read and write.

use memfit_ir::{BufferId, OpId, Place};

use super::{Patient, is_compute};
use crate::Act;

pub(super) fn drop_over(p: &mut Patient<'_>) -> Option<()> {
    let all = p.draft.buffers.iter().enumerate().filter(|(_, buffer)| buffer.over.is_some());
    let found: Vec<usize> = all.map(|(at, _)| at).collect();
    let at = p.rng.pick(&found)?;
    let over = p.draft.buffers[at].over.take();
    if p.rng.chance(40) {
        // In place, but nobody says so: free the old buffer on either side of the step.
        let line = p.draft.lines.iter().position(|line| line.act.fills().any(|b| b.index() == at))?;
        let free = p.draft.line(Act::Free(over?), p.draft.lines[line].lane);
        let line = if p.rng.chance(50) { line } else { line + 1 };
        p.draft.lines.insert(line, free);
    }
    Some(())
}

pub(super) fn set_over(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let Act::Compute { reads, writes, .. } = &p.draft.lines[at].act else { return None };
    let (read, write) = (p.rng.pick(reads)?, p.rng.pick(writes)?);
    let frees = Act::Free(read);
    p.draft.buffers.get_mut(write.index())?.over = Some(read);
    if p.rng.chance(80) {
        let place = *p.draft.places.get(read.index())?;
        *p.draft.places.get_mut(write.index())? = place;
    }
    if p.rng.chance(80) {
        p.draft.lines.retain(|line| line.act != frees);
    }
    Some(())
}

pub(super) fn drop_step(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|_| true)?;
    p.draft.lines.remove(at);
    Some(())
}

pub(super) fn duplicate_step(p: &mut Patient<'_>) -> Option<()> {
    let (at, to) = (p.line(|_| true)?, p.line(|_| true)?);
    let (act, lane) = (p.draft.lines[at].act.clone(), p.draft.lines[at].lane);
    let line = p.draft.line(act, lane);
    p.draft.lines.insert(to, line);
    Some(())
}

pub(super) fn move_line(p: &mut Patient<'_>, at: usize) -> Option<()> {
    let line = p.draft.lines.remove(at);
    let to = if p.rng.chance(60) {
        let near = at + p.rng.below(7);
        near.saturating_sub(3).min(p.draft.lines.len())
    } else {
        p.rng.below(p.draft.lines.len() + 1)
    };
    p.draft.lines.insert(to, line);
    Some(())
}

pub(super) fn move_step(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|_| true)?;
    move_line(p, at)
}

pub(super) fn swap_steps(p: &mut Patient<'_>) -> Option<()> {
    let (a, b) = (p.line(|_| true)?, p.line(|_| true)?);
    p.draft.lines.swap(a, b);
    Some(())
}

pub(super) fn drop_free(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Free(_) | Act::Discard(_)))?;
    p.draft.lines.remove(at);
    Some(())
}

pub(super) fn early_free(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Free(_) | Act::Discard(_)))?;
    let line = p.draft.lines.remove(at);
    let to = if p.rng.chance(70) { at.saturating_sub(1 + p.rng.below(2)) } else { p.rng.below(at + 1) };
    p.draft.lines.insert(to, line);
    Some(())
}

pub(super) fn drop_compute(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    p.draft.lines.remove(at);
    Some(())
}

/// Runs an op once more, into buffers of its own past the end of the first bank.
pub(super) fn repeat_compute(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let lane = p.draft.lines[at].lane;
    let Act::Compute { op, algorithm, reads, writes, workspace } = p.draft.lines[at].act.clone() else {
        return None;
    };
    let bank = p.limits.banks.first()?;
    let (align, mut offset) = (bank.align, bank.capacity);
    let mut again = |p: &mut Patient<'_>, buffer: BufferId| {
        let old = *p.draft.buffers.get(buffer.index())?;
        offset = offset.round_up(align);
        p.draft.places.push(Place { bank: 0, offset });
        offset += old.size;
        Some(p.draft.buffer(old.content, old.size, None))
    };
    let writes = writes.into_iter().map(|buffer| again(p, buffer)).collect::<Option<Vec<_>>>()?;
    let workspace = match workspace {
        Some(buffer) => Some(again(p, buffer)?),
        None => None,
    };
    p.limits.banks[0].capacity = offset;
    let line = p.draft.line(Act::Compute { op, algorithm, reads, writes, workspace }, lane);
    let to = if p.rng.chance(50) { at + 1 } else { p.rng.below(p.draft.lines.len() + 1) };
    p.draft.lines.insert(to, line);
    Some(())
}

pub(super) fn change_op(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let other = OpId::at(p.rng.below(p.graph.op_count()));
    let Act::Compute { op, .. } = &mut p.draft.lines[at].act else { return None };
    *op = other;
    Some(())
}

pub(super) fn operand(
    p: &mut Patient<'_>,
    of_writes: bool,
    change: fn(&mut Vec<BufferId>, usize, BufferId),
) -> Option<()> {
    let at = p.line(is_compute)?;
    let Act::Compute { reads, writes, .. } = &p.draft.lines[at].act else { return None };
    let list = if of_writes { writes } else { reads };
    let position = p.rng.below(list.len());
    let old = *list.get(position)?;
    let other = p.like(old)?;
    let Act::Compute { reads, writes, .. } = &mut p.draft.lines[at].act else { return None };
    change(if of_writes { writes } else { reads }, position, other);
    Some(())
}

pub(super) fn retarget_read(p: &mut Patient<'_>) -> Option<()> {
    operand(p, false, |list, at, other| list[at] = other)
}

pub(super) fn retarget_write(p: &mut Patient<'_>) -> Option<()> {
    operand(p, true, |list, at, other| list[at] = other)
}

pub(super) fn swap_reads(p: &mut Patient<'_>) -> Option<()> {
    operand(p, false, |list, at, _| list.swap(at, 0))
}

pub(super) fn swap_writes(p: &mut Patient<'_>) -> Option<()> {
    operand(p, true, |list, at, _| list.swap(at, 0))
}

pub(super) fn drop_operand(p: &mut Patient<'_>) -> Option<()> {
    let of_writes = p.rng.chance(50);
    operand(p, of_writes, |list, at, _| {
        list.remove(at);
    })
}

pub(super) fn add_operand(p: &mut Patient<'_>) -> Option<()> {
    let of_writes = p.rng.chance(50);
    operand(p, of_writes, |list, at, other| list.insert(at, other))
}

pub(super) fn drop_workspace(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Compute { workspace: Some(_), .. }))?;
    let Act::Compute { workspace, .. } = &mut p.draft.lines[at].act else { return None };
    *workspace = None;
    Some(())
}

pub(super) fn borrow_workspace(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let buffer = p.any_buffer()?;
    let Act::Compute { workspace, .. } = &mut p.draft.lines[at].act else { return None };
    *workspace = Some(buffer);
    Some(())
}

pub(super) fn algorithm(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let Act::Compute { op, algorithm, .. } = &mut p.draft.lines[at].act else { return None };
    if op.index() >= p.graph.op_count() {
        return None;
    }
    let count = p.graph.op(*op).algorithms.len();
    *algorithm = u16::try_from(p.rng.below(count + 2)).ok()?;
    Some(())
}
