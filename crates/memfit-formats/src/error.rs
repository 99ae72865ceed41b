//! What a reader says about a file it refuses.

use std::fmt;

/// Why a file was refused. It is always about the file, never about memfit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FormatError {
    /// Where: a line, an element such as `ops[3]`, a key, a node. Empty where it is the whole file.
    pub place: String,
    /// What is wrong: lower case, no full stop, values in backticks.
    pub message: String,
    /// What to do next, if we know.
    pub hint: Option<String>,
}

impl FormatError {
    /// An error without a hint. An empty `place` means the whole file. A text of over a thousand characters, such as a
    /// message that quotes a hostile name, is cut.
    #[must_use]
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> FormatError {
        FormatError { place: short(place.into()), message: short(message.into()), hint: None }
    }

    /// The same error with a next step for its reader.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> FormatError {
        FormatError { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

fn short(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(1000) {
        text.truncate(end);
        text.push('…');
    }
    text
}
