//! Moves a later run to another place between the events around it.

use super::{Choices, Editor, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Shift;

impl Move for Shift {
    fn applies(&self, editor: &Editor<'_, '_>, _: &Choices) -> bool {
        !editor.runs.extra().is_empty()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, _: &Choices, random: &mut Random) -> bool {
        let Some(run) = editor.any_later_run(random) else { return false };
        let (node, position) = (editor.runs.node(run), editor.runs.position(run));
        let (mut low, mut high) = (node.index() + 1, editor.runs.len() - 1);
        for &value in editor.task.writes.row(node.index()) {
            let at = editor.event_at(value, position);
            let events = editor.events(value);
            if events.get(at) != Some(&run) {
                continue;
            }
            if let Some(&before) = events[..at].last() {
                low = low.max(editor.runs.position(before) + 1);
            }
            if let Some(&after) = events.get(at + 1) {
                high = high.min(editor.runs.position(after) - 1);
            }
        }
        if high <= low || !editor.remove(run) {
            return false;
        }
        let target = low + random.below(high - low + 1);
        editor.insert_in_time(node, target.min(editor.runs.len() - 1))
    }
}
