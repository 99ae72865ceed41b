//! Makes a value again right before one of its uses, with as much of what that needs as chance says.

use super::{Choices, Editor, Move, Random, gap, tries};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Make;

impl Move for Make {
    fn applies(&self, _: &Editor<'_, '_>, choices: &Choices) -> bool {
        !choices.made.is_empty()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        for _ in 0..tries(editor) {
            let value = choices.made[random.below(choices.made.len())];
            if let Some((_, at)) = gap(editor, value, random) {
                let eager = [0.0, 0.3, 0.7, 1.0][random.below(4)];
                return editor.make_before(value, at, (eager, random));
            }
        }
        false
    }
}
