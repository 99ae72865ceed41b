//! Removes a later run and makes another value again instead.

use super::{Choices, Drop, Editor, Make, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Exchange;

impl Move for Exchange {
    fn applies(&self, editor: &Editor<'_, '_>, choices: &Choices) -> bool {
        Drop.applies(editor, choices) && Make.applies(editor, choices)
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        Drop.propose(editor, choices, random) && Make.propose(editor, choices, random)
    }
}
