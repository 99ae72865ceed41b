//! Places for programs of every step kind: first fit, so that good plans exist before any strategy does.

use memfit_ir::{Bank, Bytes, Place};

use crate::Rng;
use crate::rewrite::Rough;

/// A group of buffers at one place: when it is there, and how large.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Half-open ranges of time; sources are there from time 0, step `i` is at time `i + 1`.
    times: Vec<(usize, usize)>,
    size: u64,
}

/// When each buffer is there: `(from, until)`.
fn stays(rough: &Rough) -> Vec<(usize, usize)> {
    let draft = &rough.draft;
    let end = draft.lines.len() + 2;
    let mut stays = vec![(end, end); draft.buffers.len()];
    for &buffer in &draft.resident {
        stays[buffer.index()].0 = 0;
    }
    for (at, line) in draft.lines.iter().enumerate() {
        let now = at + 1;
        for buffer in line.act.fills() {
            stays[buffer.index()].0 = now;
            if let Some(over) = draft.buffers[buffer.index()].over {
                stays[over.index()].1 = now;
            }
        }
        match &line.act {
            crate::Act::Free(buffer) => stays[buffer.index()].1 = now,
            crate::Act::Compute { workspace: Some(workspace), .. } => stays[workspace.index()].1 = now + 1,
            _ => {}
        }
    }
    stays
}

/// Gives every buffer a place in one of `banks`, whose capacities it sets to what is needed.
pub(crate) fn place(rough: &mut Rough, banks: &mut [Bank], rng: &mut Rng) {
    let stays = stays(rough);
    let mut groups = vec![Group::default(); rough.groups.len()];
    for (buffer, &group) in rough.groups.iter().enumerate() {
        groups[group].times.push(stays[buffer]);
        groups[group].size = groups[group].size.max(rough.draft.buffers[buffer].size.0);
    }
    let meet = |a: &Group, b: &Group| a.times.iter().any(|a| b.times.iter().any(|b| a.0 < b.1 && b.0 < a.1));
    let mut placed: Vec<(usize, usize, u64)> = Vec::new(); // (group, bank, offset)
    let mut places = vec![Place::default(); groups.len()];
    for bank in banks.iter_mut() {
        bank.capacity = Bytes::ZERO;
    }
    for (index, group) in groups.iter().enumerate().filter(|(_, group)| !group.times.is_empty()) {
        let bank = rng.below(banks.len());
        let align = banks[bank].align.0.max(1);
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&(other, at, _)| at == bank && meet(group, &groups[other]))
            .map(|&(other, _, offset)| (offset, offset + groups[other].size))
            .collect();
        taken.sort_unstable();
        let mut offset = if rng.chance(10) { align * rng.below(4) as u64 } else { 0 };
        for (start, end) in taken {
            if start < offset + group.size && offset < end {
                offset = end.div_ceil(align) * align;
            }
        }
        placed.push((index, bank, offset));
        places[index] = Place { bank: u16::try_from(bank).unwrap_or(0), offset: Bytes(offset) };
        banks[bank].capacity = banks[bank].capacity.max(Bytes(offset + group.size));
    }
    rough.draft.places = rough.groups.iter().map(|&group| places[group]).collect();
}
