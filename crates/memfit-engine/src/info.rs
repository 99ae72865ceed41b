//! What people are told about a policy or an allocator.

/// What a policy is called and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Publication or code.
    pub source: &'static str,
    /// Year of the source.
    pub year: u16,
}
