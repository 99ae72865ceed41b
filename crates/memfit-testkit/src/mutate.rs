//! Ways to spoil a plan, each small. Some of what comes out is still right.

use memfit_ir::{Bank, BufferId, Bytes, Codec, Content, CopyId, Graph, Limits, OpId, Place, ValueId};

use crate::{Act, Draft, Rng};

/// What a mutator works on.
#[derive(Debug)]
pub struct Patient<'a> {
    /// The graph, which stays as it is.
    pub graph: &'a Graph,
    /// The plan.
    pub draft: &'a mut Draft,
    /// What the plan must keep to.
    pub limits: &'a mut Limits,
    /// Where chance comes from.
    pub rng: &'a mut Rng,
}

/// Changes something; `None` if there was nothing of the kind.
pub type Mutator = fn(&mut Patient<'_>) -> Option<()>;

/// Every mutator with its name, in the order of the hammer's table.
pub const MUTATORS: &[(&str, Mutator)] = &[
    ("move buffer", move_buffer),
    ("nudge buffer", nudge_buffer),
    ("alias buffers", alias_buffers),
    ("swap places", swap_places),
    ("change bank", change_bank),
    ("far place", far_place),
    ("short layout", short_layout),
    ("resize buffer", resize_buffer),
    ("resize copy", resize_copy),
    ("claim of buffer", claim_of_buffer),
    ("claim of copy", claim_of_copy),
    ("codec", codec),
    ("drop over", drop_over),
    ("set over", set_over),
    ("drop step", drop_step),
    ("duplicate step", duplicate_step),
    ("move step", move_step),
    ("swap steps", swap_steps),
    ("drop free", drop_free),
    ("early free", early_free),
    ("drop compute", drop_compute),
    ("repeat compute", repeat_compute),
    ("change op", change_op),
    ("retarget read", retarget_read),
    ("swap reads", swap_reads),
    ("retarget write", retarget_write),
    ("swap writes", swap_writes),
    ("drop operand", drop_operand),
    ("add operand", add_operand),
    ("drop workspace", drop_workspace),
    ("borrow workspace", borrow_workspace),
    ("algorithm", algorithm),
    ("retarget transfer", retarget_transfer),
    ("drop transfer", drop_transfer),
    ("late transfer", late_transfer),
    ("drop await", drop_await),
    ("retarget await", retarget_await),
    ("late await", late_await),
    ("lane", lane),
    ("await on lane", await_on_lane),
    ("resident", resident),
    ("parked", parked),
    ("wild id", wild_id),
    ("shrink bank", shrink_bank),
    ("shrink host", shrink_host),
    ("no lossy", no_lossy),
    ("no replay", no_replay),
    ("align", align),
    ("fewer lanes", fewer_lanes),
];

impl Patient<'_> {
    fn line(&mut self, wanted: impl Fn(&Act) -> bool) -> Option<usize> {
        let lines = self.draft.lines.iter().enumerate();
        let found: Vec<usize> = lines.filter(|(_, line)| wanted(&line.act)).map(|(at, _)| at).collect();
        self.rng.pick(&found)
    }

    fn any_buffer(&mut self) -> Option<BufferId> {
        let count = self.draft.buffers.len();
        (count > 0).then(|| BufferId::at(self.rng.below(count)))
    }

    fn any_copy(&mut self) -> Option<CopyId> {
        let count = self.draft.copies.len();
        (count > 0).then(|| CopyId::at(self.rng.below(count)))
    }

    fn any_value(&mut self) -> ValueId {
        ValueId::at(self.rng.below(self.graph.value_count()))
    }

    /// Another buffer that claims the same as `buffer`, in half of the cases, or any.
    fn like(&mut self, buffer: BufferId) -> Option<BufferId> {
        let content = self.draft.buffers.get(buffer.index())?.content;
        let all = self.draft.buffers.iter().enumerate();
        let same: Vec<BufferId> = all
            .filter(|(at, other)| other.content == content && *at != buffer.index())
            .map(|(at, _)| BufferId::at(at))
            .collect();
        if self.rng.chance(50) && !same.is_empty() { self.rng.pick(&same) } else { self.any_buffer() }
    }

    fn place(&mut self) -> Option<&mut Place> {
        let count = self.draft.places.len();
        let at = self.rng.below(count);
        self.draft.places.get_mut(at)
    }

    fn align(&self, place: Place) -> u64 {
        self.limits.banks.get(usize::from(place.bank)).map_or(1, |bank| bank.align.0.max(1))
    }
}

