//! What people are told about a strategy, of whichever family.

/// What a strategy is called and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name on the command line and in Python: lower case, words joined by `-`.
    pub name: &'static str,
    /// One line, lower case, no full stop.
    pub summary: &'static str,
    /// The paper or program the idea comes from.
    pub source: &'static str,
    /// Year of the source.
    pub year: u16,
}
