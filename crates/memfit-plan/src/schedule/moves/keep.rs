//! Keeps a value that was away.

use super::{Choices, Editor, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Keep;

impl Move for Keep {
    fn applies(&self, editor: &Editor<'_, '_>, _: &Choices) -> bool {
        editor.is_any_away()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, _: &Choices, random: &mut Random) -> bool {
        let place = editor.any_away(random);
        place.is_some_and(|place| editor.recall(place))
    }
}
