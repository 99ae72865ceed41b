//! Where buffers lie, how large they are, and what they claim to hold.

use memfit_ir::{Bytes, Codec, Content, Place};

use super::Patient;
use crate::Rng;

pub(super) fn move_buffer(p: &mut Patient<'_>) -> Option<()> {
    let slots = 8;
    let slot = p.rng.below(slots) as u64;
    let place = *p.place()?;
    let align = p.align(place);
    let capacity = p.limits.banks.get(usize::from(place.bank))?.capacity.0;
    let offset = capacity * slot / slots as u64 / align * align;
    *p.place()? = Place { offset: Bytes(offset), ..place };
    Some(())
}

pub(super) fn nudge_buffer(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.places.len());
    let place = *p.draft.places.get(at)?;
    let by = if p.rng.chance(80) { p.align(place) } else { 1 };
    let offset = if p.rng.chance(50) { place.offset.0 + by } else { place.offset.0.checked_sub(by)? };
    p.draft.places[at].offset = Bytes(offset);
    Some(())
}

pub(super) fn alias_buffers(p: &mut Patient<'_>) -> Option<()> {
    let place = *p.place()?;
    *p.place()? = place;
    Some(())
}

pub(super) fn swap_places(p: &mut Patient<'_>) -> Option<()> {
    let (a, b) = (p.any_buffer()?, p.any_buffer()?);
    let (at_a, at_b) = (*p.draft.places.get(a.index())?, *p.draft.places.get(b.index())?);
    p.draft.places[a.index()] = at_b;
    p.draft.places[b.index()] = at_a;
    Some(())
}

pub(super) fn change_bank(p: &mut Patient<'_>) -> Option<()> {
    let bank = u16::try_from(p.rng.below(p.limits.banks.len() + 1)).ok()?;
    p.place()?.bank = bank;
    Some(())
}

pub(super) fn far_place(p: &mut Patient<'_>) -> Option<()> {
    let offset = if p.rng.chance(30) { u64::MAX - 15 } else { 1 << p.rng.below(64) };
    p.place()?.offset = Bytes(offset);
    Some(())
}

pub(super) fn short_layout(p: &mut Patient<'_>) -> Option<()> {
    if p.rng.chance(50) {
        p.draft.places.pop().map(drop)
    } else {
        p.draft.places.push(Place::default());
        Some(())
    }
}

pub(super) fn other_size(rng: &mut Rng, size: Bytes) -> Bytes {
    match rng.below(5) {
        0 => Bytes(size.0 + 1),
        1 => Bytes(size.0.saturating_sub(1)),
        2 => Bytes(size.0 / 2),
        3 => Bytes(size.0 + 16),
        _ => Bytes::ZERO,
    }
}

pub(super) fn resize_buffer(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let size = other_size(p.rng, p.draft.buffers[buffer.index()].size);
    p.draft.buffers[buffer.index()].size = size;
    Some(())
}

pub(super) fn resize_copy(p: &mut Patient<'_>) -> Option<()> {
    let copy = p.any_copy()?;
    let size = other_size(p.rng, p.draft.copies[copy.index()].size);
    p.draft.copies[copy.index()].size = size;
    Some(())
}

pub(super) fn other_content(p: &mut Patient<'_>, content: Content) -> Content {
    let value = p.any_value();
    match (content, p.rng.below(4)) {
        (_, 0) => Content::Workspace,
        (Content::Encoded(value, _), 1) => Content::Value(value),
        (Content::Encoded(_, codec), _) => Content::Encoded(value, codec),
        (Content::Value(value), 1) => Content::Encoded(value, Codec::Zvc),
        _ => Content::Value(value),
    }
}

pub(super) fn claim_of_buffer(p: &mut Patient<'_>) -> Option<()> {
    let buffer = p.any_buffer()?;
    let content = other_content(p, p.draft.buffers[buffer.index()].content);
    p.draft.buffers[buffer.index()].content = content;
    Some(())
}

pub(super) fn claim_of_copy(p: &mut Patient<'_>) -> Option<()> {
    let copy = p.any_copy()?;
    let content = other_content(p, p.draft.copies[copy.index()].content);
    p.draft.copies[copy.index()].content = content;
    Some(())
}

pub(super) fn codec(p: &mut Patient<'_>) -> Option<()> {
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
