//! Storages that last, whose home is not where it was.

use memfit_ir::{Bytes, Content, CopyId, Tier, ValueId};

use super::Patient;
use crate::Act;

/// A source is parked: beside its buffer, instead of it, or instead of it and fetched at once. Right where it lasts and nothing
/// mutates it.
pub(super) fn park_source(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.resident.len());
    let buffer = *p.draft.resident.get(at)?;
    let (content, size) = p.draft.buffers.get(buffer.index()).map(|b| (b.content, b.size))?;
    let tier = if p.rng.chance(50) { Tier::Host } else { Tier::Disk };
    let copy = p.draft.copy(content, size, tier);
    p.draft.parked.push(copy);
    let wait = p.rng.below(3);
    if wait > 0 {
        p.draft.resident.remove(at);
    }
    if wait > 1 {
        let fetch = p.draft.line(Act::Fetch { from: copy, to: buffer }, 0);
        let wait = p.draft.line(Act::Await(fetch.tag), 0);
        p.draft.lines.splice(0..0, [fetch, wait]);
    }
    roomy(p);
    Some(())
}

/// The copy of what a parked storage holds at the end is not made; half the time the one that it began with stays instead.
pub(super) fn stale_home(p: &mut Patient<'_>) -> Option<()> {
    let lasts: Vec<ValueId> = p.graph.results().to_vec();
    let content: Vec<Content> = p.draft.copies.iter().map(|copy| copy.content).collect();
    let of = |copy: CopyId| content.get(copy.index()).and_then(|content| content.value());
    let at =
        p.line(|act| matches!(*act, Act::Offload { to, .. } if of(to).is_some_and(|v| lasts.contains(&v))))?;
    p.draft.lines.remove(at);
    if p.rng.chance(50) {
        let parked = p.draft.parked.clone();
        p.draft.lines.retain(|line| !matches!(line.act, Act::Discard(copy) if parked.contains(&copy)));
        roomy(p);
    }
    Some(())
}

/// A storage that is only loaded to be read begins in another tier than before, or holds something else.
pub(super) fn wrong_home(p: &mut Patient<'_>) -> Option<()> {
    let at = p.rng.below(p.draft.parked.len());
    let copy = *p.draft.parked.get(at)?;
    let other = p.any_value();
    let copy = p.draft.copies.get_mut(copy.index())?;
    if p.rng.chance(50) {
        copy.tier = if copy.tier == Tier::Host { Tier::Disk } else { Tier::Host };
    } else {
        copy.content = Content::Value(other);
    }
    roomy(p);
    Some(())
}

fn roomy(p: &mut Patient<'_>) {
    (p.limits.host, p.limits.disk) = (Bytes(1 << 40), Bytes(1 << 40));
}
