//! Keeps a value, or removes a later run, and makes another value again, or sends it away, instead.

use super::{Choices, Drop, Editor, Keep, Make, Move, Random, Send};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Trade;

impl Move for Trade {
    fn applies(&self, editor: &Editor<'_, '_>, choices: &Choices) -> bool {
        Send.applies(editor, choices) && (Keep.applies(editor, choices) || Drop.applies(editor, choices))
    }

    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool {
        let pick = |one: &'static dyn Move, other: &'static dyn Move, random: &mut Random| {
            let both = [one, other].into_iter().filter(|way| way.applies(editor, choices));
            let both: Vec<&dyn Move> = both.collect();
            both[random.below(both.len())]
        };
        let (out, into) = (pick(&Keep, &Drop, random), pick(&Send, &Make, random));
        out.propose(editor, choices, random) && into.propose(editor, choices, random)
    }
}
