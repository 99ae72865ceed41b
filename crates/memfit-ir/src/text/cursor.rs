//! A position in one line of text.

use super::ParseError;
use crate::{Bytes, Codec};

/// Reads one line from left to right.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, line: u32) -> Cursor<'a> {
        Cursor { text, at: 0, line }
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// An error at the next token.
    pub(super) fn fail<T>(&mut self, message: impl Into<String>) -> Parsed<T> {
        self.space();
        let column = self.text[..self.at].chars().count() + 1;
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        Err(ParseError { line: self.line, column, message: message.into() })
    }

    /// An error that says what is wanted and what stands there.
    pub(super) fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        self.space();
        let mut probe = Cursor { text: self.text, at: self.at, line: self.line };
        let word = probe.word();
        let found = match (word.is_empty(), self.rest().chars().next()) {
            (false, _) => format!("`{}`", word.chars().take(40).collect::<String>()),
            (true, None | Some(';')) => "the end of the line".to_owned(),
            (true, Some(other)) => format!("`{}`", other.escape_default()),
        };
        self.fail(format!("expected {what}, found {found}"))
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// The next run of letters, digits and `_ . -`; empty if something else comes.
    pub(super) fn word(&mut self) -> &'a str {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The next word, left where it is.
    pub(super) fn peek_word(&mut self) -> &'a str {
        let start = self.at;
        let word = self.word();
        self.at = start;
        word
    }

    /// Takes the name of a codec, which may have a `+` in it, if one comes next.
    pub(super) fn eat_codec(&mut self) -> Option<Codec> {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !is_word(c) && c != '+').unwrap_or(rest.len());
        let codec = Codec::by_name(&rest[..end])?;
        self.at += end;
        Some(codec)
    }

    /// Takes `word` if it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.word();
        }
        found
    }

    /// Takes `mark` if it comes next.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.eat(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    /// Whether `mark` comes next without space before it.
    pub(super) fn touches(&self, mark: char) -> bool {
        self.rest().starts_with(mark)
    }

    /// Whether nothing but a comment is left.
    pub(super) fn is_done(&mut self) -> bool {
        self.space();
        self.rest().is_empty() || self.touches(';')
    }

    /// Demands the end of the line and hands over its comment.
    pub(super) fn finish(mut self) -> Parsed<Option<&'a str>> {
        if !self.is_done() {
            return self.expected("the end of the line");
        }
        Ok(self.rest().strip_prefix(';').map(str::trim))
    }

    /// A word that means something of type `T`.
    pub(super) fn read<T>(&mut self, what: &str, meaning: impl Fn(&str) -> Option<T>) -> Parsed<T> {
        match meaning(self.peek_word()) {
            Some(read) => {
                self.word();
                Ok(read)
            }
            None => self.expected(what),
        }
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        self.read(what, |word| word.parse().ok())
    }

    pub(super) fn bytes(&mut self) -> Parsed<Bytes> {
        self.read("a number of bytes", |word| word.parse().ok())
    }

    /// `v7`, with `v` for `prefix`.
    pub(super) fn id(&mut self, prefix: &str, what: &str) -> Parsed<u32> {
        self.read(what, |word| number_after(prefix, word))
    }

    /// A name in quotes, if one comes next.
    pub(super) fn string(&mut self) -> Parsed<Option<String>> {
        if !self.eat("\"") {
            return Ok(None);
        }
        let mut read = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else { return self.expected("`\"`") };
            self.at += next.len_utf8();
            match next {
                '"' => return Ok(Some(read)),
                '\\' => read.push(self.escape()?),
                other => read.push(other),
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        for (mark, meaning) in [("\"", '"'), ("\\", '\\'), ("n", '\n'), ("r", '\r'), ("t", '\t')] {
            if self.rest().starts_with(mark) {
                self.at += mark.len();
                return Ok(meaning);
            }
        }
        let hex = self.rest().strip_prefix("u{").and_then(|rest| rest.split_once('}')).map(|(hex, _)| hex);
        let meaning = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        match (hex, meaning) {
            (Some(hex), Some(meaning)) => {
                self.at += "u{}".len() + hex.len();
                Ok(meaning)
            }
            _ => self.fail("expected `\\\"`, `\\\\`, `\\n`, `\\r`, `\\t` or `\\u{…}`"),
        }
    }
}

/// Whether `c` may stand in a bare word.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// 7 for `v7`; only digits, no sign, no leading zero.
pub(super) fn number_after(prefix: &str, word: &str) -> Option<u32> {
    let digits = word.strip_prefix(prefix)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}
