//! The output: a program and an address for every buffer.

use crate::{BufferId, Bytes, Digest, Program};

/// Where one buffer lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Index of the bank, see [`crate::Limits::banks`].
    pub bank: u16,
    /// Bytes from the start of that bank.
    pub offset: Bytes,
}

/// A place for every buffer, indexed by [`BufferId::index`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The places.
    pub places: Vec<Place>,
}

impl Layout {
    /// Highest end of a buffer in `bank`: the bytes that bank must have.
    #[must_use]
    pub fn height(&self, program: &Program, bank: u16) -> Bytes {
        self.places
            .iter()
            .zip(&program.buffers)
            .filter(|(place, _)| place.bank == bank)
            .map(|(place, buffer)| place.offset + buffer.size)
            .max()
            .unwrap_or_default()
    }

    /// Where `buffer` lies, if this layout covers it.
    #[must_use]
    pub fn place(&self, buffer: BufferId) -> Option<Place> {
        self.places.get(buffer.index()).copied()
    }
}

/// A program and its layout: a claim, until `memfit-verify` has read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Fingerprint of the graph it was made for.
    pub graph: Digest,
    /// What runs, in what order.
    pub program: Program,
    /// Where each buffer lies.
    pub layout: Layout,
}
