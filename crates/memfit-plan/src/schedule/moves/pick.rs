//! Has an op run by another of its algorithms.

use super::{Choices, Editor, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Pick;

impl Move for Pick {
    fn applies(&self, _: &Editor<'_, '_>, choices: &Choices) -> bool {
        !choices.picked.is_empty()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        let node = choices.picked[random.below(choices.picked.len())];
        let (count, now) = (editor.task.ways.row(node.index()).len(), editor.algorithms().of(node.index()));
        // Any of the others.
        let other = random.below(count - 1);
        editor.choose(node, other + usize::from(other >= now));
        true
    }
}
