//! Has a value leave or return some runs earlier or later.

use super::{Away, Choices, Editor, Move, NodeId, Random, RunId, ends, within};

/// Log₂ of the most runs by which an end moves.
const FAR: usize = 7;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Stretch;

impl Move for Stretch {
    fn applies(&self, editor: &Editor<'_, '_>, _: &Choices) -> bool {
        editor.is_any_away()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, _: &Choices, random: &mut Random) -> bool {
        let Some(place) = editor.any_away(random) else { return false };
        let Some(away) = editor.away(place) else { return false };
        let most = 1 << random.below(FAR);
        let far = 1 + random.below(most);
        let (end, later) = (random.below(2), random.below(2) == 0);
        if !editor.recall(place) {
            return false;
        }
        let moved = |node: NodeId| {
            let at = if later { node.index() + far } else { node.index().saturating_sub(far) };
            NodeId::at(at.min(editor.task.nodes()))
        };
        let away = match end {
            0 => Away { gone: moved(away.gone), ..away },
            _ => Away { back: moved(away.back), ..away },
        };
        let around = around(editor, away);
        around.and_then(|ends| within(editor, away, ends)).is_some_and(|away| editor.send(away))
    }
}

/// The ends of the gap in which `away` lies, as its first end says.
fn around(editor: &Editor<'_, '_>, away: Away) -> Option<(NodeId, NodeId)> {
    let events = editor.events(away.value);
    let next = editor.event_at(away.value, editor.runs.position(RunId::first(away.gone)) + 1);
    let (&from, &to) = (events.get(next.checked_sub(1)?)?, events.get(next)?);
    let free = !editor.defines(to, away.value) && !editor.is_away_from(from, away.value);
    free.then(|| ends(editor, editor.runs.position(from), editor.runs.position(to)))?
}
