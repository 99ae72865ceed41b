//! What the program has given up, until the past is cut.

use memfit_ir::Bytes;

/// Storages that have been given up, before the first look.
pub(crate) const FEW: usize = 256;
/// A look is due when what was given up holds this part of the budget.
pub(crate) const SHARE: u64 = 8;

/// What the program has given up, and what still needs it.
#[derive(Debug)]
pub(crate) struct Past {
    /// Storages in the order of their release. Some may have left the tables since.
    pub(crate) released: Vec<u32>,
    /// Bytes of those that are resident and can't be computed again.
    pub(crate) bytes: Bytes,
    /// When the next look is due: storages, bytes.
    pub(crate) most: (usize, Bytes),
}

impl Past {
    pub(crate) fn new(budget: Bytes) -> Past {
        Past { released: Vec::new(), bytes: Bytes::ZERO, most: (FEW, Bytes(budget.0 / SHARE)) }
    }
}
