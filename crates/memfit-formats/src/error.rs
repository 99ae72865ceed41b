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
    /// message that quotes a hostile name, is cut, and what a terminal would obey is replaced.
    #[must_use]
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> FormatError {
        FormatError { place: shown(place.into()), message: shown(message.into()), hint: None }
    }

    /// The same error with a next step for its reader.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> FormatError {
        FormatError { hint: Some(shown(hint.into())), ..self }
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

/// `text` as it may be shown: see [`FormatError::new`].
fn shown(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(1000) {
        text.truncate(end);
        text.push('…');
    }
    if text.contains(is_obeyed) { text.replace(is_obeyed, "\u{fffd}") } else { text }
}

/// The first `most` characters of `name`, as they may be shown in one line: names in files may be as long as a book.
#[must_use]
pub fn brief(name: &str, most: usize) -> String {
    let mut short: String = name.chars().take(most).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short.replace(is_obeyed, "\u{fffd}")
}

/// Whether a terminal obeys `c`: a control character, or one that changes the direction of what follows. Names come from
/// files of strangers.
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
