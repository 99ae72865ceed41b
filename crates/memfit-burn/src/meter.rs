//! Counting real bytes.

/// How the host asks what is really allocated: the process's allocator, or the device's.
///
/// Without one, memfit trusts its own account.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Bytes allocated now.
    pub current: fn() -> usize,
    /// The most bytes allocated at any time since the last call; starts counting anew.
    pub mark: fn() -> usize,
}