fn is_compute(act: &Act) -> bool {
    matches!(act, Act::Compute { .. })
}

fn is_transfer(act: &Act) -> bool {
    matches!(act, Act::Offload { .. } | Act::Fetch { .. } | Act::Encode { .. } | Act::Decode { .. })
}

fn move_buffer(p: &mut Patient<'_>) -> Option<()> {
    let slots = 8;
    let slot = p.rng.below(slots) as u64;
    let place = *p.place()?;
    let align = p.align(place);
    let capacity = p.limits.banks.get(usize::from(place.bank))?.capacity.0;
    let offset = capacity * slot / slots as u64 / align * align;
    *p.place()? = Place { offset: Bytes(offset), ..place };
    Some(())
}

fn nudge_buffer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.places.len());
    let place = *p.draft.places.get(at)?;
    let by = if p.rng.chance(80) { p.align(place) } else { 1 };
    let offset = if p.rng.chance(50) { place.offset.0 + by } else { place.offset.0.checked_sub(by)? };
    p.draft.places[at].offset = Bytes(offset);
    Some(())
}

fn alias_buffers(p: &mut Patient<'_>) -> Option<()> {
    let place = *p.place()?;
    *p.place()? = place;
    Some(())
}

fn swap_places(p: &mut Patient<'_>) -> Option<()> {
    let (a, b) = (p.any_buffer()?, p.any_buffer()?);
    let (at_a, at_b) = (*p.draft.places.get(a.index())?, *p.draft.places.get(b.index())?);
    p.draft.places[a.index()] = at_b;
    p.draft.places[b.index()] = at_a;
    Some(())
}

fn change_bank(p: &mut Patient<'_>) -> Option<()> {
    let bank = u16::try_from(p.rng.below(p.limits.banks.len() + 1)).ok()?;
    p.place()?.bank = bank;
    Some(())
}

fn far_place(p: &mut Patient<'_>) -> Option<()> {
    let offset = if p.rng.chance(30) { u64::MAX - 15 } else { 1 << p.rng.below(64) };
    p.place()?.offset = Bytes(offset);
    Some(())
}

fn short_layout(p: &mut Patient<'_>) -> Option<()> {
    if p.rng.chance(50) {
        p.draft.places.pop().map(drop)
    } else {
        p.draft.places.push(Place::default());
        Some(())
    }
}

fn other_size(rng: &mut Rng, size: Bytes) -> Bytes {
    match rng.below(5) {
        0 => Bytes(size.0 + 1),
        1 => Bytes(size.0.saturating_sub(1)),
        2 => Bytes(size.0 / 2),
        3 => Bytes(size.0 + 16),
        _ => Bytes::ZERO,
    }
}

fn resize_buffer(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let size = other_size(p.rng, p.draft.buffers[buffer.index()].size);
    p.draft.buffers[buffer.index()].size = size;
    Some(())
}

fn resize_copy(p: &mut Patient<'_>) -> Option<()> {
    let copy = p.any_copy()?;
    let size = other_size(p.rng, p.draft.copies[copy.index()].size);
    p.draft.copies[copy.index()].size = size;
    Some(())
}

fn other_content(p: &mut Patient<'_>, content: Content) -> Content {
    let value = p.any_value();
    match (content, p.rng.below(4)) {
        (_, 0) => Content::Workspace,
        (Content::Encoded(value, _), 1) => Content::Value(value),
        (Content::Encoded(_, codec), _) => Content::Encoded(value, codec),
        (Content::Value(value), 1) => Content::Encoded(value, Codec::Zvc),
        _ => Content::Value(value),
    }
}

fn claim_of_buffer(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let content = other_content(p, p.draft.buffers[buffer.index()].content);
    p.draft.buffers[buffer.index()].content = content;
    Some(())
}

