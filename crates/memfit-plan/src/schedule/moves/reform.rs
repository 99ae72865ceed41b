//! Has a value that is away wait in another form.

use super::{Away, Choices, Editor, Move, Random};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Reform;

impl Move for Reform {
    fn applies(&self, editor: &Editor<'_, '_>, choices: &Choices) -> bool {
        choices.has_forms() && editor.is_any_away()
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        let Some(place) = editor.any_away(random) else { return false };
        let Some(away) = editor.away(place) else { return false };
        let ways = choices.ways(away.value);
        if ways.len() < 2 {
            return false;
        }
        let form = ways[random.below(ways.len())].form;
        form != away.form && editor.recall(place) && editor.send(Away { form, ..away })
    }
}
