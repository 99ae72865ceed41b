//! Sends a value away between two of its uses: for as long as may be, or for what is left beside its transfers, or for a part.

use super::{Away, Choices, Editor, Move, NodeId, Random, Wait, ends, gap, tries, within};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Send;

impl Move for Send {
    fn applies(&self, _: &Editor<'_, '_>, choices: &Choices) -> bool {
        !choices.sent.is_empty()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        for _ in 0..tries(editor) {
            let wait = choices.sent[random.below(choices.sent.len())];
            let Some((before, at)) = gap(editor, wait.value, random) else { continue };
            if editor.is_away_from(before, wait.value) {
                continue;
            }
            let (from, to) = (editor.runs.position(before), editor.runs.position(at));
            let Some(ends) = ends(editor, from, to) else { continue };
            let Wait { value, form, .. } = wait;
            let (gone, back) = match random.below(3) {
                0 => ends,
                1 => (after(editor, ends, wait.out), before_by(editor, ends, wait.back)),
                _ => {
                    let span = ends.1.index() - ends.0.index();
                    let gone = ends.0.index() + random.below(span);
                    (NodeId::at(gone), NodeId::at(ends.1.index() - random.below(ends.1.index() - gone)))
                }
            };
            if let Some(away) = within(editor, Away { value, form, gone, back }, ends) {
                return editor.send(away);
            }
        }
        false
    }
}

/// The first run at which, `ns` after the one that begins at the earlier of `ends` is done, a copy is there.
fn after(editor: &Editor<'_, '_>, ends: (NodeId, NodeId), ns: u64) -> NodeId {
    let mut sum = 0u64;
    let nodes = ends.0.index() + 1..ends.1.index();
    let at = nodes.into_iter().find(|&node| {
        sum = sum.saturating_add(editor.task.cost[node]);
        sum >= ns
    });
    if ns == 0 { ends.0 } else { at.map_or(ends.0, NodeId::at) }
}

/// The first run that begins at least `ns` before the later of `ends`.
fn before_by(editor: &Editor<'_, '_>, ends: (NodeId, NodeId), ns: u64) -> NodeId {
    let mut sum = 0u64;
    let nodes = ends.0.index() + 1..ends.1.index();
    let at = nodes.into_iter().rev().find(|&node| {
        sum = sum.saturating_add(editor.task.cost[node]);
        sum >= ns
    });
    if ns == 0 { ends.1 } else { at.map_or(ends.1, NodeId::at) }
}