fn claim_of_copy(p: &mut Patient<'_>) -> Option<()> {
    let copy = p.any_copy()?;
    let content = other_content(p, p.draft.copies[copy.index()].content);
    p.draft.copies[copy.index()].content = content;
    Some(())
}

fn codec(p: &mut Patient<'_>) -> Option<()> {
    let buffers = p.draft.buffers.iter_mut().map(|buffer| &mut buffer.content);
    let all = buffers.chain(p.draft.copies.iter_mut().map(|copy| &mut copy.content));
    let mut coded: Vec<&mut Content> =
        all.filter(|content| matches!(content, Content::Encoded(..))).collect();
    let at = p.rng.below(coded.len());
    let content = coded.get_mut(at)?;
    if let Content::Encoded(_, codec) = content {
        *codec = Codec::ALL[p.rng.below(Codec::ALL.len())].0;
    }
    Some(())
}

fn drop_over(p: &mut Patient<'_>) -> Option<()> {
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

fn set_over(p: &mut Patient<'_>) -> Option<()> {
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

fn drop_step(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|_| true)?;
    p.draft.lines.remove(at);
    Some(())
}

fn duplicate_step(p: &mut Patient<'_>) -> Option<()> {
    let (at, to) = (p.line(|_| true)?, p.line(|_| true)?);
    let (act, lane) = (p.draft.lines[at].act.clone(), p.draft.lines[at].lane);
    let line = p.draft.line(act, lane);
    p.draft.lines.insert(to, line);
    Some(())
}

fn move_line(p: &mut Patient<'_>, at: usize) -> Option<()> {
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

fn move_step(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|_| true)?;
    move_line(p, at)
}

fn swap_steps(p: &mut Patient<'_>) -> Option<()> {
    let (a, b) = (p.line(|_| true)?, p.line(|_| true)?);
    p.draft.lines.swap(a, b);
    Some(())
}

fn drop_free(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Free(_) | Act::Discard(_)))?;
    p.draft.lines.remove(at);
    Some(())
}

fn early_free(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Free(_) | Act::Discard(_)))?;
    let line = p.draft.lines.remove(at);
    let to = if p.rng.chance(70) { at.saturating_sub(1 + p.rng.below(2)) } else { p.rng.below(at + 1) };
    p.draft.lines.insert(to, line);
    Some(())
}

fn drop_compute(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    p.draft.lines.remove(at);
    Some(())
}

/// Runs an op once more, into buffers of its own past the end of the first bank.
fn repeat_compute(p: &mut Patient<'_>) -> Option<()> {
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

fn change_op(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let other = OpId::at(p.rng.below(p.graph.op_count()));
    let Act::Compute { op, .. } = &mut p.draft.lines[at].act else { return None };
    *op = other;
    Some(())
}

fn operand(
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

fn retarget_read(p: &mut Patient<'_>) -> Option<()> {
    operand(p, false, |list, at, other| list[at] = other)
}

fn retarget_write(p: &mut Patient<'_>) -> Option<()> {
    operand(p, true, |list, at, other| list[at] = other)
}

fn swap_reads(p: &mut Patient<'_>) -> Option<()> {
    operand(p, false, |list, at, _| list.swap(at, 0))
}

fn swap_writes(p: &mut Patient<'_>) -> Option<()> {
    operand(p, true, |list, at, _| list.swap(at, 0))
}

fn drop_operand(p: &mut Patient<'_>) -> Option<()> {
    let of_writes = p.rng.chance(50);
    operand(p, of_writes, |list, at, _| {
        list.remove(at);
    })
}

fn add_operand(p: &mut Patient<'_>) -> Option<()> {
    let of_writes = p.rng.chance(50);
    operand(p, of_writes, |list, at, other| list.insert(at, other))
}

fn drop_workspace(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(|act| matches!(act, Act::Compute { workspace: Some(_), .. }))?;
    let Act::Compute { workspace, .. } = &mut p.draft.lines[at].act else { return None };
    *workspace = None;
    Some(())
}

fn borrow_workspace(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let buffer = p.any_buffer()?;
    let Act::Compute { workspace, .. } = &mut p.draft.lines[at].act else { return None };
    *workspace = Some(buffer);
    Some(())
}

fn algorithm(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_compute)?;
    let Act::Compute { op, algorithm, .. } = &mut p.draft.lines[at].act else { return None };
    if op.index() >= p.graph.op_count() {
        return None;
    }
    let count = p.graph.op(*op).algorithms.len();
    *algorithm = u16::try_from(p.rng.below(count + 2)).ok()?;
    Some(())
}

fn retarget_transfer(p: &mut Patient<'_>) -> Option<()> {
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

fn drop_transfer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_transfer)?;
    p.draft.lines.remove(at);
    Some(())
}

