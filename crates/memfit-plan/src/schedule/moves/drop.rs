//! Removes a later run, and the later runs that were there for it alone.

use super::{Choices, Editor, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Drop;

impl Move for Drop {
    fn applies(&self, editor: &Editor<'_, '_>, _: &Choices) -> bool {
        !editor.runs.extra().is_empty()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, _: &Choices, random: &mut Random) -> bool {
        let run = editor.any_later_run(random);
        run.is_some_and(|run| editor.drop_run(run))
    }
}
