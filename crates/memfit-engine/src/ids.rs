//! Names of what the engine's tables have, for those who keep tables of their own beside them.

use std::fmt;

/// Names a storage version; stays the same when it is computed again. The number is used again once the storage has left
/// the tables, so the lists of hosts stay short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

impl StorageId {
    /// Position in a list with an element for each storage.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}