fn late_transfer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_transfer)?;
    move_line(p, at)
}

fn is_await(act: &Act) -> bool {
    matches!(act, Act::Await(_))
}

fn drop_await(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    p.draft.lines.remove(at);
    Some(())
}

fn retarget_await(p: &mut Patient<'_>) -> Option<()> {
    let (at, to) = (p.line(is_await)?, p.line(|_| true)?);
    let to = if p.rng.chance(50) { at.saturating_sub(1 + p.rng.below(4)) } else { to };
    p.draft.lines[at].act = Act::Await(p.draft.lines[to].tag);
    Some(())
}

fn late_await(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    let line = p.draft.lines.remove(at);
    let to = (at + 1 + p.rng.below(4)).min(p.draft.lines.len());
    p.draft.lines.insert(to, line);
    Some(())
}

fn lane(p: &mut Patient<'_>) -> Option<()> {
    if p.limits.lanes == 1 && p.rng.chance(80) {
        p.limits.lanes = 2;
    }
    let at = p.line(|_| true)?;
    p.draft.lines[at].lane = u16::try_from(p.rng.below(usize::from(p.limits.lanes) + 1)).ok()?;
    Some(())
}

fn await_on_lane(p: &mut Patient<'_>) -> Option<()> {
    let at = p.line(is_await)?;
    p.draft.lines[at].lane = u16::try_from(p.rng.below(usize::from(p.limits.lanes))).ok()?;
    Some(())
}

fn resident(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let at = p.rng.below(p.draft.resident.len() + 1);
    match p.rng.below(3) {
        0 => p.draft.resident.push(buffer),
        1 if at < p.draft.resident.len() => drop(p.draft.resident.remove(at)),
        _ => *p.draft.resident.get_mut(at)? = buffer,
    }
    Some(())
}

fn parked(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.parked.len() + 1);
    if p.rng.chance(50) && at < p.draft.parked.len() {
        p.draft.parked.remove(at);
    } else {
        let copy = p.any_copy()?;
        p.draft.parked.push(copy);
    }
    Some(())
}

fn wild_id(p: &mut Patient<'_>) -> Option<()> {
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

fn bank<'p>(p: &'p mut Patient<'_>) -> Option<&'p mut Bank> {
    let at = p.rng.below(p.limits.banks.len());
    p.limits.banks.get_mut(at)
}

fn shrink_bank(p: &mut Patient<'_>) -> Option<()> {
    let by = 1 + p.rng.below(16) as u64;
    let bank = bank(p)?;
    bank.capacity = Bytes(bank.capacity.0.checked_sub(by)?);
    Some(())
}

fn shrink_host(p: &mut Patient<'_>) -> Option<()> {
    p.limits.host = Bytes(p.limits.host.0.checked_sub(1 + p.rng.below(16) as u64)?);
    Some(())
}

fn no_lossy(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.limits.lossy.len());
    if at < p.limits.lossy.len() {
        p.limits.lossy.remove(at);
        return Some(());
    }
    None
}

fn no_replay(p: &mut Patient<'_>) -> Option<()> {
    std::mem::replace(&mut p.limits.replays_random, false).then_some(())
}

fn align(p: &mut Patient<'_>) -> Option<()> {
    let align = Bytes([3, 8, 32, 128][p.rng.below(4)]);
    bank(p)?.align = align;
    Some(())
}

fn fewer_lanes(p: &mut Patient<'_>) -> Option<()> {
    p.limits.lanes = p.limits.lanes.checked_sub(1)?;
    Some(())
}
